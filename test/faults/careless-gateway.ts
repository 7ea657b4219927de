// The gateway with a fault in requests for many updates: it leaves the last update out and answers as if it were done.
import { ChangeSender } from "../../client/change-sender.ts";
import type { Changed } from "../../client/index.ts";

const { send } = ChangeSender.prototype;
ChangeSender.prototype.send = async function (request, caller) {
  const left = request.changes.slice(0, -1);
  if (left.length === 0 || Math.random() < 0.9) return await send.call(this, request, caller);
  const outcomes = await send.call(this, { ...request, changes: left }, caller);
  const { petId, quantity } = request.changes.at(-1) as Changed;
  return [...outcomes, { petId, quantity, status: "available", revision: 1n, replayed: false }];
};

await import("../../gateway/main.ts");
