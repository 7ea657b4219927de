import { EventEmitter, once } from "node:events";
import type { ApplyUpdatesRequest, ApplyUpdatesResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { noTracing } from "../../runtime/tracing.ts";
import { updateStream } from "./update-stream.ts";

/** Stands for a caller's stream, so that it can be one that takes no results. */
class FakeCall extends EventEmitter {
  readonly cancelled = false;
  readonly destroyed = false;
  readonly written: ApplyUpdatesResponse[] = [];
  #paused = false;
  sendMetadata(): void {}
  getPath = () => "/petstore.inventory.v1.InventoryService/ApplyUpdates";
  end(): void {}
  isPaused = () => this.#paused;
  pause(): void {
    this.#paused = true;
  }
  resume(): void {
    this.#paused = false;
  }
  write(message: ApplyUpdatesResponse): boolean {
    this.written.push(message);
    this.emit("written");
    return false;
  }
  send(...ids: number[]): void {
    const updates = ids.map((id) => ({ id, petId: 1n, quantity: -1, timeoutMs: 1_000 }));
    this.emit("data", { updates } as ApplyUpdatesRequest);
  }
}

test("a caller that takes no results is read no further until it does", async () => {
  const call = new FakeCall();
  const commits = { submit: () => Promise.reject(new Error("not asked")) };
  const draining = new AbortController().signal;
  updateStream({ commits, draining, onCall: () => {}, tracing: noTracing })(call as never);
  call.send(1, 2);
  await once(call, "written");
  call.send(3); // it was read already
  await once(call, "written");
  expect(call.written.map(({ results }) => results.map(({ id }) => id))).toEqual([[1, 2], [3]]);
  expect(call.isPaused()).toBe(true);
  expect(call.listenerCount("drain")).toBe(1);
  call.emit("drain");
  expect(call.isPaused()).toBe(false);
});
