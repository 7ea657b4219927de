/** Judges which keys are looked up in their database. */
import type { Statement } from "./database.ts";
import type { Plan } from "./plan.ts";

/** Look-ups of a revoked key by one gateway: more than one, where several were under way. */
const lookUpsOfRevoked = 3;

/** What the look-ups of a run have found. */
export class LookUps {
  /** Of keys that were never made. */
  #unknown = 0;
  /** Of a key that was revoked, by the hash of the key. */
  readonly #revoked = new Map<string, number>();

  /** @param row what a statement of a gateway has found */
  note({ sql, bindings: [hash] }: Statement, row: Readonly<Record<string, unknown>> | undefined): void {
    if (!/`key_hash` = \?/.test(sql) || (hash as Buffer).length === 0) return; // it asks whether the database is there
    const name = (hash as Buffer).toString("hex");
    if (row?.id == null) this.#unknown += 1;
    else if (row.revoked_at !== null) this.#revoked.set(name, (this.#revoked.get(name) ?? 0) + 1);
  }

  /** @returns what was looked up in vain */
  judge({ gateways, faults }: Pick<Plan, "gateways" | "faults">): string[] {
    const unknown = this.#unknown > 0 ? ["a key that was never made was looked up"] : [];
    if (faults.some(({ kind }) => kind === "set a clock")) return unknown; // a clock that was wrong may end a good key
    const most = lookUpsOfRevoked * (gateways + faults.filter(({ kind }) => / a gateway$|pepper/.test(kind)).length);
    const often = [...this.#revoked.values()].filter((count) => count > most);
    return [...unknown, ...often.map((count) => `a revoked key was looked up ${count} times, more than ${most}`)];
  }
}
