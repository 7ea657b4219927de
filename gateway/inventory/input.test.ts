import { createKey } from "../accounts/keys/key-format.ts";
import { requestId } from "../http/request.ts";
import { readIdempotencyKey } from "./input.ts";

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
  expect(requestId(createKey("live", "p".repeat(32)))).not.toContain("ps_");
  expect(requestId("order-7")).toBe("order-7");
});
