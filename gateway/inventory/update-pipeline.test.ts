import { EventEmitter } from "node:events";
import type { ApplyUpdatesRequest, ApplyUpdatesResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { NotDoneError } from "./status.ts";
import { UpdatePipeline } from "./update-pipeline.ts";

const { jest } = import.meta;

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

  take(): void {
    this.emit("metadata");
  }

  sayDraining(): void {
    this.emit("data", { results: [], draining: true } satisfies ApplyUpdatesResponse);
  }
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

function open(timeoutMs = 1_000) {
  const streams: FakeStream[] = [];
  const pipeline = new UpdatePipeline(() => {
    const stream = new FakeStream();
    streams.push(stream);
    return stream as never;
  }, timeoutMs);
  return { pipeline, streams };
}

test("every update goes over a stream that is still open, whenever the service says that it drains", async () => {
  const { pipeline, streams } = open();
  const submit = (petId: bigint) => void pipeline.submit({ petId, quantity: 1 }).catch(() => {});

  submit(1n);
  streams[0]!.take();
  await turn();
  submit(2n); // gathered before the service says that it drains
  streams[0]!.sayDraining();
  submit(3n); // submitted after that
  streams[1]!.take();
  await turn();
  streams[1]!.sayDraining(); // while nothing is gathered
  submit(4n);
  streams[2]!.take();
  await turn();
  expect(streams.map(({ petIds, isEnded }) => ({ petIds, isEnded }))).toEqual([
    { petIds: [1n, 2n], isEnded: true },
    { petIds: [3n], isEnded: true },
    { petIds: [4n], isEnded: false },
  ]);
  pipeline.close();
});

test("updates are sent again when their stream breaks before the service accepted it, and not when it breaks later", async () => {
  const { pipeline, streams } = open();
  const broken = Object.assign(new Error("gone"), { code: 14 });
  const first = pipeline.submit({ petId: 1n, quantity: 1 });
  streams[0]!.emit("error", broken);
  const second = pipeline.submit({ petId: 2n, quantity: 1 });
  streams[1]!.take();
  await turn();
  expect(streams.map(({ petIds }) => petIds)).toEqual([[], [1n, 2n]]);
  streams[1]!.emit("error", broken);
  await expect(Promise.allSettled([first, second])).resolves.toMatchObject([{ reason: broken }, { reason: broken }]);
  expect(streams).toHaveLength(2);

  const third = pipeline.submit({ petId: 3n, quantity: 1 });
  streams[2]!.emit("error", broken);
  streams[3]!.emit("error", broken); // the second failure reaches the caller
  await expect(third).rejects.toBeInstanceOf(NotDoneError);
  expect(streams).toHaveLength(4);
  pipeline.close();
});

test("an update that has timed out is not sent later", async () => {
  const { pipeline, streams } = open(1);
  await expect(pipeline.submit({ petId: 1n, quantity: 1 })).rejects.toMatchObject({ code: 4 });
  streams[0]!.take();
  await turn();
  expect(streams[0]!.petIds).toEqual([]);
  pipeline.close();
});

describe("the deadline of an update", () => {
  beforeEach(() => void jest.useFakeTimers({ doNotFake: ["setImmediate"] }));
  afterEach(() => void jest.useRealTimers());

  test("counts from the arrival of its caller, also when updates with more time were sent before it", async () => {
    const { pipeline, streams } = open(1_000);
    const ended: string[] = [];
    const submit = (name: string, waitedMs: number) =>
      pipeline
        .submit({ petId: 1n, quantity: 1 }, performance.now() - waitedMs)
        .catch(({ code }) => void ended.push(`${name} ${code}`));
    void submit("new", 0);
    streams[0]!.take();
    void submit("held", 900);
    await turn();
    await jest.advanceTimersByTimeAsync(150);
    expect(ended).toEqual(["held 4"]);
    await jest.advanceTimersByTimeAsync(900);
    expect(ended).toEqual(["held 4", "new 4"]);
    pipeline.close();
  });

  test("is told to the service as the time that is left, and an update without any is not sent", async () => {
    const { pipeline, streams } = open(1_000);
    const sent: ApplyUpdatesRequest[] = [];
    void pipeline.submit({ petId: 1n, quantity: 1 }, performance.now() - 400).catch(() => {});
    streams[0]!.write = (request) => void sent.push(request);
    streams[0]!.take();
    await turn();
    void pipeline.submit({ petId: 2n, quantity: 1 }, performance.now() - 999).catch(() => {});
    const late = pipeline.submit({ petId: 3n, quantity: 1 }, performance.now() - 1_000);
    await expect(late).rejects.toMatchObject({ code: 4 });
    await turn();
    const updates = sent.flatMap((request) => request.updates);
    expect(updates).toMatchObject([
      { petId: 1n, timeoutMs: 600 },
      { petId: 2n, timeoutMs: 1 },
    ]);
    expect(pipeline.unknown).toBe(0);
    pipeline.close();
  });
});

test("an update is never sent over a stream that is not accepted, even by a turn that began on the previous stream", async () => {
  const { pipeline, streams } = open();
  const broken = Object.assign(new Error("gone"), { code: 14 });
  const first = pipeline.submit({ petId: 1n, quantity: 1 });
  streams[0]!.take();
  const second = pipeline.submit({ petId: 2n, quantity: 1 }); // waits for the end of the turn
  const both = Promise.allSettled([first, second]);
  streams[0]!.emit("error", broken);
  void pipeline.submit({ petId: 3n, quantity: 1 }).catch(() => {});
  await turn();
  await expect(both).resolves.toMatchObject([{ reason: broken }, { reason: expect.any(NotDoneError) }]);
  expect(streams[1]!.petIds).toEqual([]);
  streams[1]!.emit("error", broken);
  streams[2]!.take();
  expect(streams[2]!.petIds).toEqual([3n]);
  pipeline.close();
});

test("a closed pipeline opens no stream, and an unreadable entry fails its own caller alone", async () => {
  const { pipeline, streams } = open();
  const [odd, good] = [1n, 2n].map((petId) => pipeline.submit({ petId, quantity: 1 }));
  streams[0]!.take();
  const item = (petId: bigint, status: number) => ({ petId, quantity: 1, status, revision: 1n });
  const results = [
    { id: 1, item: item(1n, 9), code: 0, message: "", reason: "" },
    { id: 2, item: item(2n, 1), code: 0, message: "", reason: "" },
  ];
  streams[0]!.emit("data", { results, draining: true });
  await expect(odd).rejects.toMatchObject({ code: 13 });
  await expect(good).resolves.toMatchObject({ petId: 2n });
  const late = pipeline.submit({ petId: 3n, quantity: 1 });
  pipeline.close();
  const broken = Object.assign(new Error("cancelled"), { code: 1 });
  streams[1]!.emit("error", broken);
  await expect(late).rejects.toBe(broken);
  expect(streams).toHaveLength(2);
});

describe("an update counts as unknown", () => {
  const result = (id: number, code: number, reason: string) => ({ id, item: undefined, code, message: "", reason });

  test("when its stream breaks after it was sent, and not before", async () => {
    const { pipeline, streams } = open();
    const broken = Object.assign(new Error("gone"), { code: 14 });
    const sent = pipeline.submit({ petId: 1n, quantity: 1 });
    streams[0]!.take();
    const unsent = pipeline.submit({ petId: 2n, quantity: 1 }); // waits for the end of the turn
    streams[0]!.emit("error", broken);
    await Promise.allSettled([sent, unsent]);
    expect(pipeline.unknown).toBe(1);
    const never = pipeline.submit({ petId: 3n, quantity: 1 });
    streams[1]!.emit("error", broken);
    streams[2]!.emit("error", broken);
    await Promise.allSettled([never]);
    expect(pipeline.unknown).toBe(1);
    pipeline.close();
  });

  test("when no result came in time, unless it was never sent", async () => {
    const { pipeline, streams } = open(1);
    await Promise.allSettled([pipeline.submit({ petId: 1n, quantity: 1 })]);
    expect(pipeline.unknown).toBe(0);
    streams[0]!.take();
    const sent = pipeline.submit({ petId: 2n, quantity: 1 });
    await turn();
    await expect(sent).rejects.toMatchObject({ code: 4 });
    expect(streams[0]!.petIds).toEqual([2n]);
    expect(pipeline.unknown).toBe(1);
    pipeline.close();
  });

  test("when the service says so, and not for its refusals", async () => {
    const { pipeline, streams } = open();
    const all = [1n, 2n, 3n, 4n, 5n].map((petId) => pipeline.submit({ petId, quantity: 1 }));
    streams[0]!.take();
    const results = [
      result(1, 14, "OUTCOME_UNKNOWN"),
      result(2, 13, "INTERNAL"),
      result(3, 14, "STOCK_UNAVAILABLE"),
      result(4, 4, "DEADLINE_PASSED"),
      result(5, 5, "ENTRY_NOT_FOUND"),
    ];
    streams[0]!.emit("data", { results, draining: false });
    await Promise.allSettled(all);
    expect(pipeline.unknown).toBe(2);
    pipeline.close();
  });
});

test("an update that waited for its stream is not sent when its caller has left meanwhile", async () => {
  const { pipeline, streams } = open();
  let isWanted = true;
  const left = pipeline.submit({ petId: 1n, quantity: 1 }, undefined, () => isWanted).catch((error) => error);
  void pipeline.submit({ petId: 2n, quantity: 1 }).catch(() => {});
  await turn();
  isWanted = false;
  streams[0]!.take();
  await turn();
  expect(streams[0]!.petIds).toEqual([2n]);
  expect(await left).toBeInstanceOf(NotDoneError);
  pipeline.close();
});
