// The gateway with a fault in requests for many updates: it leaves the last update out and answers as if it were done.
import { UpdatePipeline } from "../../gateway/inventory/update-pipeline.ts";

const { submit } = UpdatePipeline.prototype;
UpdatePipeline.prototype.submit = async function (request, ...more) {
  const left = request.updates.slice(0, -1);
  if (left.length === 0 || Math.random() < 0.9) return await submit.call(this, request, ...more);
  const outcomes = await submit.call(this, { ...request, updates: left }, ...more);
  const { petId, quantity } = request.updates.at(-1)!;
  return [...outcomes, { petId, quantity, status: "available", revision: 1n, isReplayed: false }];
};

await import("../../gateway/main.ts");
