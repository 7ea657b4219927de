// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are code
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
    find: "      ...statements.addToLedger(ledgerChanges),\n",
    replace: "",
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
    promise: 3,
    what: "each gateway admits the whole limit without Redis",
    file: "gateway/limits/limit-rule.ts",
    find: "  return Math.ceil((limit - others - synced) / sharers) + synced - own;",
    replace: "  return limit - others - synced + synced - own;",
  },
  {
    promise: 3,
    what: "a refusal of the limits is not obeyed",
    file: "gateway/admission/admission.ts",
    find: "    if (decision.admitted) return;\n    const { name",
    replace: "    if (decision.admitted || decision.states.length > 0) return;\n    const { name",
  },
  {
    promise: 3,
    what: "Redis does not count what a gateway has admitted alone",
    file: "gateway/limits/redis-windows.ts",
    find: "    this.#options.memory.learn(counts, nowMs, answer);",
    replace: "    this.#options.memory.learn(counts, nowMs, { ...answer, admittedCount: 0 });",
  },
  {
    promise: 5,
    what: "a look-up of a key is used for half a minute",
    file: "gateway/accounts/keys/authenticator.ts",
    find: "const lookUpMaxAgeMs = 8_000;",
    replace: "const lookUpMaxAgeMs = 30_000;",
  },
  {
    promise: 5,
    what: "a revoked key goes on working",
    file: "gateway/accounts/keys/key-store.ts",
    find: "      if (row.revoked_at !== null) return null;\n",
    replace: "",
  },
  {
    promise: 6,
    what: "a stream ends with a question taken and not answered",
    file: "inventory-svc/rpc/served-calls.ts",
    find: "      if (!isAnswering) call.end();",
    replace: "      call.end();",
  },
  {
    promise: 6,
    what: "a question on a stream that has ended is not sent again",
    file: "client/session.ts",
    find: '    stream.on("end", () => this.#end(notSent("the service ended the stream")));',
    replace:
      '    stream.on("end", () => this.#end(new InventoryError("UNAVAILABLE", "the service ended the stream")));',
  },
  {
    promise: 7,
    what: "an answer lacks the limit headers",
    file: "gateway/http/request-context.ts",
    find: '  return ["X-Request-Id", requestId, ...limitHeaders, ...deprecationHeaders,',
    replace: '  return ["X-Request-Id", requestId, ...deprecationHeaders,',
  },
  {
    promise: 9,
    what: "a repeat with its key is not recognized",
    file: "inventory-svc/rpc/wire.ts",
    find: "  return { id: `${account} ${key} ${change.petId}`,",
    replace: "  return { id: `${account} ${key} ${Math.random()}`,",
  },
  {
    promise: 9,
    what: "adjustments that are made all or none are made by half",
    file: "inventory-svc/stock/decide-changes.ts",
    find: "    if (refused !== -1) return outcomes.map(",
    replace: "    if (refused === 0) return outcomes.map(",
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
    promise: 9,
    what: "accounts share the records of their keys",
    file: "inventory-svc/rpc/wire.ts",
    find: "  return { id: `${account} ${key} ${change.petId}`,",
    replace: "  return { id: ` ${key} ${change.petId}`,",
  },
  {
    promise: 9,
    what: "repeats are remembered for 5 s",
    file: "inventory-svc/stock/cleanup.ts",
    find: "  return Math.max(historyDays * 24 * hourMs, repeatsKeptMs);",
    replace: "  return 5_000;",
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
    promise: 7,
    what: "Retry-After is not the time that the limit headers tell",
    file: "gateway/limits/windows.ts",
    find: "  return String(secondsUntil(bindingWindow(states).resetAtMs, nowMs));",
    replace: "  return String(10 * secondsUntil(bindingWindow(states).resetAtMs, nowMs));",
  },
  {
    promise: 9,
    what: "a repeat shows the present quantity",
    file: "inventory-svc/stock/decide-changes.ts",
    find: '    if (first) return { kind: "replayed", item: first.item };',
    replace:
      '    if (first) return { kind: "replayed", item: { ...first.item, quantity: this.#rows.get(change.petId)!.quantity } };',
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
    promise: 9,
    what: "an outage that a repeat meets counts as proof that the attempt before has not happened",
    file: "client/inventory-error.ts",
    find: `  STOCK_UNAVAILABLE: "undone",`,
    replace: `  STOCK_UNAVAILABLE: "decided",`,
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
    promise: 3,
    what: "Redis is probed only once after an outage",
    file: "gateway/limits/redis-breaker.ts",
    find: "    const timer = setInterval(() => {",
    replace: "    const timer = setTimeout(() => {",
  },
  {
    promise: 8,
    what: "a read of a history that failed keeps its place",
    file: "inventory-svc/stock/read-places.ts",
    find: `    try {
      return await read();
    } finally {
      const [next] = this.#waiting;
      if (next) next();
      else this.#running -= 1;
    }`,
    replace: `    const found = await read();
    const [next] = this.#waiting;
    if (next) next();
    else this.#running -= 1;
    return found;`,
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
    promise: 5,
    what: "the age of a look-up goes by a clock that can be set back",
    file: "gateway/accounts/keys/authenticator.ts",
    find: `    const { now, elapsedMs } = this.#options;
    return Math.max(now() - since.unixMs, elapsedMs() - since.elapsedMs);`,
    replace: "    return this.#options.now() - since.unixMs;",
  },
  {
    promise: 5,
    what: "a repeated rotation gives the new key the end of the old one",
    file: "gateway/accounts/keys/key-rotation.ts",
    find: "  const expiresAtMs = toNumber((successor ?? old).expires_at);",
    replace: "  const expiresAtMs = toNumber(old.expires_at);",
  },
  {
    promise: 2,
    what: "a load that goes on over another stream takes the position of that",
    file: "gateway/inventory/list/load-list.ts",
    find: "          this.#position ??= position;",
    replace: "          this.#position = position;",
  },
  {
    promise: 4,
    what: "a made-up key is looked up in the database",
    file: "gateway/accounts/keys/authenticator.ts",
    find: "    const keyHash = this.#ownKeyHash(token);\n",
    replace: '    const keyHash = this.#ownKeyHash(token) ?? hash("sha256", token, "buffer");\n',
  },
  {
    promise: 1,
    what: "a change of the quantity makes the status available again",
    file: "inventory-svc/stock/decide-changes.ts",
    find: "quantity: change.quantity ?? entry.quantity, status: change.status ?? entry.status };",
    replace: 'quantity: change.quantity ?? entry.quantity, status: change.status ?? "available" };',
  },
  {
    promise: 9,
    what: "a watch ends without a word when its service stops",
    file: "client/watch.ts",
    find: "      // The stream ended: a service that stops ends its watches.\n",
    replace: "      return; // the service has ended the watch\n",
  },
  {
    promise: 9,
    what: "all changes in the ledger have the time at which their service started",
    file: "inventory-svc/stock/write.ts",
    find: "const made_at = db.raw(clockMsSql(db));",
    replace: "const made_at = db.raw(String(Date.now()));",
  },
  {
    promise: 3,
    what: "a gateway that finds a ban running gives the next, longer one",
    file: "gateway/admission/bans.ts",
    find: "  if (last && last.untilMs > nowMs) return last;\n",
    replace: "",
  },
];
