// Changes the stock from a process of its own. It prints "ready", begins on SIGUSR2 and prints its results as JSON.
//   create FIRST COUNT SIZE   creates COUNT entries from petId FIRST on, SIZE in a transaction
//   increment PET_ID COUNT    adds 1 to a quantity COUNT times, each time if the entry is unchanged since it was read
//   adjust FIRST COUNT SIZE   adds 1 to each of COUNT pets from petId FIRST on, SIZE in a transaction, under request
//                             ids that every such process uses
import { once } from "node:events";
import { openStock } from "./open-stock.ts";

const [task, first, count, size] = [process.argv[2], ...process.argv.slice(3).map(Number)] as const;
const { store, close } = openStock(process.env.INVENTORY_DATABASE_URL!);

async function create(): Promise<object> {
  let done = 0;
  for (let at = first!; at < first! + count!; at += size!) {
    const petIds = Array.from({ length: size! }, (_, i) => BigInt(at + i));
    const outcomes = await store.write(
      petIds.map((petId) => ({ kind: "create", petId, quantity: 1, status: "available" })),
    );
    done += outcomes.filter(({ kind }) => kind === "done").length;
  }
  return { done };
}

async function increment(): Promise<object> {
  let done = 0;
  let refused = 0;
  while (done < count!) {
    const { petId, quantity, revision } = (await store.get(BigInt(first!)))!;
    const [outcome] = await store.write([
      { kind: "update", petId, quantity: quantity + 1, expectedRevisions: [revision] },
    ]);
    if (outcome!.kind === "done") done += 1;
    else refused += 1;
  }
  return { done, refused };
}

async function adjust(): Promise<object> {
  let done = 0;
  let refused = 0;
  for (let at = first!; at < first! + count!; at += size!) {
    const outcomes = await store.write(
      Array.from({ length: size! }, (_, i) => ({
        kind: "adjust",
        petId: BigInt(at + i),
        delta: 1,
        once: { id: `request-${at + i}`, fingerprint: "1" },
      })),
    );
    for (const { kind } of outcomes) {
      if (kind === "done") done += 1;
      else if (kind !== "replayed") refused += 1;
    }
  }
  return { done, refused };
}

await store.ping();
const begin = once(process, "SIGUSR2");
console.log("ready");
await begin;
console.log(JSON.stringify(await { create, increment, adjust }[task as "create"]()));
await close();
