import { setTimeout as delay } from "node:timers/promises";
import type { Response } from "undici";
import { until } from "../support/until.ts";
import type { ComposeProject } from "./compose-project.ts";

export interface Load extends AsyncDisposable {
  /** How often each outcome came: a status of a gateway or of the load balancer, or the code of a broken connection. */
  readonly reads: Readonly<Record<string, number>>;
  readonly updates: Readonly<Record<string, number>>;
  /** Resolves when all callers have got an answer since now. */
  answered(): Promise<void>;
  /** Ends it. @throws Error when an acknowledged update is not in the list */
  stop(): Promise<void>;
}

/** Callers that read the list, and callers that each write an entry of their own, without a pause but a short one. */
export function startLoad({ ask }: ComposeProject, key: string, petIds: readonly number[]): Load {
  const stopped = new AbortController();
  const reads: Record<string, number> = {};
  const updates: Record<string, number> = {};
  const acknowledged = new Map<number, number>();
  const attempted = new Map<number, number>();
  const successes = new Array<number>(2 * petIds.length).fill(0);
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };

  const call = async (index: number, outcomes: Record<string, number>, send: () => Promise<string>) => {
    while (!stopped.signal.aborted) {
      const outcome = await send().catch((error) => error.cause?.code ?? error.message);
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      if (outcome === "200") successes[index]! += 1;
      await delay(50);
    }
  };
  const read = async () => {
    const response = await ask("/v1/inventory", { headers });
    await response.arrayBuffer();
    return outcomeOf(response);
  };
  const update = async (petId: number) => {
    const quantity = (attempted.get(petId) ?? 0) + 1;
    attempted.set(petId, quantity);
    const body = JSON.stringify({ quantity });
    const response = await ask(`/v1/inventory/${petId}`, { method: "PATCH", headers, body });
    await response.arrayBuffer();
    if (response.ok) acknowledged.set(petId, quantity);
    return outcomeOf(response);
  };
  const callers = petIds.flatMap((petId, index) => [
    call(2 * index, updates, () => update(petId)),
    call(2 * index + 1, reads, read),
  ]);
  const end = async () => {
    stopped.abort();
    await Promise.all(callers);
  };
  return {
    reads,
    updates,
    answered: async () => {
      const before = [...successes];
      await until(() => successes.every((count, index) => count >= before[index]! + 2), {
        withinMs: 60_000,
        everyMs: 50,
      });
    },
    stop: async () => {
      await end();
      const list = (await (await ask("/v1/inventory", { headers })).json()) as { petId: number; quantity: number }[];
      for (const [petId, quantity] of acknowledged) {
        const held = list.find((entry) => entry.petId === petId)!.quantity;
        // Later ones may have happened without an answer.
        if (held < quantity) throw new Error(`pet ${petId} has ${held}, and ${quantity} was acknowledged`);
      }
    },
    [Symbol.asyncDispose]: end,
  };
}

/** Gateways give each answer an id. */
function outcomeOf({ status, headers }: Response): string {
  return headers.has("x-request-id") ? `${status}` : `${status} of the load balancer`;
}
