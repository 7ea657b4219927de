import { type DeprecationNotice, deprecationsPattern, parseDeprecations, toDeprecation } from "./deprecations.ts";

const dates = {
  deprecatedAt: new Date("2026-01-01T00:00:00.900Z"),
  sunsetAt: new Date("2026-07-01T12:00:00.000Z"),
  link: "https://docs.example/pets#end",
};
const route = "GET /v1/pets/:petId";

test("a deprecation announces each date, and where to read about it, in the form of its RFC", () => {
  expect(toDeprecation(dates, route, "getPet").headers).toEqual([
    ...["Deprecation", "@1767225600"],
    ...["Sunset", "Wed, 01 Jul 2026 12:00:00 GMT"],
    ...["Link", '<https://docs.example/pets#end>; rel="deprecation", <https://docs.example/pets#end>; rel="sunset"'],
  ]);
});

test("a deprecation does not announce a date that is not set", () => {
  const names = (options: Partial<DeprecationNotice>) =>
    toDeprecation({ ...dates, ...options }, route, "getPet").headers.filter((_, i) => i % 2 === 0);
  expect(names({ deprecatedAt: null, sunsetAt: null })).toEqual([]);
  expect(names({ sunsetAt: null })).toEqual(["Deprecation", "Link"]);
  expect(names({ deprecatedAt: null })).toEqual(["Sunset", "Link"]);
});

test.each([
  ["stays after its sunset unless the operator says otherwise", { isGoneAfterSunset: false }, Number.POSITIVE_INFINITY],
  ["ends at its sunset when the operator says so", { isGoneAfterSunset: true }, dates.sunsetAt.getTime()],
  ["without a sunset never ends", { isGoneAfterSunset: true, sunsetAt: null }, Number.POSITIVE_INFINITY],
])("a deprecated operation %s", (_what, options, goneFromMs) => {
  expect(toDeprecation({ ...dates, ...options }, route, "getPet").goneFromMs).toBe(goneFromMs);
});

test.each([
  ["GET /v1/inventory", "listInventory", "../docs/#listInventory"],
  [route, "getPet", "../../docs/#getPet"],
])("a deprecation of %s without a link of its own leads to the section of %s: %s", (of, name, url) => {
  const { headers } = toDeprecation({ ...dates, link: undefined }, of, name);
  expect(headers.at(-1)).toBe(`<${url}>; rel="deprecation", <${url}>; rel="sunset"`);
});

const day = (text: string) => new Date(`${text}T00:00:00Z`);
const bare = { sunsetAt: null, link: undefined, isGoneAfterSunset: false };

test.each<[string, Record<string, DeprecationNotice>]>([
  ["none", {}],
  ["getPet=2026-01-01", { getPet: { ...bare, deprecatedAt: day("2026-01-01") } }],
  ["getPet=none", { getPet: { ...bare, deprecatedAt: null } }],
  [
    "getPet=none;2027-07-01;gone",
    { getPet: { ...bare, deprecatedAt: null, sunsetAt: day("2027-07-01"), isGoneAfterSunset: true } },
  ],
  [
    "getPet=2026-01-01;https://docs.example/?a=b, getOrders=2026-01-01T00:00:00+02:00;2027-07-01",
    {
      getPet: { ...bare, deprecatedAt: day("2026-01-01"), link: "https://docs.example/?a=b" },
      getOrders: { ...bare, deprecatedAt: new Date("2025-12-31T22:00:00Z"), sunsetAt: day("2027-07-01") },
    },
  ],
])("announcements may be %s", (text, announced) => {
  expect(text).toMatch(new RegExp(`^(?:${deprecationsPattern})$`));
  expect(parseDeprecations(text)).toEqual(announced);
});

test.each(["getPet", "getPet=", "=2026-01-01", "getPet=2026-02-30", "getPet=2026-01-01;", "getPet=2026-01-01;soon"])(
  "announcements are not of the form %s",
  (text) => {
    expect(text).not.toMatch(new RegExp(`^(?:${deprecationsPattern})$`));
  },
);
