// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are code
/** Faults that break the promises from the third on. */
import type { PlantedFault } from "./broken-promises.ts";

export const brokenRules: readonly PlantedFault[] = [
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
    promise: 9,
    what: "an outage that a repeat meets counts as proof that the attempt before has not happened",
    file: "client/inventory-error.ts",
    find: `  STOCK_UNAVAILABLE: "undone",`,
    replace: `  STOCK_UNAVAILABLE: "decided",`,
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
    promise: 4,
    what: "a made-up key is looked up in the database",
    file: "gateway/accounts/keys/authenticator.ts",
    find: "    const keyHash = this.#ownKeyHash(token);\n",
    replace: '    const keyHash = this.#ownKeyHash(token) ?? hash("sha256", token, "buffer");\n',
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
  {
    promise: 6,
    what: "a further request on a connection waits for ever",
    file: "gateway/http/connection.ts",
    find: `  readonly #closed = () => {
    this.#open = undefined;
`,
    replace: "  readonly #closed = () => {\n",
  },
  {
    promise: 7,
    what: "counts of use are written again with the next ones",
    file: "gateway/accounts/usage/unwritten-minutes.ts",
    find: "        for (const written of part) this.#subtract(ofMinute, written);\n",
    replace: "",
  },
  {
    promise: 9,
    what: "a history names the account in place of the key",
    file: "gateway/inventory/reads/history-handler.ts",
    find: "keyId: actor.keyId",
    replace: "keyId: actor.account",
  },
  {
    promise: 9,
    what: "the ledger takes adjustments for updates",
    file: "inventory-svc/stock/decide-changes.ts",
    find: 'return change.kind === "put" ? "import" : change.kind;',
    replace: 'return change.kind === "put" ? "import" : change.kind === "adjust" ? "set" : change.kind;',
  },
  {
    promise: 9,
    what: "a body that comes in pieces loses its beginning",
    file: "gateway/http/request-body.ts",
    find: "      bytes.copy(larger);\n",
    replace: "",
  },
  {
    promise: 3,
    what: "strikes that were shared over Redis are shared again with the next ones",
    file: "gateway/admission/strikes.ts",
    find: `    this.#unshared = new Map();
    this.#timer = undefined;`,
    replace: "    this.#timer = undefined;",
  },
  {
    promise: 3,
    what: "each gateway counts alone what accounts ask about themselves",
    file: "gateway/admission/shared-state.ts",
    find: "      return new RateLimiterRedis({ ...limit, storeClient, insuranceLimiter, customIncrTtlLuaScript: guardScript });",
    replace: "      return insuranceLimiter;",
  },
];
