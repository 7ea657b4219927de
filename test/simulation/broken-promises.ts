// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are code
/** Faults that break a promise each. The simulation has to find them: `npm run simulate:planted`. */

import { brokenRules } from "./broken-rules.ts";

export interface PlantedFault {
  /** The promise of `docs/guarantees.md` that it breaks. */
  readonly promise: number;
  readonly what: string;
  readonly file: string;
  /** A text that is there once. */
  readonly find: string;
  readonly replace: string;
}

/** Those of changes that are lost, and of reads that are stale. */
const lostOrStale: readonly PlantedFault[] = [
  {
    promise: 2,
    what: "a read joins the check that is under way",
    file: "runtime/shared-read.ts",
    find: "    this.#questions.add({ arrivedMs, resolve, reject, trace: context.active() });",
    replace: `    const question = { arrivedMs, resolve, reject, trace: context.active() };
    if (this.#reading.length > 0) (this.#reading as Question<T>[]).push(question);
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
    find: "  return isOnce || !outcome.mayHaveHappened;",
    replace: "  return true;",
  },
  {
    promise: 1,
    what: "callers are not asked under the lock",
    file: "inventory-svc/stock/write.ts",
    find: "    const wanted = requests.filter(({ isWanted }) => isWanted());\n    if",
    replace: "    const wanted = requests;\n    if",
  },
  {
    promise: 1,
    what: "a sign of life takes the news that its transaction was undone",
    file: "runtime/database/open.ts",
    find: "connection.ping((error) => error && stream.destroy());",
    replace: "connection.ping(() => {});",
  },
  {
    promise: 1,
    what: "a write that leaves the stock as it is does not change the head",
    file: "inventory-svc/stock/write.ts",
    find: ', writes: db.raw("writes + 1") }',
    replace: " }",
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
    what: "the head is read without a lock",
    file: "inventory-svc/stock/write.ts",
    find: 'head().select(serverColumns(db), "epoch", "revision").forUpdate()',
    replace: 'head().select(serverColumns(db), "epoch", "revision")',
  },
  {
    promise: 1,
    what: "a lost commit counts as undone",
    file: "inventory-svc/stock/write.ts",
    find: "throw transaction.mayHaveHappened(error) ? new OutcomeUnknownError(error) : error;",
    replace: "throw error;",
  },
  {
    promise: 1,
    what: "a service takes a question that comes after the end of its stream",
    file: "inventory-svc/rpc/served-calls.ts",
    find: "        if (isOver) break; // its end is on the way to the caller, who then asks on another stream\n",
    replace: "",
  },
  {
    promise: 1,
    what: "a lost stream passes for a question that was not sent",
    file: "client/inventory-error.ts",
    find: 'return new InventoryError("UNAVAILABLE", error.message.replace(/^UNAVAILABLE: /, ""), undefined, cause);',
    replace: 'return notSent(error.message.replace(/^UNAVAILABLE: /, ""), cause);',
  },
  {
    promise: 1,
    what: "the client takes every failure for a change that has not happened",
    file: "client/inventory-error.ts",
    find: '    return (tellings[this.errorReason as ErrorReason] ?? "unknown") === "unknown";',
    replace: "    return false;",
  },
  {
    promise: 1,
    what: "If-Match is not looked at",
    file: "inventory-svc/stock/decide-changes.ts",
    find: "      if (change.expectedRevisions?.includes(entry.revision) === false) {",
    replace: "      if (change.expectedRevisions?.length === 0) {",
  },
  {
    promise: 1,
    what: "the answers of a bulk update are those of other entries",
    file: "client/change-sessions.ts",
    find: "end(outcomes.splice(0, request.changes.length));",
    replace: "end(outcomes.slice(0, request.changes.length));",
  },
  {
    promise: 1,
    what: "a frozen or lost service keeps its lock",
    file: "runtime/database/session-settings.ts",
    find: "    `wait_timeout = ${silenceSeconds}`,\n",
    replace: "",
  },
  {
    promise: 1,
    what: "an adjustment may leave less than nothing",
    file: "inventory-svc/stock/decide-changes.ts",
    find: '  if (quantity < 0) return { kind: "insufficient_stock", item: entry };\n',
    replace: "",
  },
  {
    promise: 1,
    what: "a change of the status alone is not made",
    file: "inventory-svc/stock/decide-changes.ts",
    find: "itemFields.every((name) => entry[name] === state[name])",
    replace: 'itemFields.every((name) => name === "status" || entry[name] === state[name])',
  },
  {
    promise: 2,
    what: "a page of changes has the position of another read",
    file: "inventory-svc/stock/stock-store.ts",
    find: "    return await page;",
    replace: '    const found = await page;\n    return found.kind === "reset" ? found : { ...found, position };',
  },
  {
    promise: 2,
    what: "a removed entry stays in the list",
    file: "gateway/inventory/list/chunk.ts",
    find: '  return item.removed ? "" : `,${renderItem(item)}`;',
    replace: "  return `,${renderItem(item)}`;",
  },
  {
    promise: 2,
    what: "changes since a list lack what changed last in a chunk",
    file: "gateway/inventory/list/difference.ts",
    find: "    if (chunk.maxRevision <= since) continue;",
    replace: "    if (chunk.maxRevision <= since + 1n) continue;",
  },
  {
    promise: 2,
    what: "a reset is taken for no change",
    file: "gateway/inventory/list/stock-list.ts",
    find: '    if (changes.kind === "reset") return "reset";',
    replace: '    if (changes.kind === "reset") return (this.#snapshot = snapshot);',
  },
  {
    promise: 2,
    what: "parts of the list are kept for loads that begin later",
    file: "inventory-svc/stock/list-feed.ts",
    find: "    if (known && known.load >= load) return known.rows;",
    replace: "    if (known) return known.rows;",
  },
  {
    promise: 2,
    what: "a watch begins again where it was at its first page",
    file: "inventory-svc/stock/change-feed.ts",
    find: "        ({ position } = page);\n        if (!page.more)",
    replace: "        if (!page.more)",
  },
  {
    promise: 2,
    what: "nothing wakes a request that waits for a change",
    file: "gateway/inventory/list/stock-list.ts",
    find: "    else if (next !== snapshot) this.#onChange(changes.items.map(({ petId }) => petId));\n",
    replace: "",
  },
  {
    promise: 2,
    what: "a 304 answers any If-None-Match of the list",
    file: "gateway/inventory/reads/read-handlers.ts",
    find: '  if (matchesEtag(request.headers["if-none-match"], snapshot.etag, snapshot.gzipEtag)) return',
    replace: '  if (request.headers["if-none-match"] !== undefined) return',
  },
  {
    promise: 2,
    what: "a 304 answers any If-None-Match of an entry",
    file: "gateway/inventory/reads/read-handlers.ts",
    find: "    if (isUnmodified(ifNoneMatch, entry)) response",
    replace: "    if (ifNoneMatch !== undefined) response",
  },
  {
    promise: 2,
    what: "reads of several entries show none in stock",
    file: "inventory-svc/stock/stock-store.ts",
    find: "    return new Map(rows.map((row) => [row.petId, row]));",
    replace: "    return new Map(rows.map((row) => [row.petId, { ...row, quantity: 0 }]));",
  },
  {
    promise: 1,
    what: "If-Match never matches",
    file: "inventory-svc/stock/decide-changes.ts",
    find: "      if (change.expectedRevisions?.includes(entry.revision) === false) {",
    replace: "      if (change.expectedRevisions) {",
  },
  {
    promise: 2,
    what: "a part of the list begins one entry too late",
    file: "inventory-svc/stock/list-feed.ts",
    find: "from = rows.at(-1)?.petId;",
    replace: "from = (rows.at(-1)?.petId ?? 0n) + 1n;",
  },
  {
    promise: 2,
    what: "a watch does not report a reset",
    file: "inventory-svc/rpc/handlers.ts",
    find: 'if (page.kind === "reset") return yield { ...position, items: [], reset: true };',
    replace: 'if (page.kind === "reset") return;',
  },
  {
    promise: 2,
    what: "the floor of forgotten removals is not looked at",
    file: "gateway/inventory/list/stock-list.ts",
    find: "    if (!knows || revision < this.#floor) throw",
    replace: "    if (!knows) throw",
  },
  {
    promise: 1,
    what: "a deadline counts from when a stream was opened, not from when it was accepted",
    file: "client/session.ts",
    find: `      const timer = setTimeout(() => stream.cancel(), timeoutMs);
      stream.once("metadata", () => {
        clearTimeout(timer);
        resolve(new Session(stream));
      });`,
    replace: `      const session = new Session(stream);
      const timer = setTimeout(() => stream.cancel(), timeoutMs);
      stream.once("metadata", () => {
        clearTimeout(timer);
        resolve(session);
      });`,
  },
  {
    promise: 2,
    what: "a load of the list may use pages that are older than its position",
    file: "inventory-svc/stock/list-feed.ts",
    find: `      const position = await this.#store.position();
      const load = ++this.#begun;`,
    replace: `      const load = ++this.#begun;
      const position = await this.#store.position();`,
  },
  {
    promise: 2,
    what: "the end of one wait forgets all that wait for the same thing",
    file: "gateway/inventory/reads/long-polls.ts",
    find: "    if (ofPet?.size === 0) this.#byPetId.delete(held.petId);",
    replace: "    this.#byPetId.delete(held.petId);",
  },
  {
    promise: 2,
    what: "a list that was loaded again wakes no wait",
    file: "gateway/inventory/list/stock-list.ts",
    find: `    if (!whole || isPartial) this.#onChange(undefined);
    else if (next !== snapshot) this.#onChange(changes.items.map(({ petId }) => petId));`,
    replace: "    if (next !== snapshot) this.#onChange(changes.items.map(({ petId }) => petId));",
  },
  {
    promise: 2,
    what: "a load that goes on over another stream takes the position of that",
    file: "gateway/inventory/list/load-list.ts",
    find: "          this.#position ??= position;",
    replace: "          this.#position = position;",
  },
  {
    promise: 1,
    what: "a change of the quantity makes the status available again",
    file: "inventory-svc/stock/decide-changes.ts",
    find: "quantity: change.quantity ?? entry.quantity, status: change.status ?? entry.status };",
    replace: 'quantity: change.quantity ?? entry.quantity, status: change.status ?? "available" };',
  },
  {
    promise: 2,
    what: "a changed chunk keeps its latest revision, so a search for changes skips it",
    file: "gateway/inventory/list/chunk.ts",
    find: "    if (revision > maxRevision) maxRevision = revision;\n",
    replace: "",
  },
  {
    promise: 2,
    what: "a chunk that has grown too large loses an entry when it is split",
    file: "gateway/inventory/list/chunks.ts",
    find: "Math.min(from + chunkSize, count)",
    replace: "Math.min(from + chunkSize - 1, count)",
  },
  {
    promise: 2,
    what: "a segment with a changed chunk is sent as it was",
    file: "gateway/inventory/list/snapshot.ts",
    find: " && before.chunks.every(({ json }, i) => json === chunks[from + i]!.json)",
    replace: "",
  },
  {
    promise: 2,
    what: "an edit goes to the chunk after its own",
    file: "gateway/inventory/list/chunks.ts",
    find: "chunks[index]!.petIds[0]! <= petId",
    replace: "chunks[index]!.petIds[0]! < petId",
  },
  {
    promise: 2,
    what: "a load that goes on reads the entries of its unfinished chunk once more",
    file: "gateway/inventory/list/load-list.ts",
    find: "of source.load(this.#last)) {",
    replace: "of source.load(this.#chunks.at(-1)?.petIds.at(-1))) {",
  },
  {
    promise: 2,
    what: "a check of very many changes shows what it has so far, and wakes nobody for it",
    file: "gateway/inventory/list/stock-list.ts",
    find: '      this.#snapshot = whole;\n      this.#partial = next;\n      return "more";',
    replace: '      this.#snapshot = next;\n      return "more";',
  },
  {
    promise: 1,
    what: "an update whose stream broke is answered with 503 while late bytes may still have it made",
    file: "client/change-sessions.ts",
    find: "        if (!error.mayHaveHappened || happensOnce(request)) end(forAll(request, error));",
    replace: "        end(forAll(request, error));",
  },
  {
    promise: 1,
    what: "adjustments of the public API are made whatever revision their ifMatch names",
    file: "gateway/inventory/stock-client.ts",
    find: "        return { petId, delta, expectedRevisions: precondition?.revisions, reason };",
    replace: "        return { petId, delta, reason };",
  },
  {
    promise: 2,
    what: "the gzip body of a newer list goes out with the ETag of the list that was read before",
    file: "gateway/inventory/reads/read-handlers.ts",
    find: "    return list.gzipOf(snapshot).then(({ etag, body }) => ({ headers: [...headersOf(etag), ...gzipCoding], body }));",
    replace: "    return list.gzipOf(snapshot).then(({ body }) => ({ headers: [...headers, ...gzipCoding], body }));",
  },
  {
    promise: 2,
    what: "when old removals of a chunk are forgotten, its newer removals go with them",
    file: "gateway/inventory/list/chunk.ts",
    find: "    else if (revision > floor) {\n      kept.push(at);\n      if (revision < minRemovalRevision) minRemovalRevision = revision;\n    }\n",
    replace: "",
  },
  {
    promise: 2,
    what: "a page of the list as gzip begins with a bracket and a comma where it begins with a whole chunk",
    file: "gateway/inventory/list/page.ts",
    find: "  const isWhole = (i: number) => views[i]!.length === slices[i]!.chunk.json.length;",
    replace:
      "  const isWhole = (i: number) => slices[i]!.from === 0 && slices[i]!.to === slices[i]!.chunk.petIds.length;",
  },
  {
    promise: 2,
    what: "what waits behind an open response is dropped",
    file: "gateway/http/connection.ts",
    find: "    this.#receive(this.#takeWaiting());\n",
    replace: "    this.#takeWaiting();\n",
  },
  {
    promise: 2,
    what: "the requests behind an open response are answered before it",
    file: "gateway/http/connection.ts",
    find: '    if (this.#parsed !== "requests") return;\n    const before',
    replace: '    if (this.#parsed === "requests") return;\n    const before',
  },
  {
    promise: 1,
    what: "a call that adjusts several entries adjusts each one by itself",
    file: "inventory-svc/rpc/wire.ts",
    find: "origin, isAllOrNothing: true };\n}",
    replace: "origin, isAllOrNothing: false };\n}",
  },
  {
    promise: 2,
    what: "changes of which there are many are refused",
    file: "gateway/inventory/list/difference.ts",
    find: "  return Math.max(alwaysAnsweredChanges, countEntries(snapshot.chunks));",
    replace: "  return alwaysAnsweredChanges + 0 * countEntries(snapshot.chunks);",
  },
  {
    promise: 2,
    what: "a long body lacks what follows the first batch of pieces",
    file: "gateway/inventory/reads/send-body.ts",
    find: "    response.uncork();\n",
    replace: "    response.uncork();\n    if (i < pieces.length - 3) i = pieces.length - 3;\n",
  },
  {
    promise: 2,
    what: "a long difference leaves out some removed entries",
    file: "gateway/inventory/list/difference.ts",
    find: "gone.slice(at, at + idsAtOnce)}",
    replace: "gone.slice(at, at + idsAtOnce - 1)}",
  },
];

export const plantedFaults: readonly PlantedFault[] = [...lostOrStale, ...brokenRules];
