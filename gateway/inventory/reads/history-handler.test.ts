import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import type { Request, Response } from "express";
import type { PastChange } from "../../../client/past-changes.ts";
import { ApiError } from "../../http/api-error.ts";
import { type RequestContext, setContext } from "../../http/request-context.ts";
import { PinnedBodies } from "../list/pinned-bodies.ts";
import { getInventoryHistory } from "./history-handler.ts";

test("an account reads at most half of the 20 histories at a time that the others leave", async () => {
  const asked: PromiseWithResolvers<readonly PastChange[]>[] = [];
  const handler = getInventoryHistory({
    stock: {
      history: () => {
        asked.push(Promise.withResolvers());
        return asked.at(-1)!.promise;
      },
    },
    admission: { reverifyKeyAndBan: async () => {} },
    pinnedBodies: new PinnedBodies(0),
    allowanceMs: 10_000,
  });
  /** Asks for a history. @returns the error code of the answer */
  const ask = async (accountId: string) => {
    const request = Object.assign(new IncomingMessage(new Socket()), { url: "/", params: { petId: "1" } });
    const response = new ServerResponse(request);
    setContext(response, { principal: { accountId }, arrivedMs: performance.now() } as RequestContext);
    return await Promise.resolve(handler(request as never as Request, response as never as Response, () => {})).catch(
      (error: ApiError) => [error.code, error.headers],
    );
  };
  const refused = ["service_unavailable", { "Retry-After": "1" }];
  const first = Array.from({ length: 10 }, () => ask("a"));
  expect(await ask("a")).toEqual(refused);
  const second = Array.from({ length: 5 }, () => ask("b"));
  expect(await ask("b")).toEqual(refused);
  expect(asked).toHaveLength(15);
  for (const { reject } of asked) reject(new ApiError("not_found"));
  expect((await Promise.all([...first, ...second])).map((answer) => (answer as unknown[])[0])).toEqual(
    Array(15).fill("not_found"),
  );
  const again = ask("a");
  expect(asked).toHaveLength(16);
  asked.at(-1)!.reject(new ApiError("not_found"));
  await again;
});
