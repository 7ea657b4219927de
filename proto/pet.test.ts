import { fromWireStatus, parsePetId, petStatuses, toWireStatus } from "./pet.ts";

test.each([
  ["0", 0n],
  ["-1", -1n],
  ["9007199254740993", 9_007_199_254_740_993n],
  ["9223372036854775807", 2n ** 63n - 1n],
  ["-9223372036854775808", -(2n ** 63n)],
])("parsePetId reads every digit of %s", (text, petId) => {
  expect(parsePetId(text)).toBe(petId);
});

test.each([
  "",
  "abc",
  "1.5",
  "007",
  "+1",
  "-0",
  "1e3",
  " 1",
  "9223372036854775808",
  "-9223372036854775809",
  "1".repeat(99),
])("parsePetId rejects %j", (text) => {
  expect(parsePetId(text)).toBeUndefined();
});

test("every status is the same after conversion to gRPC and back", () => {
  expect(petStatuses.map((status) => fromWireStatus(toWireStatus(status)))).toEqual(petStatuses);
});

test("the unspecified gRPC status and unknown ones convert to no status", () => {
  expect(fromWireStatus(0)).toBeUndefined();
  expect(fromWireStatus(9 as never)).toBeUndefined();
});
