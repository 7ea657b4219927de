import { randomBytes } from "node:crypto";
import { EventEmitter } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import type { CheckInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { CheckSession } from "./check-session.ts";

const { jest } = import.meta;

/** Stands for a stream to the service, so that its messages can be chosen. */
class FakeStream extends EventEmitter {
  write(): void {}
  cancel(): void {}
  say(message: Partial<CheckInventoryResponse>): void {
    this.emit("data", {
      epoch: "e",
      revision: 2n,
      changed: [],
      removedPetIds: [],
      removedRevisions: [],
      more: false,
      reset: false,
      ...message,
    });
  }
}

test("an answer that arrives while the thread is busy is taken, however late that is", async () => {
  const stream = new FakeStream();
  const session = new CheckSession(() => stream as never, 20);
  const answer = session.changesAfter({ epoch: "e", revision: 1n });
  randomBytes(1, () => stream.say({}));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
  expect(await answer).toMatchObject({ kind: "changes" });
  session.close();
});

test("a check whose stream stays silent always ends, whichever of two clocks is ahead", async () => {
  for (let i = 0; i < 100; i++) {
    const session = new CheckSession(() => new FakeStream() as never, 20);
    const ended = session.changesAfter({ epoch: "e", revision: 1n }).catch(({ code }) => code);
    expect(await Promise.race([ended, delay(500, "it has not ended")])).toBe(status.DEADLINE_EXCEEDED);
    session.close();
  }
});

test("each part of an answer but the last is reported to the list, whose readers wait for it", () => {
  const stream = new FakeStream();
  const session = new CheckSession(() => stream as never, 1_000);
  let parts = 0;
  void session.changesAfter({ epoch: "e", revision: 1n }, undefined, () => {
    parts += 1;
  });
  stream.say({ more: true });
  stream.say({ more: true });
  stream.say({});
  expect(parts).toBe(2);
  session.close();
});

test.each([[false], [true]])(
  "an entry with an unknown status fails its check and no other (more messages follow: %s)",
  async (more) => {
    const stream = new FakeStream();
    const session = new CheckSession(() => stream as never, 1_000);
    const ask = () => session.changesAfter({ epoch: "e", revision: 1n });
    const first = ask();
    stream.say({ changed: [{ petId: 1n, quantity: 1, status: 99 as never, revision: 2n }], more });
    if (more) stream.say({ changed: [{ petId: 2n, quantity: 1, status: 1, revision: 2n }] });
    await expect(first).rejects.toThrow("does not understand");
    const second = ask();
    stream.say({ changed: [{ petId: 3n, quantity: 1, status: 1, revision: 2n }] });
    expect(await second).toMatchObject({ kind: "changes", changed: [{ petId: 3n }] });
    session.close();
  },
);

describe("the deadline of a check", () => {
  beforeEach(() => void jest.useFakeTimers({ doNotFake: ["setImmediate"] }));
  afterEach(() => void jest.useRealTimers());

  const timeoutMs = 1_000;
  const position = { epoch: "e", revision: 1n };
  const ask = () => {
    const stream = new FakeStream();
    const session = new CheckSession(() => stream as never, timeoutMs);
    const answer = session.changesAfter(position);
    answer.catch(() => {});
    return { stream, session, answer };
  };
  const late = "did not answer a check in time";

  test("the deadline of a check applies to each message, so that an answer in many parts may take longer", async () => {
    const { stream, session, answer } = ask();
    for (let part = 0; part < 5; part++) {
      jest.advanceTimersByTime(timeoutMs - 1);
      stream.say({ changed: [{ petId: BigInt(part), quantity: 1, status: 1, revision: 2n }], more: true });
    }
    stream.say({});
    expect(await answer).toMatchObject({ kind: "changes", changed: { length: 5 } });
    session.close();
  });

  test("the deadline of a check applies to an answer that stops in the middle", async () => {
    const { stream, session, answer } = ask();
    stream.say({ more: true });
    jest.advanceTimersByTime(timeoutMs);
    await expect(answer).rejects.toThrow(late);
    session.close();
  });

  test("the deadline of a check starts with its own question, not with the previous one", async () => {
    const { stream, session, answer } = ask();
    jest.advanceTimersByTime(timeoutMs - 1);
    stream.say({});
    await answer;
    const next = session.changesAfter(position);
    next.catch(() => {});
    jest.advanceTimersByTime(timeoutMs - 1);
    stream.say({ revision: 3n });
    expect(await next).toMatchObject({ position: { revision: 3n } });
    jest.advanceTimersByTime(10 * timeoutMs); // no check waits, so the stream stays open
    const last = session.changesAfter(position);
    stream.say({ revision: 4n });
    expect(await last).toMatchObject({ position: { revision: 4n } });
    session.close();
  });

  test("the deadline of a check does not depend on the clock of the machine, which can be set back", async () => {
    jest.setSystemTime(1_800_000_000_000);
    const { session, answer } = ask();
    jest.setSystemTime(1_700_000_000_000);
    jest.advanceTimersByTime(timeoutMs);
    await expect(answer).rejects.toThrow(late);
    session.close();
  });

  test("the deadline of a check covers both attempts together when the stream breaks", async () => {
    const streams = [new FakeStream(), new FakeStream()];
    const session = new CheckSession(() => streams.shift() as never, timeoutMs);
    const [first] = streams;
    const answer = session.changesAfter(position);
    answer.catch(() => {});
    jest.advanceTimersByTime(timeoutMs - 1);
    first!.emit("end");
    jest.advanceTimersByTime(1);
    await expect(answer).rejects.toThrow(late);
    session.close();
  });

  test("the deadline of a check keeps a late answer from being taken for that of the next question", async () => {
    const [old, current] = [new FakeStream(), new FakeStream()];
    const streams = [old, current];
    const session = new CheckSession(() => streams.shift() as never, timeoutMs);
    const given = session.changesAfter(position);
    jest.advanceTimersByTime(timeoutMs);
    await expect(given).rejects.toThrow(late);
    const next = session.changesAfter(position);
    old.say({ revision: 7n });
    current.say({ revision: 8n });
    expect(await next).toMatchObject({ position: { revision: 8n } });
    session.close();
  });

  test("the deadline of a check has no effect for a question that could not be sent", async () => {
    const session = new CheckSession(() => {
      throw new Error("the channel is closed");
    }, timeoutMs);
    await expect(session.changesAfter(position)).rejects.toThrow("the channel is closed");
    jest.advanceTimersByTime(timeoutMs);
    await expect(session.changesAfter(position)).rejects.toThrow("the channel is closed");
    session.close();
    await expect(session.changesAfter(position)).rejects.toMatchObject({ code: 1 });
    expect(jest.getTimerCount()).toBe(0);
  });

  test("the deadline of a check belongs to one question at a time: a second one is refused and does not take its answer", async () => {
    const { stream, session, answer } = ask();
    await expect(session.changesAfter(position)).rejects.toThrow("under way");
    stream.say({ revision: 5n });
    expect(await answer).toMatchObject({ position: { revision: 5n } });
    session.close();
  });
});
