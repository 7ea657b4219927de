import { readFileSync } from "node:fs";
import { status } from "@grpc/grpc-js";
import type { ErrorReason } from "../../proto/reasons.ts";
import { refusalOf } from "../../test/support/grpc.ts";
import { ExpiredError, QueueFullError } from "../stock/group-commit.ts";
import { OutcomeUnknownError, StockUnavailableError, TooManyAtOnceError } from "../stock/stock-errors.ts";
import { asRetryable, RpcError, statusOfReason, toRpcError, toServiceError } from "./rpc-error.ts";

const secret = new Error("password s3cret");
const reasonsOf = Object.keys(statusOfReason) as ErrorReason[];

test("the contract lists every reason with its status, and no other", () => {
  const contract = readFileSync(new URL("../../proto/petstore/inventory/v1/inventory.proto", import.meta.url), "utf8");
  const listed = [...contract.matchAll(/^\/\/ {3}([A-Z_]+) +([A-Z_]+)(?: |$)/gm)].map(([, reason, code]) => [
    reason,
    code,
  ]);
  expect(listed).toEqual(reasonsOf.map((reason) => [reason, status[statusOfReason[reason]]]));
});

test.each<[unknown, ErrorReason]>([
  [new QueueFullError(), "QUEUE_FULL"],
  [new TooManyAtOnceError("watches"), "QUEUE_FULL"],
  [new ExpiredError(), "DEADLINE_PASSED"],
  [new StockUnavailableError(secret), "STOCK_UNAVAILABLE"],
  [new OutcomeUnknownError(secret), "OUTCOME_UNKNOWN"],
  [secret, "INTERNAL"],
  ["nonsense", "INTERNAL"],
])("%s becomes %p for the caller, without its cause", async (thrown, reason) => {
  const error = toRpcError(thrown);
  const sent = toServiceError(error);
  expect(await refusalOf(Promise.reject(sent))).toMatchObject({
    code: status[statusOfReason[reason]],
    reason,
    metadata: {},
  });
  expect(sent.message + sent.metadata.get("grpc-status-details-bin")).not.toContain("s3cret");
  expect(error.cause).toBe(thrown);
});

test("RetryInfo is given exactly where nothing has changed and the same call can succeed later", async () => {
  const offered: ErrorReason[] = [];
  for (const reason of reasonsOf) {
    const { retryDelayMs } = await refusalOf(Promise.reject(toServiceError(new RpcError(reason, "text"))));
    if (retryDelayMs !== undefined) offered.push(reason);
  }
  expect(offered).toEqual(["QUEUE_FULL", "STOCK_UNAVAILABLE"]);
});

test("a repeatable call keeps its result and errors, and offers a retry after an unknown outcome", async () => {
  expect(await asRetryable(Promise.resolve(7))).toBe(7);
  await expect(asRetryable(Promise.reject(secret))).rejects.toBe(secret);
  const unknown = asRetryable(Promise.reject(new OutcomeUnknownError(secret)));
  await expect(unknown).rejects.toMatchObject({ errorReason: "OUTCOME_UNKNOWN", isRetryable: true });
});

test("ResourceInfo names the entry exactly where an entry is missing or exists already", async () => {
  const named: [ErrorReason, string][] = [];
  for (const reason of reasonsOf) {
    const error = new RpcError(reason, "text", { metadata: { pet_id: "7" } });
    const { resource } = await refusalOf(Promise.reject(toServiceError(error)));
    if (resource !== undefined) named.push([reason, resource]);
  }
  const entry = "petstore.inventory.v1.InventoryItem 7";
  expect(named).toEqual([
    ["ENTRY_NOT_FOUND", entry],
    ["ENTRY_EXISTS", entry],
  ]);
});
