/** Faults that break a promise each. The simulation has to find them: `npm run simulate:planted`. */

export interface PlantedFault {
  /** The promise of `docs/guarantees.md` that it breaks. */
  readonly promise: number;
  readonly what: string;
  readonly file: string;
  /** A text that is there once. */
  readonly find: string;
  readonly replace: string;
}

export const plantedFaults: readonly PlantedFault[] = [
  {
    promise: 2,
    what: "a read joins the check that is under way",
    file: "runtime/shared-read.ts",
    find: "    this.#questions.add({ arrivedMs, resolve, reject, trace: context.active() });",
    replace: `    const question = { arrivedMs, resolve, reject, trace: context.active() };
    if (this.#reading.length > 0) (this.#reading as Reader<T>[]).push(question);
    else this.#questions.add(question);`,
  },
  {
    promise: 2,
    what: "a check answers from the last position for 100 ms",
    file: "inventory-svc/stock/stock-store.ts",
    find: "    const { position, floor, pages } = await this.#headReads.next();",
    replace: `    const kept = (this as { kept?: { readMs: number; head: HeadRead } }).kept;
    const head = kept && performance.now() - kept.readMs < 100 ? kept.head : await this.#headReads.next();
    if (head !== kept?.head) (this as { kept?: object }).kept = { readMs: performance.now(), head };
    const { position, floor, pages } = head;`,
  },
  {
    promise: 2,
    what: "answers of an old primary are used",
    file: "runtime/database/old-primary.ts",
    find: "  if (!isSplit && !isReadOnly) return rows;",
    replace: "  if (!isSplit || isReadOnly) return rows;",
  },
  {
    promise: 2,
    what: "a restored database keeps its revision",
    file: "inventory-svc/stock/stock-store.ts",
    find: ".update({ epoch: randomUUID(), revision })",
    replace: ".update({ epoch: randomUUID() })",
  },
  {
    promise: 2,
    what: "a restored database keeps its epoch",
    file: "inventory-svc/stock/stock-store.ts",
    find: ".update({ epoch: randomUUID(), revision })",
    replace: ".update({ revision })",
  },
  {
    promise: 1,
    what: "an update that may have happened is sent again",
    file: "client/change-sender.ts",
    find: "  return happensOnce || !outcome.mayHaveHappened;",
    replace: "  return true;",
  },
  {
    promise: 1,
    what: "callers are not asked under the lock",
    file: "inventory-svc/stock/write.ts",
    find: "    const wanted = requests.filter(({ isWanted }) => isWanted());\n    if (wanted.length === 0) return { written: new Map() };",
    replace: "    const wanted = requests;",
  },
  {
    promise: 1,
    what: "a deadline counts from when the question is read",
    file: "inventory-svc/rpc/served-calls.ts",
    find: "performance.now() < acceptedMs + deadlineMs;",
    replace: "performance.now() < startedMs + deadlineMs;",
  },
  {
    promise: 1,
    what: "the counter is read without a lock",
    file: "inventory-svc/stock/stock-statements.ts",
    find: 'counter().select("revision").forUpdate()',
    replace: 'counter().select("revision")',
  },
  {
    promise: 1,
    what: "a lost commit counts as undone",
    file: "inventory-svc/stock/write.ts",
    find: "throw transaction.mayHaveHappened(error) ? new OutcomeUnknownError(error) : error;",
    replace: "throw error;",
  },
  {
    promise: 9,
    what: "records of repeats are looked up by no id",
    file: "inventory-svc/stock/decide-changes.ts",
    find: '    if (first) return { kind: "replayed", item: first.item };',
    replace: "",
  },
  {
    promise: 9,
    what: "what happens once is not recorded",
    file: "inventory-svc/stock/write.ts",
    find: "      ...statements.addRecords(recorded),\n",
    replace: "",
  },
];
