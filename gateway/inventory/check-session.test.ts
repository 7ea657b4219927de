import { EventEmitter } from "node:events";
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
