import { parseJson } from "./json.ts";

const parse = (text: string) => parseJson(Buffer.from(text));

describe("parseJson", () => {
  test.each([
    ["an object", '{"quantity": 5}', { quantity: 5 }],
    [
      "names that repeat in different objects",
      '{"a":{"a":1},"b":[{"a":1},{"a":2}]}',
      { a: { a: 1 }, b: [{ a: 1 }, { a: 2 }] },
    ],
    ["a name that repeats as a value", '{"a":"a","b":"a"}', { a: "a", b: "a" }],
    ["quotes, brackets and colons inside strings", '{"a":"\\"{[:,","b":"}]"}', { a: '"{[:,', b: "}]" }],
    ["white space before the colon", '{"a" \n\t\r : 1}', { a: 1 }],
    ["a byte order mark", '\uFEFF{"a":1}', { a: 1 }],
  ])("takes %s", (_what, text, value) => {
    expect(parse(text)).toEqual(value);
  });

  test.each([
    ["a name twice", '{"quantity":1,"quantity":2}'],
    ["a name twice in an inner object", '[{"a":{"b":1,"c":0,"b":2}}]'],
    ["a name twice, once with escapes", '{"quantity":1,"\\u0071uantity":2}'],
    ["an empty name twice", '{"":1,"":2}'],
    ["nothing", ""],
    ["a comma at the end", '{"a":1,}'],
    ["a comment", '{"a":1} // yes'],
    ["NaN", '{"a":NaN}'],
    ["two texts", "{}{}"],
  ])("refuses %s as invalid_json", (_what, text) => {
    expect(() => parse(text)).toThrow(expect.objectContaining({ code: "invalid_json" }));
  });

  test("refuses bytes that are not UTF-8", () => {
    expect(() => parseJson(Buffer.from([0x22, 0xff, 0xfe, 0x22]))).toThrow(
      expect.objectContaining({ code: "invalid_json" }),
    );
  });

  test("takes nesting as deep as a body can be", () => {
    expect(() => parse("[".repeat(8_000) + "]".repeat(8_000))).not.toThrow();
  });

  test("a member named __proto__ is a member, not a prototype", () => {
    const value = parse('{"__proto__":{"quantity":5}}') as object;
    expect(Object.hasOwn(value, "quantity")).toBe(false);
    expect((value as { quantity?: number }).quantity).toBeUndefined();
  });
});
