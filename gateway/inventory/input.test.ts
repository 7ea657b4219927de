import { createKey } from "../accounts/keys/key-format.ts";
import { acceptRequestId } from "../http/request.ts";
import { fingerprintOf, readIdempotencyKey } from "./input.ts";

test("an API key is no Idempotency-Key, bare or quoted, because those are stored and sent on", () => {
  const key = createKey("live", "p".repeat(32));
  for (const header of [key, `"${key}"`, `order-${key}`]) {
    expect(() => readIdempotencyKey({ "idempotency-key": header })).toThrow("Idempotency-Key must not be an API key.");
  }
  for (const name of ["ps_order:7", "groups_42_7", "ops_2026_0001"]) {
    expect(readIdempotencyKey({ "idempotency-key": name })).toBe(name);
  }
});

test("a request id that holds an API key is replaced by one of the gateway", () => {
  expect(acceptRequestId(createKey("live", "p".repeat(32)))).not.toContain("ps_");
  expect(acceptRequestId("order-7")).toBe("order-7");
});

test("an update without a reason keeps the fingerprint that gateways without reasons recorded", () => {
  const update = { petId: 7n, quantity: 5, precondition: undefined, reason: undefined };
  expect(fingerprintOf("updateInventory", [update])).toBe("lTh-aPmC6f-HjbpWaBNL747gUCx4mEhRPrjNXmW5PDM");
  const all = [undefined, "a", "b"].map((reason) => fingerprintOf("updateInventory", [{ ...update, reason }]));
  expect(new Set(all).size).toBe(3);
});
