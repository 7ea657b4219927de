/** Internal callers with the product's own client, who note what they get. */
import { createInventoryClient } from "../../client/client.ts";
import { callUnary } from "../../client/grpc-calls.ts";
import { InventoryError } from "../../client/index.ts";
import { toItem } from "../../client/values.ts";
import type { InventoryServiceClient } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Item, Position } from "../../proto/pet.ts";
import { type CallerWorld, movingPets, nextNumber } from "./caller-world.ts";
import { meet } from "./events.ts";
import type { AskedChange, Attempt } from "./oracle.ts";
import { openInventoryChannel } from "./rpc-client.ts";
import { Host, note, nowMs, runIn } from "./virtual-time.ts";

/**
 * Keeps a copy of the stock with the product's own client. It notes each event of the watch as a read of changes, and
 * the copy after it as a read of the list. Sometimes it lists again. It ends when the run is over and the watch has
 * reported every change.
 */
export async function runWatch(name: string, world: CallerWorld): Promise<void> {
  const { reads, isOver, latest, random, fail } = world;
  const host = new Host(name);
  await runIn(host, async () => {
    const client = createInventoryClient({ address: "services" });
    const ended = new AbortController();
    let position: Position | undefined;
    const isTold = () => position !== undefined && tagOf(position) === tagOf(latest());
    const look = () => (isOver() && isTold() ? ended.abort() : setTimeout(look, 100));
    look();
    try {
      while (!ended.signal.aborted) {
        await new Promise((resolve) => setTimeout(resolve, 1)); // by then a stream that was left is over
        if (host.openCalls > 0) fail(`${name} has left ${host.openCalls} streams open`);
        position = undefined;
        const copy = new Map<bigint, object>();
        try {
          for await (const page of client.list()) {
            position ??= page.position;
            for (const item of page.items) copy.set(item.petId, toBody(item));
          }
        } catch {
          await new Promise((resolve) => setTimeout(resolve, 200));
          continue;
        }
        const onBreak = () => meet("a break of a watch");
        const listed = tagOf(latest()); // an entry may be as new as this
        let mayEnd = false;
        for await (const event of client.watch(position!, { signal: ended.signal, onBreak })) {
          if (event.kind === "reset") {
            meet("a reset of a watch");
            mayEnd = true;
          } else {
            const read = { kind: "watch", status: 200, callMs: 0, returnMs: nowMs() } as const;
            const tag = tagOf(event.position);
            const changed = event.changed.map((item) => ({ ...toBody(item), etag: `"r${item.revision}"` }));
            changed.sort((a, b) => a.petId - b.petId);
            const removed = event.removed.map(Number).sort((a, b) => a - b);
            reads.push({ ...read, tag, since: tagOf(position!), body: { etag: `"${tag}"`, changed, removed } });
            ({ position } = event);
            for (const item of event.changed) copy.set(item.petId, toBody(item));
            for (const petId of event.removed) copy.delete(petId);
            if (!isOlder(tag, listed)) reads.push({ ...read, kind: "list", tag, body: inOrder(copy) });
            mayEnd = random.chance(0.05) && !isOver();
            if (mayEnd) break;
          }
        }
        if (!mayEnd && !ended.signal.aborted) fail(`a watch of ${name} ended without a word`);
      }
    } catch (error) {
      if (!ended.signal.aborted) throw error;
    }
    client.close();
  });
}

const tagOf = ({ epoch, revision }: Position) => `${epoch.slice(0, 8)}-${revision}`;

/** Whether a tag is of an earlier state than another one, or of another stock. */
function isOlder(tag: string, other: string): boolean {
  const [[epoch, revision], [otherEpoch, otherRevision]] = [tag.split("-"), other.split("-")];
  return epoch !== otherEpoch || BigInt(revision!) < BigInt(otherRevision!);
}

/** The bodies of a copy in the order of the list. */
function inOrder(copy: ReadonlyMap<bigint, object>): object[] {
  return [...copy].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, body]) => body);
}

const internalKinds = {
  adjust: 4,
  adjustMany: 3,
  create: 2,
  remove: 2,
  set: 2,
  status: 2,
  callSet: 0.5,
  callAdjust: 0.5,
  callAdjustMany: 0.5,
  get: 2,
  getMany: 1,
  list: 0.5,
} as const;

