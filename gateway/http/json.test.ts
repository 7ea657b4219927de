import fc from "fast-check";
import { parseJson as parseExactly } from "../../test/support/http.ts";
import { checkMediaType, parseJson, postTypes } from "./json.ts";

const parse = (text: string) => parseJson(Buffer.from(text));

/** Whether a number has no fraction, by exact arithmetic. */
function isExactInteger([, whole, fraction, exponent]: readonly [string, string, string, string]): boolean {
  const places = BigInt(fraction.slice(1).length) - BigInt(exponent.slice(1) || 0);
  return places <= 0n || BigInt(whole + fraction.slice(1)) % 10n ** places === 0n;
}

test("a Content-Type of JSON has at most 256 characters", () => {
  const check = (length: number) =>
    checkMediaType({ "content-type": "application/json".padEnd(length, ";") }, postTypes);
  expect(() => check(256)).not.toThrow();
  expect(() => check(257)).toThrow(expect.objectContaining({ code: "unsupported_media_type" }));
});

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
  ])("accepts %s", (_what, text, value) => {
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

  test.each(["", "1.5", '{"a":50e-1}'])("accepts nesting as deep as a body allows, around %j", (inside) => {
    const depth = (16 * 1024 - inside.length) / 2;
    let value = parse(`${"[".repeat(depth)}${inside}${"]".repeat(depth)}`);
    while (Array.isArray(value)) [value] = value;
    expect(value).toEqual(inside === "" ? undefined : JSON.parse(inside));
  });

  test("reads any JSON as JSON.parse does, but integers beyond 2^53 as bigints with all digits", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(undefined, 1, "\t"), (value, space) => {
        const text = JSON.stringify(value, null, space);
        expect(parse(text)).toEqual(parseExactly(text));
      }),
    );
  });

  test("reads a number at any depth exactly, or as NaN where only rounding makes it an integer", () => {
    const digits = fc.stringMatching(/^(0|[1-9]\d{0,20})$/, { size: "max" });
    const number = fc.tuple(
      fc.constantFrom("", "-"),
      digits,
      fc.stringMatching(/^(\.\d{1,25})?$/, { size: "max" }),
      fc.stringMatching(/^([eE][+-]?\d{1,3})?$/),
    );
    const nesting = fc.array(fc.constantFrom(["[", "]"], ['{"a":', "}"], ["[1.5,", "]"]), {
      maxLength: 1_000,
      size: "max",
    });
    fc.assert(
      fc.property(number, nesting, (parts, levels) => {
        const source = parts.join("");
        const [before, after] = [levels, levels.toReversed()];
        const text = before.map(([open]) => open).join("") + source + after.map(([, close]) => close).join("");
        let [value, expected] = [parse(text), parseExactly(text) as never];
        for (const [open] of levels) {
          const key = open === "[" ? 0 : open === '{"a":' ? "a" : 1;
          [value, expected] = [(value as Record<string, unknown>)[key], expected[key]];
        }
        expect(value).toBe(Number.isInteger(expected) && !isExactInteger(parts) ? Number.NaN : expected);
      }),
    );
  });

  test.each([
    ["0", 0],
    ["-0", -0],
    ["5.0", 5],
    ["50e-1", 5],
    ["0.5E+1", 5],
    ["0e-400", 0],
    ["1.5", 1.5],
    ["-1e-2", -0.01],
    ["1e400", Number.POSITIVE_INFINITY],
    ["4.99999999999999999999", Number.NaN],
    ["1e-400", Number.NaN],
    ["9007199254740993", 9_007_199_254_740_993n],
    ["-9223372036854775809", -9_223_372_036_854_775_809n],
    ["9007199254740993.5", Number.NaN],
  ])("reads the number %s without rounding it to an integer", (text, value) => {
    expect(parse(`[${text}]`)).toEqual([value]);
  });

  test("reads an integer with any number of zeros after the point", () => {
    expect(parse(`5.${"0".repeat(16_000)}`)).toBe(5);
  });

  test("reads a member named __proto__ without setting the prototype", () => {
    const value = parse('{"__proto__":{"quantity":5}}') as object;
    expect(Object.hasOwn(value, "quantity")).toBe(false);
    expect((value as { quantity?: number }).quantity).toBeUndefined();
  });
});
