import { randomBytes } from "node:crypto";
import { parseExactly } from "./exact-json.ts";

const minInt64 = -(2n ** 63n);
const maxInt64 = 2n ** 63n - 1n;

test("a million random ids of all lengths are read to the last digit", () => {
  for (let round = 0; round < 10; round++) {
    const bytes = randomBytes(8 * 100_000);
    const ids = Array.from({ length: 100_000 }, (_, i) => bytes.readBigInt64LE(8 * i) >> BigInt(i % 60));
    const read = parseExactly(`[${ids.map((id) => `{"petId":${id}}`)}]`) as { petId: number | string }[];
    expect(read.filter(({ petId }, i) => BigInt(petId) !== ids[i])).toEqual([]);
  }
});

test.each([minInt64, maxInt64, -(2n ** 53n) - 1n, 2n ** 53n + 1n, 10n ** 15n, 10n ** 15n - 1n, 0n, -1n])(
  "the id %s is exact in an object, in an array and alone, with and without spaces",
  (id) => {
    for (const text of [`{"petId":${id}}`, `{ "petId" : ${id} }`, `{"a":"x","petId":${id},"b":1}`]) {
      expect(BigInt((parseExactly(text) as { petId: string }).petId)).toBe(id);
    }
    expect((parseExactly(`[${id}, ${id},${id}]`) as string[]).map(BigInt)).toEqual([id, id, id]);
    expect(BigInt(parseExactly(`${id}`) as string)).toBe(id);
  },
);

test.each([
  '{"message":"1234567890123456789"}',
  '{"message":"body[3].petId: 1234567890123456789, is too large"}',
  '{"a\\"petId":"x","message":"\\\\\\"petId\\":1234567890123456789,","other":"\\\\"}',
  '["\\u0031234567890123456789",-0.12345678901234567,1.0e0000000000000000,12345678901234567.5,1e+0000000000000002]',
  '[0.1,true,null,"1234567890123456789",{"r9223372036854775807":"\\"r9223372036854775807\\""}]',
])("texts and fractions are read as JSON.parse reads them: %s", (text) => {
  expect(parseExactly(text)).toEqual(JSON.parse(text));
});

test.each(["", "{", '{"petId":1234567890123456789', '"1234567890123456789', '"\\', "12345678901234567890abc"])(
  "what is no JSON is a SyntaxError: %s",
  (text) => {
    expect(() => parseExactly(text)).toThrow(SyntaxError);
  },
);
