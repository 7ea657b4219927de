// Measures how long the REST client takes to read a list: `npm run bench -- --only client`.
import { randomBytes } from "node:crypto";
import { parseExactly, withPetId } from "../../rest-client/exact-json.ts";
import type { Plan } from "./list.ts";

/** Medians of one kind of list, in ms. */
export interface ClientRow {
  readonly ids: "of 4 digits" | "random";
  readonly jsonParseMs: number;
  readonly exactMs: number;
}

const entries = 10_000;
const runs = 60;

/** Measures how long the REST client takes to read a list with exact ids, beside JSON.parse, which rounds them. */
export function benchClient(plan: Plan): ClientRow[] {
  plan.say(`Reading a list of ${entries} entries in the REST client, medians of ${runs} runs`);
  const lists = {
    "of 4 digits": listOf((i) => 1_000n + BigInt(i % 9_000)),
    random: listOf(() => randomBytes(8).readBigInt64BE()),
  };
  return Object.entries(lists).map(([ids, text]) => {
    const [jsonParseMs, exactMs] = mediansOf([
      () => JSON.parse(text),
      () => (parseExactly(text) as { petId: number | string }[]).map(withPetId),
    ]);
    plan.say(
      `  ids ${ids}: JSON.parse ${jsonParseMs!.toFixed(2)} ms, exact ${exactMs!.toFixed(2)} ms, × ${(exactMs! / jsonParseMs!).toFixed(2)}`,
    );
    return { ids: ids as ClientRow["ids"], jsonParseMs: jsonParseMs!, exactMs: exactMs! };
  });
}

function listOf(petId: (i: number) => bigint): string {
  const items = Array.from({ length: entries }, (_, i) => {
    return `{"petId":${petId(i)},"quantity":${i % 997},"status":"available"}`;
  });
  return `[${items}]`;
}

/** Runs the functions in turns. @returns the median time of each, in ms */
function mediansOf(functions: readonly (() => unknown)[]): number[] {
  const times: number[][] = functions.map(() => []);
  for (let run = 0; run < runs; run++) {
    for (const [i, call] of functions.entries()) {
      const startedMs = performance.now();
      call();
      times[i]!.push(performance.now() - startedMs);
    }
  }
  return times.map((ofOne) => ofOne.toSorted((a, b) => a - b)[runs / 2]!);
}