/** An internal caller, with the product's own client. */
export async function runInternalCaller(name: string, world: CallerWorld): Promise<Host> {
  const host = new Host(name);
  const { random, changes, pets, pauseMs, isOver, timeoutMs, keepsRecords, fail } = world;
  await runIn(host, async () => {
    const client = createInventoryClient({ address: "services", timeoutMs });
    /** As callers in other languages have it. */
    const stub = openInventoryChannel() as InventoryServiceClient;
    const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
    /** Notes an attempt at changes that are made together. @returns how it has ended */
    const attempt = async (asked: readonly AskedChange[], work: () => Promise<readonly Changed[]>) => {
      const attempts = asked.map((change): Attempt => {
        const outcome = { kind: "unknown", isAnswered: false } as const;
        const made: Attempt = { callMs: nowMs(), returnMs: Number.POSITIVE_INFINITY, outcome };
        change.attempts.push(made);
        return made;
      });
      try {
        const items = await work();
        for (const [i, made] of attempts.entries()) made.outcome = { kind: "done", ...items[i]! };
      } catch (error) {
        if (!(error instanceof InventoryError)) throw error;
        const { mayHaveHappened, code, errorReason } = error;
        if (errorReason) meet(`the reason ${errorReason}`);
        for (const made of attempts) {
          made.outcome = mayHaveHappened ? { kind: "unknown", isAnswered: true } : { kind: "refused", code };
        }
      }
      for (const made of attempts) made.returnMs = nowMs();
      const { kind } = attempts[0]!.outcome;
      const what = asked.map(({ petId, delta, quantity }) => `${petId} ${delta ?? quantity ?? ""}`).join(", ");
      note(`${name} ${asked[0]!.kind} ${what}: ${JSON.stringify(attempts[0]!.outcome, toText)}`);
      meet(`internal ${asked[0]!.kind} ${kind}`);
      return kind;
    };
    const ask = (change: Omit<AskedChange, "attempts">): AskedChange => {
      const asked = { ...change, attempts: [] };
      changes.push(asked);
      return asked;
    };
    /** Asks for adjustments that are made all or none: what one entry gets is taken from the next one. */
    const askPair = (petId: number, delta: number, { mayBeLate }: { readonly mayBeLate: boolean }) => {
      const group: AskedChange[] = [];
      const change = { kind: "adjust", group, mayBeLate } as const;
      group.push(ask({ ...change, petId, delta }), ask({ ...change, petId: 1 + (petId % pets), delta: -delta }));
      return group;
    };
    const untilKnown = async (asked: readonly AskedChange[], work: () => Promise<readonly Changed[]>) => {
      while ((await attempt(asked, work)) === "unknown" && !isOver()) {
        meet("a change that is repeated");
        await pause(random.between(1, 300));
      }
      if (random.chance(0.5)) return;
      await pause(random.between(1, 500));
      await attempt(asked, work); // once more, which changes nothing
    };
    /** Adjusts an entry once. The id of a request that was made makes no other adjustment. */
    const adjustOnce = async (
      asked: AskedChange,
      adjust: (delta: number) => Promise<{ readonly item: Item }>,
    ): Promise<void> => {
      const work = async (delta: number) => [toChanged((await adjust(delta)).item)];
      await untilKnown([asked], () => work(asked.delta!));
      if (!keepsRecords || asked.attempts.at(-1)!.outcome.kind !== "done" || random.chance(0.8)) return;
      meet("a request id that is used again");
      const other = asked.delta! + 1 || 1;
      const change = { ...asked, delta: other, reuses: asked };
      const kind = await attempt([ask(change)], () => work(other));
      if (kind === "done") fail(`${name} has made two adjustments of ${asked.petId} with one request id`);
    };
    const act = async (kind: keyof typeof internalKinds) => {
      const petId = 1 + random.below(pets);
      const moving = random.pick(movingPets);
      const delta = random.chance(0.1)
        ? random.pick([-100_000, 100_000])
        : random.chance(0.5)
          ? 1 + random.below(9)
          : -1 - random.below(9);
      const requestId = `adjust-${nextNumber()}`;
      switch (kind) {
        case "adjust": {
          const adjust = (delta: number) => client.adjust({ petId: BigInt(petId), delta, requestId });
          return adjustOnce(ask({ kind, petId, delta }), adjust);
        }
        case "adjustMany": {
          const group = askPair(petId, delta, { mayBeLate: false });
          const adjustments = group.map(({ petId, delta }) => ({ petId: BigInt(petId), delta: delta! }));
          const adjust = async () => (await client.adjustMany({ adjustments, requestId })).items.map(toChanged);
          return untilKnown(group, adjust);
        }
        case "create": {
          const quantity = nextNumber();
          const create = async () => [toChanged(await client.create({ petId: BigInt(moving), quantity }))];
          return void (await attempt([ask({ kind, petId: moving, quantity, mayBeLate: true })], create));
        }
        case "remove": {
          const remove = async () => [{ revision: await client.remove(BigInt(moving)) }];
          return void (await attempt([ask({ kind, petId: moving, mayBeLate: true })], remove));
        }
        case "set": {
          const quantity = nextNumber();
          const idempotencyKey = random.chance(0.5) ? requestId : undefined;
          const set = async () => [toChanged(await client.update({ petId: BigInt(petId), quantity, idempotencyKey }))];
          const asked = [ask({ kind, petId, quantity })];
          return idempotencyKey ? untilKnown(asked, set) : void (await attempt(asked, set));
        }
        case "status": {
          const status = random.pick(["available", "pending", "sold"] as const);
          const set = async () => [toChanged(await client.setStatus({ petId: BigInt(petId), status }))];
          return void (await attempt([ask({ kind, petId, status, mayBeLate: true })], set));
        }
        case "callSet": {
          const quantity = nextNumber();
          const request = { petId: BigInt(petId), quantity, expectedRevisions: [], idempotencyKey: requestId };
          const set = async () => {
            const { item } = await callUnary(stub.updateInventory.bind(stub), request, { timeoutMs });
            return [toChanged(toItem(item))];
          };
          return untilKnown([ask({ kind: "set", petId, quantity, mayBeLate: true })], set);
        }
        case "callAdjust": {
          const adjust = async (delta: number) => {
            const request = { petId: BigInt(petId), delta, requestId };
            const { item } = await callUnary(stub.adjustInventory.bind(stub), request, { timeoutMs });
            return { item: toItem(item) };
          };
          return adjustOnce(ask({ kind: "adjust", petId, delta, mayBeLate: true }), adjust);
        }
        case "callAdjustMany": {
          const group = askPair(petId, delta, { mayBeLate: true });
          const adjustments = group.map((one) => {
            return { petId: BigInt(one.petId), delta: one.delta!, expectedRevisions: [] };
          });
          const adjust = async () => {
            const request = { adjustments, requestId };
            const { items } = await callUnary(stub.batchAdjustInventory.bind(stub), request, { timeoutMs });
            return items.map((item) => toChanged(toItem(item)));
          };
          return untilKnown(group, adjust);
        }
        default:
          return readInternally(kind, random.chance(0.5) ? petId : moving, client, world);
      }
    };
    while (!isOver()) {
      await pause(random.between(0, 2 * pauseMs));
      await act(random.weighted(internalKinds));
    }
    stub.close();
    client.close();
  });
  return host;
}

