import { once } from "node:events";
import { request as clientRequest, createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { Request, Response } from "express";
import { RateLimiterMemory } from "rate-limiter-flexible";
import type { Changed } from "../../../client/index.ts";
import { request } from "../../../test/support/http.ts";
import { suiteStack } from "../../../test/support/stack.ts";
import { until } from "../../../test/support/until.ts";
import { AccountGuard, keyedUpdateLimit } from "../../admission/account-guard.ts";
import { ApiError } from "../../http/api-error.ts";
import { takeBody } from "../../http/request-body.ts";
import { type RequestContext, setContext } from "../../http/request-context.ts";
import { writeError } from "../../http/respond.ts";
import { bulkUpdateInventory, type UpdateInventoryOptions } from "./update-handlers.ts";

const stack = suiteStack();
const perDay = keyedUpdateLimit(1_000);
const keyedUpdateGuard = new AccountGuard(perDay, new RateLimiterMemory(perDay), () => {});

type Parts = Omit<UpdateInventoryOptions, "bodyTimeoutMs" | "keyedUpdateGuard">;

/** Serves a handler with these parts. @returns its address */
async function serve(
  parts: Parts,
  more: Partial<RequestContext> = {},
  onHead: (incoming: IncomingMessage) => void | Promise<void> = () => {},
): Promise<string> {
  const handler = bulkUpdateInventory({ ...parts, keyedUpdateGuard, bodyTimeoutMs: 5_000 });
  const principal = { accountId: "acc_1", keyId: "key_1" };
  const context = Object.assign(more, { startedMs: performance.now(), principal }) as RequestContext;
  const server = createServer(async (incoming, response) => {
    setContext(response, context);
    takeBody(incoming);
    await onHead(incoming);
    const answered = handler(incoming as Request, response as Response, () => {}) as Promise<void>;
    answered.catch((error) => writeError(incoming, response, error));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  stack.defer(() => void server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Sends many updates to a handler with these parts. @returns the answer */
async function post(
  parts: Parts,
  updates: readonly object[],
  more: Partial<RequestContext> = {},
  onHead?: (incoming: IncomingMessage) => Promise<void>,
) {
  return request(await serve(parts, more, onHead), {
    method: "POST",
    path: "/",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(updates),
  });
}

/** Sends one update for each outcome, of the petIds 1, 2 and so on. @returns the answer */
function answerOf(...outcomes: (Changed | ApiError)[]) {
  const updates = outcomes.map((_, i) => ({ petId: i + 1, quantity: 5 }));
  return post(
    {
      stock: { update: async () => outcomes },
      admission: { isKeyKnownGood: () => true, reverifyKeyAndBan: async () => {} },
    },
    updates,
  );
}

const done = (petId: bigint): Changed => ({ petId, quantity: 5, status: "sold", revision: 7n, replayed: false });
const shown = (petId: number) => ({ petId, quantity: 5, status: "sold", etag: '"r7"' });
const failed = (petId: number, code: string, status: number) => {
  return { petId, error: { code, message: expect.any(String), status } };
};

test("updates with an unknown result are errors of their own beside the updates that were done", async () => {
  const [unavailable, timeout] = [new ApiError("service_unavailable"), new ApiError("timeout")];
  const answer = await answerOf(unavailable, done(2n), timeout, done(4n));
  expect(answer.status).toBe(200);
  expect(answer.json()).toEqual([failed(1, "service_unavailable", 503), shown(2), failed(3, "timeout", 504), shown(4)]);
});

test("an update with an unknown result is an error of its own beside a refusal, a known result", async () => {
  const answer = await answerOf(new ApiError("timeout"), new ApiError("not_found"));
  expect(answer.status).toBe(200);
  expect(answer.json()).toEqual([failed(1, "timeout", 504), failed(2, "not_found", 404)]);
});

test("updates of which no result is known have the first error for their answer", async () => {
  const answer = await answerOf(new ApiError("timeout"), new ApiError("service_unavailable"));
  expect(answer).toMatchObject({ status: 504, text: expect.stringContaining('"code":"timeout"') });
});

test("a repeat whose key cannot be looked up leaves the limits of the account in the answer", async () => {
  const limits = ["X-RateLimit-Limit", "60"];
  const context: Partial<RequestContext> = { limitHeaders: limits };
  const found: unknown[] = [];
  let isAway = false;
  const stock: UpdateInventoryOptions["stock"] = {
    update: async (_request, { mayRetry }) => {
      isAway = true;
      found.push(await mayRetry(), context.limitHeaders);
      return [done(1n)];
    },
  };
  const reverifyKeyAndBan = async () => {
    if (!isAway) return;
    context.limitHeaders = ["X-RateLimit-Limit", "600"];
    throw new ApiError("service_unavailable");
  };
  await post(
    { stock, admission: { isKeyKnownGood: () => true, reverifyKeyAndBan } },
    [{ petId: 1, quantity: 5 }],
    context,
  );
  expect(found).toEqual([false, limits]);
});

test("the deadline of updates whose body comes later counts from the arrival of the body", async () => {
  let completeMs = Number.NaN;
  const stock: UpdateInventoryOptions["stock"] = {
    update: async (_request, caller) => {
      completeMs = caller.completeMs;
      return [done(1n)];
    },
  };
  const head = Promise.withResolvers<void>();
  const address = await serve(
    { stock, admission: { isKeyKnownGood: () => true, reverifyKeyAndBan: async () => {} } },
    {},
    () => head.resolve(),
  );
  const sender = clientRequest(`http://${address}/`, {
    method: "POST",
    headers: { "content-type": "application/json" },
  });
  sender.flushHeaders();
  await head.promise;
  const sentMs = performance.now();
  sender.end('[{"petId":1,"quantity":5}]');
  await once(sender, "response");
  expect(completeMs).toBeGreaterThanOrEqual(sentMs);
});

test("updates that have come whole by their turn are done without another look at their key", async () => {
  const stock = { update: async () => [done(1n)] };
  const reverifyKeyAndBan = () => Promise.reject(new ApiError("service_unavailable"));
  const whole = (incoming: IncomingMessage) => until(() => incoming.complete);
  const answer = await post(
    { stock, admission: { isKeyKnownGood: () => true, reverifyKeyAndBan } },
    [{ petId: 1, quantity: 5 }],
    {},
    whole,
  );
  expect(answer).toMatchObject({ status: 200 });
});
