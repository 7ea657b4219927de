import { EventEmitter } from "node:events";
import type { ApplyUpdatesRequest, ApplyUpdatesResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { UpdatePipeline } from "./update-pipeline.ts";

/** Stands for a stream to the service, so that the moment of each message can be chosen. */
class FakeStream extends EventEmitter {
  readonly petIds: bigint[] = [];
  isEnded = false;

  write({ updates }: ApplyUpdatesRequest): void {
    if (this.isEnded) throw new Error("written after its end");
    this.petIds.push(...updates.map(({ petId }) => petId));
  }

  end(): void {
    this.isEnded = true;
  }

  cancel(): void {}

  sayDraining(): void {
    this.emit("data", { results: [], draining: true } satisfies ApplyUpdatesResponse);
  }
}

test("every update goes over a stream that is still open, whenever the service says that it drains", async () => {
  const streams: FakeStream[] = [];
  const pipeline = new UpdatePipeline(() => {
    const stream = new FakeStream();
    streams.push(stream);
    return stream as never;
  }, 1_000);
  const submit = (petId: bigint) => void pipeline.submit({ petId, quantity: 1 }).catch(() => {});
  const turn = () => new Promise((resolve) => setImmediate(resolve));

  submit(1n);
  await turn();
  submit(2n); // gathered before it is said
  streams[0]!.sayDraining();
  submit(3n); // and after
  await turn();
  streams[1]!.sayDraining(); // with nothing gathered
  submit(4n);
  await turn();
  expect(streams.map(({ petIds, isEnded }) => ({ petIds, isEnded }))).toEqual([
    { petIds: [1n, 2n], isEnded: true },
    { petIds: [3n], isEnded: true },
    { petIds: [4n], isEnded: false },
  ]);
  pipeline.close();
});
