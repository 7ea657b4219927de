import { SettingsError } from "../runtime/settings.ts";
import { type GatewayEnv, readGatewayConfig } from "./config.ts";
import { deprecationsOf } from "./deprecation-settings.ts";
import { clientAddressFinder } from "./http/client-address.ts";

const read = (env: GatewayEnv) => readGatewayConfig({ KEY_PEPPER: "a-pepper-that-only-the-tests-know", ...env });

function faultsOf(env: GatewayEnv): readonly string[] {
  try {
    read(env);
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return error.faults;
    throw error;
  }
}

describe("trusted proxies", () => {
  test.each([
    ["10.0.0.1, 10.1.0.0/16", ["10.0.0.1", "10.1.0.0/16"]],
    ["128.0.0.0/1,8000::/1", ["128.0.0.0/1", "8000::/1"]],
    ["::1,2001:db8::/128,127.0.0.1/32", ["::1", "2001:db8::/128", "127.0.0.1/32"]],
  ])("may be %s", (text, proxies) => {
    const { TRUSTED_PROXIES } = read({ TRUSTED_PROXIES: text });
    expect(TRUSTED_PROXIES).toEqual(proxies);
    clientAddressFinder(TRUSTED_PROXIES);
  });

  test.each(["0.0.0.0/0", "::/0", "10.0.0.1, ::/00", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/8/8", "loopback"])(
    "are a named fault when they are %s",
    (text) => {
      expect(faultsOf({ TRUSTED_PROXIES: text })).toEqual([
        "TRUSTED_PROXIES: must be comma-separated addresses or CIDRs other than /0",
      ]);
    },
  );
});

describe.each(["PETS_DEPRECATED_AT", "PETS_SUNSET_AT"] as const)("%s", (name) => {
  const other = name === "PETS_SUNSET_AT" ? "PETS_DEPRECATED_AT" : "PETS_SUNSET_AT";

  test.each([
    ["2028-02-29", "2028-02-29T00:00:00.000Z"],
    ["2027-07-01T00:00:00Z", "2027-07-01T00:00:00.000Z"],
    ["2027-07-01T00:00:00.5+02:00", "2027-06-30T22:00:00.500Z"],
  ])(`${name} means the same moment on every machine when it is %s`, (text, moment) => {
    expect(read({ [name]: text, [other]: "none" })[name]).toEqual(new Date(moment));
  });

  test.each([
    "2027-02-30",
    "2027-02-30T00:00:00Z",
    "2027-13-01",
    "2027-07-01T00:00:00",
    "2027-07-01 00:00",
    "2027",
    "soon",
  ])(`${name} is a named fault when it is %s`, (text) => {
    expect(faultsOf({ [name]: text, [other]: "none" })).toEqual([
      `${name}: must be a day or a time with its offset in ISO 8601, like 2027-07-01T00:00:00Z, or none`,
    ]);
  });

  test(`${name} may be none`, () => {
    expect(read({ [name]: "none" })[name]).toBeNull();
  });
});

test("a sunset before the deprecation is a named fault", () => {
  const env = { PETS_DEPRECATED_AT: "2027-07-01T00:00:00Z", PETS_SUNSET_AT: "2027-07-01T00:00:00+01:00" };
  expect(faultsOf(env)).toEqual(["PETS_SUNSET_AT: the sunset of getPet must not be before its deprecation"]);
});

const day = (text: string) => new Date(`${text}T00:00:00Z`);

test.each<[string, GatewayEnv, object]>([
  ["nothing is set", {}, { getPet: { deprecatedAt: day("2026-01-01"), sunsetAt: day("2027-07-01") } }],
  [
    "a date of getPet is set alone",
    { PETS_SUNSET_AT: "none" },
    { getPet: { deprecatedAt: day("2026-01-01"), sunsetAt: null } },
  ],
  [
    "another operation is to end, too",
    { DEPRECATIONS: "getOrders=2026-03-01", PETS_DEPRECATED_AT: "2026-02-01" },
    {
      getOrders: { deprecatedAt: day("2026-03-01"), sunsetAt: null },
      getPet: { deprecatedAt: day("2026-02-01"), sunsetAt: null },
    },
  ],
  ["no operation is to end", { DEPRECATIONS: "none" }, {}],
])("the operations that are going to end follow from the settings when %s", (_, env, expected) => {
  const announced = deprecationsOf(read(env));
  expect(announced).toMatchObject(expected);
  expect(Object.keys(announced)).toHaveLength(Object.keys(expected).length);
});

test("an announcement that cannot be read, or has its sunset first, is a fault of DEPRECATIONS", () => {
  expect(faultsOf({ DEPRECATIONS: "getPet" })).toEqual([expect.stringMatching(/^DEPRECATIONS: must be none, or like/)]);
  expect(faultsOf({ DEPRECATIONS: "getOrders=2026-03-01;2026-02-01" })).toEqual([
    "DEPRECATIONS: the sunset of getOrders must not be before its deprecation",
  ]);
});
