// The service with its join rule broken on purpose: a question joins the read of the counter that is under way instead
// of the next one. Reads are delayed at random, because without delays they are over before a write is acknowledged.
import { SharedRead } from "../../runtime/shared-read.ts";

const { next } = SharedRead.prototype;
const running = new WeakMap<object, Promise<unknown>>();
SharedRead.prototype.next = function () {
  const read = running.get(this) ?? delayed(next.call(this)).finally(() => running.delete(this));
  running.set(this, read);
  return read;
};

async function delayed<T>(read: Promise<T>): Promise<T> {
  const result = await read;
  await new Promise((resolve) => setTimeout(resolve, Math.random() * 40));
  return result;
}

await import("../../inventory-svc/main.ts");