type Client = ReturnType<typeof createInventoryClient>;

/** What is noted of an entry that a change has left. */
type Changed = Omit<Extract<Attempt["outcome"], { kind: "done" }>, "kind">;

const toChanged = ({ revision, quantity, status }: Item): Changed => ({ revision, quantity, status });
const toBody = ({ petId, quantity, status }: Item) => ({ petId: Number(petId), quantity, status });
const toText = (_: string, value: unknown) => (typeof value === "bigint" ? String(value) : value);

async function readInternally(
  kind: "get" | "getMany" | "list",
  petId: number,
  client: Client,
  { reads, fail }: CallerWorld,
) {
  const callMs = nowMs();
  const entry = { kind: "entry", callMs } as const;
  const show = (item: Item) => {
    const answer = { status: 200, tag: `r${item.revision}`, body: toBody(item) };
    reads.push({ ...entry, ...answer, returnMs: nowMs(), petIds: [Number(item.petId)] });
  };
  const miss = (petId: number) =>
    reads.push({ ...entry, returnMs: nowMs(), petIds: [petId], status: 404, tag: "", body: undefined });
  try {
    if (kind === "get") show(await client.get(BigInt(petId)));
    else if (kind === "getMany") {
      const petIds = [...new Set([petId, 1, ...movingPets])];
      const { items, missing } = await client.getMany(petIds.map(BigInt));
      items.forEach(show);
      for (const one of missing) miss(Number(one));
      if (items.length + missing.length !== petIds.length) fail(`of ${petIds} it got ${items.length + missing.length}`);
    } else
      for await (const { items } of client.list()) {
        meet("a page of the list");
        items.forEach(show);
      }
  } catch (error) {
    if (!(error instanceof InventoryError)) throw error;
    if (error.code === "NOT_FOUND" && kind === "get") miss(petId);
  }
}
