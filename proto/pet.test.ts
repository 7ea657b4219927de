import { fromWireStatus, parsePetId, petStatuses, toWireStatus } from "./pet.ts";

test.each([
  ["0", 0n],
  ["-1", -1n],
  ["9007199254740993", 9_007_199_254_740_993n],
  ["9223372036854775807", 2n ** 63n - 1n],
  ["-9223372036854775808", -(2n ** 63n)],
])("reads %s to the last digit", (text, petId) => {
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
])("takes %j for no petId", (text) => {
  expect(parsePetId(text)).toBeUndefined();
});

test("every status comes back from the wire", () => {
  expect(petStatuses.map((status) => fromWireStatus(toWireStatus(status)))).toEqual(petStatuses);
});

test("the unspecified status and unknown ones are no status", () => {
  expect(fromWireStatus(0)).toBeUndefined();
  expect(fromWireStatus(9 as never)).toBeUndefined();
});
