import { EventEmitter } from "node:events";
import type { ApplyUpdatesRequest, ApplyUpdatesResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { maxSlots } from "./slots.ts";
import { NotDoneError } from "./status.ts";
import { UpdatePipeline } from "./update-pipeline.ts";
import type { Update } from "./updates.ts";

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

/** @param timeoutMs how long a caller waits, from its arrival */
function open(timeoutMs = 1_000) {
  const streams: FakeStream[] = [];
  const pipeline = new UpdatePipeline(() => {
    const stream = new FakeStream();
    streams.push(stream);
    return stream as never;
  });
  /** Submits one update. Rejects with the error that is its outcome. */
  const submit = async (update: Update, arrivedMs = performance.now(), isWanted?: () => boolean) => {
    const [outcome] = await pipeline.submit({ updates: [update] }, arrivedMs + timeoutMs, isWanted);
    if (outcome instanceof Error) throw outcome;
    return outcome!;
  };
  return { pipeline, streams, submit };
}

test("every update goes over a stream that is still open, whenever the service says that it drains", async () => {
  const { pipeline, streams, submit } = open();
  const send = (petId: bigint) => void submit({ petId, quantity: 1 }).catch(() => {});

  send(1n);
  streams[0]!.take();
  await turn();
  send(2n); // gathered before the service says that it drains
  streams[0]!.sayDraining();
  send(3n); // submitted after that
  streams[1]!.take();
  await turn();
  streams[1]!.sayDraining(); // while nothing is gathered
  send(4n);
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
  const { pipeline, streams, submit } = open();
  const broken = Object.assign(new Error("gone"), { code: 14 });
  const first = submit({ petId: 1n, quantity: 1 });
  streams[0]!.emit("error", broken);
  const second = submit({ petId: 2n, quantity: 1 });
  streams[1]!.take();
  await turn();
  expect(streams.map(({ petIds }) => petIds)).toEqual([[], [1n, 2n]]);
  streams[1]!.emit("error", broken);
  // No NotDoneErrors: they were sent, so they may have happened.
  const reasons = await Promise.all([first, second].map((sent) => sent.catch((error) => error)));
  for (const reason of reasons) expect(reason).toBe(broken);
  expect(streams).toHaveLength(2);

  const third = submit({ petId: 3n, quantity: 1 });
  streams[2]!.emit("error", broken);
  streams[3]!.emit("error", broken); // the second failure reaches the caller
  await expect(third).rejects.toBeInstanceOf(NotDoneError);
  expect(streams).toHaveLength(4);
  pipeline.close();
});

test("an update that has timed out is not sent later", async () => {
  const { pipeline, streams, submit } = open(1);
  await expect(submit({ petId: 1n, quantity: 1 })).rejects.toMatchObject({ code: 4 });
  streams[0]!.take();
  await turn();
  expect(streams[0]!.petIds).toEqual([]);
  pipeline.close();
});

describe("the deadline of an update", () => {
  beforeEach(() => void jest.useFakeTimers({ doNotFake: ["setImmediate"] }));
  afterEach(() => void jest.useRealTimers());

  test("the deadline of an update counts from the arrival of its caller, also when updates with more time were sent before it", async () => {
    const { pipeline, streams, submit } = open(1_000);
    const ended: string[] = [];
    const send = (name: string, waitedMs: number) =>
      submit({ petId: 1n, quantity: 1 }, performance.now() - waitedMs).catch(
        ({ code }) => void ended.push(`${name} ${code}`),
      );
    void send("new", 0);
    streams[0]!.take();
    void send("held", 900);
    await turn();
    await jest.advanceTimersByTimeAsync(150);
    expect(ended).toEqual(["held 4"]);
    await jest.advanceTimersByTimeAsync(900);
    expect(ended).toEqual(["held 4", "new 4"]);
    pipeline.close();
  });

  test("the deadline of an update is told to the service as the time that is left, and an update without any is not sent", async () => {
    const { pipeline, streams, submit } = open(1_000);
    const sent: ApplyUpdatesRequest[] = [];
    void submit({ petId: 1n, quantity: 1 }, performance.now() - 400).catch(() => {});
    streams[0]!.write = (request) => void sent.push(request);
    streams[0]!.take();
    await turn();
    void submit({ petId: 2n, quantity: 1 }, performance.now() - 999).catch(() => {});
    const late = submit({ petId: 3n, quantity: 1 }, performance.now() - 1_000);
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

  test("an update that waited until its stream was accepted is sent with the time that is left by then", async () => {
    const { pipeline, streams, submit } = open(1_000);
    const sent: ApplyUpdatesRequest[] = [];
    void submit({ petId: 1n, quantity: 1 }).catch(() => {});
    streams[0]!.write = (request) => void sent.push(request);
    await jest.advanceTimersByTimeAsync(300);
    streams[0]!.take();
    expect(sent.flatMap((request) => request.updates)).toMatchObject([{ petId: 1n, timeoutMs: 700 }]);
    pipeline.close();
  });
});

test("an update is never sent over a stream that is not accepted, even by a turn that began on the previous stream", async () => {
  const { pipeline, streams, submit } = open();
  const broken = Object.assign(new Error("gone"), { code: 14 });
  const first = submit({ petId: 1n, quantity: 1 });
  streams[0]!.take();
  const second = submit({ petId: 2n, quantity: 1 }); // waits for the end of the turn
  const both = Promise.allSettled([first, second]);
  streams[0]!.emit("error", broken);
  void submit({ petId: 3n, quantity: 1 }).catch(() => {});
  await turn();
  await expect(both).resolves.toMatchObject([{ reason: broken }, { reason: expect.any(NotDoneError) }]);
  expect(streams[1]!.petIds).toEqual([]);
  streams[1]!.emit("error", broken);
  streams[2]!.take();
  expect(streams[2]!.petIds).toEqual([3n]);
  pipeline.close();
});

test("a closed pipeline opens no stream, and an unreadable entry fails its own caller alone", async () => {
  const { pipeline, streams, submit } = open();
  const [odd, good] = [1n, 2n].map((petId) => submit({ petId, quantity: 1 }));
  streams[0]!.take();
  const item = (petId: bigint, status: number) => ({ petId, quantity: 1, status, revision: 1n });
  const results = [
    { id: 1, item: item(1n, 9), code: 0, message: "", reason: "" },
    { id: 2, item: item(2n, 1), code: 0, message: "", reason: "" },
  ];
  streams[0]!.emit("data", { results, draining: true });
  await expect(odd).rejects.toMatchObject({ code: 13 });
  await expect(good).resolves.toMatchObject({ petId: 2n });
  expect(pipeline.unknown).toBe(1); // the odd one
  const late = submit({ petId: 3n, quantity: 1 });
  pipeline.close();
  const broken = Object.assign(new Error("cancelled"), { code: 1 });
  streams[1]!.emit("error", broken);
  await expect(late).rejects.toBe(broken);
  await expect(submit({ petId: 4n, quantity: 1 })).rejects.toMatchObject({ code: 8 });
  expect(streams).toHaveLength(2);
});

describe("unknown outcomes", () => {
  const result = (id: number, code: number, reason: string) => ({ id, item: undefined, code, message: "", reason });

  test("an update counts as unknown when its stream breaks after it was sent, and not before", async () => {
    const { pipeline, streams, submit } = open();
    const broken = Object.assign(new Error("gone"), { code: 14 });
    const sent = submit({ petId: 1n, quantity: 1 });
    streams[0]!.take();
    const unsent = submit({ petId: 2n, quantity: 1 }); // waits for the end of the turn
    streams[0]!.emit("error", broken);
    await Promise.allSettled([sent, unsent]);
    expect(pipeline.unknown).toBe(1);
    const never = submit({ petId: 3n, quantity: 1 });
    streams[1]!.emit("error", broken);
    streams[2]!.emit("error", broken);
    await Promise.allSettled([never]);
    expect(pipeline.unknown).toBe(1);
    pipeline.close();
  });

  test("an update counts as unknown when no result came in time, unless it was never sent", async () => {
    const { pipeline, streams, submit } = open(1);
    await Promise.allSettled([submit({ petId: 1n, quantity: 1 })]);
    expect(pipeline.unknown).toBe(0);
    streams[0]!.take();
    const sent = submit({ petId: 2n, quantity: 1 });
    await turn();
    await expect(sent).rejects.toMatchObject({ code: 4 });
    expect(streams[0]!.petIds).toEqual([2n]);
    expect(pipeline.unknown).toBe(1);
    pipeline.close();
  });

  test("an update counts as unknown when the service says so, and not for its refusals", async () => {
    const { pipeline, streams, submit } = open();
    const all = [1n, 2n, 3n, 4n, 5n].map((petId) => submit({ petId, quantity: 1 }));
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
  const { pipeline, streams, submit } = open();
  let isWanted = true;
  const left = submit({ petId: 1n, quantity: 1 }, undefined, () => isWanted).catch((error) => error);
  void submit({ petId: 2n, quantity: 1 }).catch(() => {});
  await turn();
  isWanted = false;
  streams[0]!.take();
  await turn();
  expect(streams[0]!.petIds).toEqual([2n]);
  expect(await left).toBeInstanceOf(NotDoneError);
  pipeline.close();
});

test("the updates of a request go out in one message, and it resolves with an outcome for each after the last one", async () => {
  const { pipeline, streams } = open();
  const sent: ApplyUpdatesRequest[] = [];
  const updates = [1n, 2n, 3n].map((petId) => ({ petId, quantity: 1 }));
  const outcomes = pipeline.submit({ updates }, performance.now() + 1_000);
  streams[0]!.write = (request) => void sent.push(request);
  streams[0]!.take();
  expect(sent.map((message) => message.updates.map(({ petId }) => petId))).toEqual([[1n, 2n, 3n]]);
  const [first, second, third] = sent[0]!.updates.map(({ id, petId }) => {
    return { id, item: { petId, quantity: 1, status: 1, revision: 7n }, code: 0, message: "", reason: "" };
  });
  streams[0]!.emit("data", { results: [third, first], draining: false });
  const refused = { ...second!, item: undefined, code: 5, reason: "ENTRY_NOT_FOUND" };
  streams[0]!.emit("data", { results: [refused], draining: false });
  await expect(outcomes).resolves.toMatchObject([{ petId: 1n }, { code: 5 }, { petId: 3n }]);
  pipeline.close();
});

test("a request with more updates than there is room for is refused as a whole", async () => {
  const { pipeline, streams } = open();
  const updates = Array.from({ length: maxSlots }, (_, i) => ({ petId: BigInt(i), quantity: 1 }));
  void pipeline.submit({ updates: updates.slice(1) }, performance.now() + 1_000);
  const two = await pipeline.submit({ updates: updates.slice(0, 2) }, performance.now() + 1_000);
  expect(two).toMatchObject([{ code: 8 }, { code: 8 }]);
  streams[0]!.take();
  expect(streams[0]!.petIds).toHaveLength(maxSlots - 1);
  pipeline.close();
});
