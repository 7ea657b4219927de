import { EventEmitter } from "node:events";
import { setTimeout } from "node:timers/promises";
import type { CheckInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { CheckSession } from "./check-session.ts";

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
      more: false,
      reset: false,
      ...message,
    });
  }
}

test.each([[false], [true]])(
  "an entry of a kind that the gateway does not know fails its check and no other (more to come: %s)",
  async (more) => {
    const stream = new FakeStream();
    const session = new CheckSession(() => stream as never, 1_000);
    const ask = () => session.changesAfter({ epoch: "e", revision: 1n });
    const [first, second] = [ask(), ask()];
    first.catch(() => {});
    stream.say({ changed: [{ petId: 1n, quantity: 1, status: 99 as never, revision: 2n }], more });
    if (more) stream.say({ changed: [{ petId: 2n, quantity: 1, status: 1, revision: 2n }] });
    stream.say({ changed: [{ petId: 3n, quantity: 1, status: 1, revision: 2n }] });
    await expect(first).rejects.toThrow("does not understand");
    expect(await second).toMatchObject({ kind: "changes", changed: [{ petId: 3n }] });
    session.close();
  },
);

describe("the deadline of a check", () => {
  const { now } = Date;
  let nowMs = 0;
  beforeAll(() => {
    Date.now = () => nowMs;
  });
  afterAll(() => {
    Date.now = now;
  });

  const timeoutMs = 20;
  const ask = () => {
    const stream = new FakeStream();
    const session = new CheckSession(() => stream as never, timeoutMs);
    const answer = session.changesAfter({ epoch: "e", revision: 1n });
    answer.catch(() => {});
    return { stream, session, answer };
  };
  /** Until a timer that was set before has gone off, as late as it may. */
  const timers = () => setTimeout(5 * timeoutMs);

  test("is for silence: an answer in many parts may take longer as a whole", async () => {
    const { stream, session, answer } = ask();
    for (let part = 0; part < 5; part++) {
      nowMs += timeoutMs - 1;
      stream.say({ changed: [{ petId: BigInt(part), quantity: 1, status: 1, revision: 2n }], more: true });
      await timers();
    }
    stream.say({});
    expect(await answer).toMatchObject({ kind: "changes", changed: { length: 5 } });
    session.close();
  });

  test("passes for an answer that stops in the middle", async () => {
    const { stream, session, answer } = ask();
    stream.say({ more: true });
    nowMs += timeoutMs + 1;
    await expect(answer).rejects.toThrow("did not answer a check in time");
    session.close();
  });
});
