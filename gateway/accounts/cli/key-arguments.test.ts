import { InvalidArgumentError } from "commander";
import { parseDurationMs, parseFutureTimeMs, parseLimit, parseScopes, parseUsagePeriodMs } from "./key-arguments.ts";

test("a duration is a whole number and its unit", () => {
  expect(["0s", "90s", "30m", "24h", "7d", "366d"].map(parseDurationMs)).toEqual([
    0, 90_000, 1_800_000, 86_400_000, 604_800_000, 31_622_400_000,
  ]);
  for (const text of ["", "24", "h", "-1h", "1.5h", "24 h", "24H", "1w", "367d", "999999999d", "1h30m"]) {
    expect(() => parseDurationMs(text)).toThrow(InvalidArgumentError);
  }
});

test("a period of use is at most the time for which requests are kept", () => {
  expect(["30m", "8d"].map(parseUsagePeriodMs)).toEqual([1_800_000, 691_200_000]);
  expect(() => parseUsagePeriodMs("9d")).toThrow(InvalidArgumentError);
});

test("an expiry is an exact moment in the future", () => {
  expect(parseFutureTimeMs("2999-12-31")).toBe(Date.UTC(2999, 11, 31));
  expect(parseFutureTimeMs("2999-12-31T23:59:59.5Z")).toBe(Date.UTC(2999, 11, 31, 23, 59, 59, 500));
  expect(parseFutureTimeMs("2999-12-31T23:59:59+01:00")).toBe(Date.UTC(2999, 11, 31, 22, 59, 59));
  const past = ["2020-01-01", "2020-01-01T00:00:00Z"];
  const inexact = [
    "",
    "tomorrow",
    "2999-02-30",
    "2999-13-01",
    "2999-01-01T00:00:00",
    "2999",
    "01/02/2999",
    "9999999999999",
  ];
  for (const text of [...past, ...inexact]) expect(() => parseFutureTimeMs(text)).toThrow(InvalidArgumentError);
});

test("scopes are comma-separated, known, and at least one", () => {
  expect(parseScopes("store:read")).toEqual(["store:read"]);
  expect(parseScopes("inventory:write, inventory:read")).toEqual(["inventory:write", "inventory:read"]);
  for (const text of ["", ",", "inventory", "inventory:read,", "inventory:read store:read", "INVENTORY:READ"]) {
    expect(() => parseScopes(text)).toThrow(InvalidArgumentError);
  }
});

test("a limit is written in digits", () => {
  expect(["0", "5", "2147483647"].map(parseLimit)).toEqual([0, 5, 2_147_483_647]);
  for (const text of ["", "-1", "1.5", "1e3", "0x10", " 5", "12345678901"]) {
    expect(() => parseLimit(text)).toThrow(InvalidArgumentError);
  }
});
