import { deprecation } from "./deprecation.ts";

const dates = {
  deprecatedAt: new Date("2026-01-01T00:00:00.900Z"),
  sunsetAt: new Date("2026-07-01T12:00:00.000Z"),
  goneAfterSunset: false,
  documentationUrl: "https://docs.example/pets#end",
};

test("a deprecation announces each date, and where to read about it, in the form of its RFC", () => {
  expect(deprecation(dates).headers).toEqual([
    ...["Deprecation", "@1767225600"],
    ...["Sunset", "Wed, 01 Jul 2026 12:00:00 GMT"],
    ...["Link", '<https://docs.example/pets#end>; rel="deprecation", <https://docs.example/pets#end>; rel="sunset"'],
  ]);
});

test("a deprecation does not announce a date that is not set", () => {
  const names = (options: Partial<typeof dates> | { deprecatedAt: null } | { sunsetAt: null }) =>
    deprecation({ ...dates, ...options }).headers.filter((_, i) => i % 2 === 0);
  expect(names({ deprecatedAt: null, sunsetAt: null })).toEqual([]);
  expect(names({ sunsetAt: null })).toEqual(["Deprecation", "Link"]);
  expect(names({ deprecatedAt: null })).toEqual(["Sunset", "Link"]);
});

test.each([
  ["stays after its sunset unless the operator says otherwise", { goneAfterSunset: false }, Number.POSITIVE_INFINITY],
  ["ends at its sunset when the operator says so", { goneAfterSunset: true }, dates.sunsetAt.getTime()],
  ["without a sunset never ends", { goneAfterSunset: true, sunsetAt: null }, Number.POSITIVE_INFINITY],
])("a deprecated operation %s", (_what, options, goneFromMs) => {
  expect(deprecation({ ...dates, ...options }).goneFromMs).toBe(goneFromMs);
});
