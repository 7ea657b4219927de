// The service with its join rule broken on purpose: a question joins the read of the head that is under way instead
// of the next one. Reads are made longer, because they are else over before a write is acknowledged. Each answer is
// delayed at random, because gateways that get theirs at the same time ask again at the same time, and none joins late.
import { setTimeout as delay } from "node:timers/promises";
import { SharedRead } from "../../runtime/shared-read.ts";

const { next } = SharedRead.prototype;
const running = new WeakMap<object, Promise<unknown>>();
SharedRead.prototype.next = async function () {
  const read = running.get(this) ?? prolonged(next.call(this)).finally(() => running.delete(this));
  running.set(this, read);
  const result = await read;
  await delay(Math.random() * 20);
  return result;
};

async function prolonged<T>(read: Promise<T>): Promise<T> {
  const result = await read;
  await delay(20);
  return result;
}

await import("../../inventory-svc/main.ts");
