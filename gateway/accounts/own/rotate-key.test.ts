import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import type { Request, Response } from "express";
import { RateLimiterMemory } from "rate-limiter-flexible";
import { suiteStack } from "../../../test/support/stack.ts";
import { AccountGuard, keyedUpdateLimit } from "../../admission/account-guard.ts";
import { takeBody } from "../../http/request-body.ts";
import { type RequestContext, setContext } from "../../http/request-context.ts";
import { rotateOwnKey } from "./rotate-key.ts";

const stack = suiteStack();

test("a caller that leaves while its key is looked at again keeps its key", async () => {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  stack.defer(() => void server.close());
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.write("POST / HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n");
  const [request, response] = (await once(server, "request")) as [Request, Response];
  setContext(response, { principal: { keyId: "key_1", familyId: "key_1" } } as RequestContext);
  takeBody(request);
  const limit = keyedUpdateLimit(1_000);
  const rotate = import.meta.jest.fn(async () => "ended" as const);
  const handler = rotateOwnKey({
    admission: {
      reverifyKeyAndBan: async () => {
        socket.destroy();
        await once(response, "close");
      },
    },
    rotate,
    guard: new AccountGuard(limit, new RateLimiterMemory(limit), () => {}),
    onRotated: () => {},
    pepper: "p".repeat(32),
    keyEnv: "test",
    bodyTimeoutMs: 60_000,
  });
  const answered = handler(request, response, () => {});
  socket.write("{}");
  await expect(answered).rejects.toMatchObject({ message: "The caller has left." });
  expect(rotate).not.toHaveBeenCalled();
});
