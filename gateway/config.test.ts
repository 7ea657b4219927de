import { SettingsError } from "../runtime/settings.ts";
import { type GatewayEnv, readGatewayConfig } from "./config.ts";
import { clientAddressOf } from "./http/client-address.ts";

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
    clientAddressOf(TRUSTED_PROXIES);
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
  expect(faultsOf(env)).toEqual([expect.stringMatching(/^PETS_SUNSET_AT: must not be before/)]);
});
