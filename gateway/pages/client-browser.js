// Generated from rest-client/ by `npm run generate`; do not edit. Apache-2.0.
// @ts-self-types="./client.d.ts"
/** Reads the headers that tell what is left of the limits, and how long to wait. */
/** Longer times in headers are cut to this: timers end at once when they are set to more than 2^31 ms. */
const maxToldMs = 24 * 86_400_000;
/** The windows that an answer tells, by name. */
function readWindows(headers, nowMs) {
    const policies = readItems(headers.get("ratelimit-policy"));
    return [...readItems(headers.get("ratelimit"))].map(([name, { r: left = 0, t: seconds = 0 }]) => {
        const { q: limit = 0, w = 0 } = policies.get(name) ?? {};
        return [name, { limit, lengthMs: w * 1_000, left, endsAtMs: nowMs + Math.min(seconds * 1_000, maxToldMs) }];
    });
}
/** A date of HTTP (RFC 9110 section 5.6.7): `Date.parse` takes `1.5` for a day of 2001. */
const httpDate = /^\w+, \d\d[ -]\w{3}[ -]\d{2,4} [\d:]{8} GMT$/;
/** `Retry-After`: seconds, or the date that a proxy may send. Anything else counts as absent. */
function readRetryAfterMs(headers) {
    const text = headers.get("retry-after");
    if (text === null)
        return undefined;
    const ms = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(httpDate.exec(text)?.[0] ?? "") - Date.now();
    return Number.isNaN(ms) ? undefined : Math.min(Math.max(0, ms), maxToldMs);
}
/**
 * Whether an error tells windows other than the account's (which always include `day`): those of the address, or of a
 * limit beside the account's windows, such as that of updates with a key.
 */
function tellsOthers(headers) {
    const policies = readItems(headers.get("ratelimit-policy"));
    return policies.size > 0 && !policies.has("day");
}
/** Items as `"minute";r=59;t=60, "day";r=999;t=86400`: their integers by item and name. */
function readItems(header) {
    const items = [...(header ?? "").matchAll(/"([^"]*)"((?:;\s*\w+=\d+)+)/g)];
    return new Map(items.map(([, name, parameters]) => [
        name,
        Object.fromEntries([...parameters.matchAll(/(\w+)=(\d+)/g)].map(([, key, value]) => [key, Number(value)])),
    ]));
}
/**
 * A request that was refused, or that got no usable answer.
 *
 * An update that failed with status 0 or 5xx, or with `unknown_answer`, may have happened. Repeat it with the same
 * `idempotencyKey`.
 */
export class InventoryApiError extends Error {
    /**
     * A code of the API, as `not_found`. Two are the client's own: `no_answer` (the connection failed or the time was up;
     * in a page also where the API has another origin, because it has no CORS) and `unknown_answer` (an answer that is
     * not of this API, as a proxy sends it).
     */
    code;
    /** HTTP status; 0 where there was no answer, 429 also where the limits kept this client from sending. */
    status;
    /** `X-Request-Id` of the answer, to quote in a report. */
    requestId;
    /** Time in ms after which a repeat can succeed, where it is known; at most 24 days, which a timer can take. */
    retryAfterMs;
    constructor(code, message, { status = 0, requestId, retryAfterMs, cause } = {}) {
        super(`${code}: ${message}`, { cause });
        this.name = "InventoryApiError";
        this.code = code;
        this.status = status;
        this.requestId = requestId;
        this.retryAfterMs = retryAfterMs;
    }
}
/** The error that an answer is. */
function readError({ status, headers }, text) {
    const { code = "unknown_answer", message = `a ${status} that is not of this API` } = readErrorBody(text) ?? {};
    const requestId = headers.get("x-request-id") ?? undefined;
    return new InventoryApiError(code, message, { status, requestId, retryAfterMs: readRetryAfterMs(headers) });
}
function readErrorBody(text) {
    try {
        const body = JSON.parse(text);
        return typeof body?.code === "string" ? { code: body.code, message: String(body.message) } : undefined;
    }
    catch {
        return undefined;
    }
}
/** Reads int64 exactly on every runtime: JSON itself knows no bigint, and rounds integers beyond 2^53. */
const quote = 0x22;
const backslash = 0x5c;
const minus = 0x2d;
const zero = 0x30;
const nine = 0x39;
/** What stands before or after digits that are only a part of a number: `.`, `+`, `e` or `E`. */
const isJoint = (code) => code === 0x2e || code === 0x2b || code === 0x65 || code === 0x45;
/** An integer of fewer digits is exact as a number. */
const longDigits = 16;
const anyLong = /\d{16}/;
/**
 * As JSON.parse, but integers of 16 digits or more become texts, with every digit.
 *
 * @throws SyntaxError
 */
function parseExactly(text) {
    return JSON.parse(anyLong.test(text) ? quoteLongIntegers(text) : text);
}
/** Puts quotes around every integer of 16 digits or more that is not within a text. */
function quoteLongIntegers(text) {
    let quoted = "";
    let copied = 0;
    for (let at = 0; at < text.length; at++) {
        const code = text.charCodeAt(at);
        if (code === quote) {
            at = endOfText(text, at);
        }
        else if (isDigit(code)) {
            const start = text.charCodeAt(at - 1) === minus ? at - 1 : at;
            const first = at;
            while (isDigit(text.charCodeAt(at + 1)))
                at += 1;
            const end = at + 1;
            if (end - first < longDigits || isJoint(text.charCodeAt(start - 1)) || isJoint(text.charCodeAt(end)))
                continue;
            quoted += `${text.slice(copied, start)}"${text.slice(start, end)}"`;
            copied = end;
        }
    }
    return quoted + text.slice(copied);
}
/** The place of the quote that ends a text. Texts are short, where a loop is faster than `indexOf`. */
function endOfText(text, start) {
    let at = start + 1;
    while (at < text.length && text.charCodeAt(at) !== quote)
        at += text.charCodeAt(at) === backslash ? 2 : 1;
    return at;
}
function isDigit(code) {
    return code >= zero && code <= nine;
}
/** Makes the petId of an entry a bigint, in place: a list has many. */
function withPetId(sent) {
    sent.petId = BigInt(sent.petId);
    return sent;
}
/** Makes the ids of a record of another service bigints, in place. An id that is no integer stays as it is. */
function withIds(sent) {
    const record = sent;
    for (const name of ["id", "petId"]) {
        const id = record[name];
        if (Number.isInteger(id) || (typeof id === "string" && /^-?\d{16,}$/.test(id)))
            record[name] = BigInt(id);
    }
    return record;
}
/**
 * The body of an answer, as `read` makes it of the JSON.
 *
 * @throws InventoryApiError `unknown_answer` when it is no JSON, or `read` throws because it is other JSON
 */
function readBody({ text, status }, read) {
    try {
        return read(parseExactly(text));
    }
    catch (cause) {
        throw new InventoryApiError("unknown_answer", "the body is not what was asked for", { status, cause });
    }
}
/** Lets requests leave at the pace that the account's windows allow, as the headers of the answers tell them. */
/** Below this share of a window, what is left is spread over the rest of its time. */
const slowShare = 0.2;
/**
 * Waits between two requests are no longer than this, so that a day's window stays usable, and one request finds out
 * when a plan was raised or a ban was lifted. The gateway bans for many refusals within a minute, not for one.
 */
const maxSpacingMs = 60_000;
/** While it is not known what is left, one request in this time goes ahead to find out. */
const probeMs = 2_000;
const noBan = { endsAtMs: 0, toldAt: 0 };
/**
 * Tells when the next request may leave, so that the windows are not spent before they end. It reads no clock:
 * callers pass the time in ms.
 *
 * Only answers tell what is left: a request that got none may not have reached the API. Each request whose attempt has
 * not ended counts as one less left, because its answer may come late.
 */
class Windows {
    #known = new Map();
    /** Requests that have left. The place of a request among them is its number. */
    #count = 0;
    /** Numbers of the requests that a limit counts and whose attempts have not ended. */
    #underWay = new Set();
    /** The count when `#known` was told: the answers of later requests are newer. */
    #toldAt = 0;
    /**
     * The count when a request last ended without telling what is left. Until a later request is answered, that is
     * unknown.
     */
    #lostAt = 0;
    /** Number of the latest request whose answer was given to `learn`, with headers of the windows or not. */
    #latestTold = 0;
    #latestMs = Number.NEGATIVE_INFINITY;
    #probe = { number: 0, sentMs: 0 };
    /** The latest ban, and the count when it was told. `learn` of a later request ends it. */
    #ban = noBan;
    /** Time in ms until the next request may leave; 0 for at once. */
    waitMs(nowMs) {
        const waits = [...this.#known.values()]
            .filter(({ endsAtMs }) => endsAtMs > nowMs)
            .map((window) => this.#waitWithin(window, nowMs));
        waits.push(this.#waitForEnd(this.#ban.endsAtMs, nowMs));
        if (this.#isUnknown(nowMs) && this.#underWay.has(this.#probe.number))
            waits.push(this.#probe.sentMs + probeMs - nowMs);
        return Math.max(0, ...waits);
    }
    /** Time in ms until a window that has nothing left ends; 0 where none is spent. */
    spentMs(nowMs) {
        const spent = [...this.#known.values()].filter(({ left }) => left <= 0);
        return Math.max(0, ...spent.map(({ endsAtMs }) => endsAtMs - nowMs));
    }
    /** Time in ms until the ban ends; 0 where there is none. */
    banMs(nowMs) {
        return Math.max(0, this.#ban.endsAtMs - nowMs);
    }
    /** Counts a request that leaves now. @returns its number, for `learn` or `lose` at the end of its attempt */
    sent(nowMs) {
        const number = this.sentUncharged();
        this.#latestMs = nowMs;
        if (this.#isUnknown(nowMs))
            this.#probe = { number, sentMs: nowMs };
        this.#underWay.add(number);
        return number;
    }
    /** As `sent`, for a request that the account's windows do not count. */
    sentUncharged() {
        this.#count += 1;
        return this.#count;
    }
    /** Takes over what the answer to a request tells, by `RateLimit` and `RateLimit-Policy`. */
    learn(headers, number, nowMs) {
        const isCharged = this.#underWay.delete(number);
        if (isCharged && number > this.#ban.toldAt)
            this.endBan();
        this.#latestTold = Math.max(this.#latestTold, number);
        const told = readWindows(headers, nowMs);
        const isOvertaken = told.some(([name, window]) => isOlder(window, this.#known.get(name), nowMs));
        if (isOvertaken && number <= this.#toldAt)
            return;
        const running = [...this.#known].filter(([, { endsAtMs }]) => endsAtMs > nowMs);
        this.#known = new Map([...running, ...told]);
        this.#toldAt = this.#count;
    }
    /** Takes over a ban of this length. */
    ban(ms, nowMs) {
        this.#ban = { endsAtMs: nowMs + ms, toldAt: this.#count };
    }
    endBan() {
        this.#ban = noBan;
    }
    /** Ends a request that did not tell what is left. */
    lose(number) {
        if (this.#underWay.delete(number))
            this.#lostAt = this.#count;
    }
    /** Whether it is unknown what is left: a request was lost since the latest answer, or a known window has ended. */
    #isUnknown(nowMs) {
        const isSure = this.#latestTold > this.#lostAt;
        return !isSure || [...this.#known.values()].some(({ endsAtMs }) => endsAtMs <= nowMs);
    }
    #waitWithin({ limit, left: told, endsAtMs }, nowMs) {
        const left = told - this.#underWay.size;
        if (left > limit * slowShare)
            return 0;
        if (left > 0)
            return this.#latestMs + Math.min(maxSpacingMs, (endsAtMs - nowMs) / left) - nowMs;
        return told > 0 ? endsAtMs - nowMs : this.#waitForEnd(endsAtMs, nowMs);
    }
    /** Time in ms until an end, or until a request may leave to find out whether the end has come early. */
    #waitForEnd(endsAtMs, nowMs) {
        const restMs = endsAtMs - nowMs;
        return restMs > maxSpacingMs ? this.#latestMs + maxSpacingMs - nowMs : restMs;
    }
}
/**
 * Whether an answer may have been overtaken: a window in it ends more than half its length before the known one, or
 * ends near it with more left. Ends are not exact: their times are whole seconds, and during a ban no window is told to
 * end before the ban.
 */
function isOlder(told, known, nowMs) {
    if (known === undefined || known.limit !== told.limit || known.endsAtMs <= nowMs)
        return false;
    const laterMs = told.endsAtMs - known.endsAtMs;
    return Math.abs(laterMs) > told.lengthMs / 2 ? laterMs < 0 : told.left > known.left;
}
/** The longest wait in ms that this client makes by itself; a longer one is the caller's decision. */
const maxWaitMs = 120_000;
/** The requests of one key that wait for their turn, the oldest first. */
class Pace {
    #windows = new Windows();
    #waiting = new Set();
    #timer;
    /**
     * Resolves when the request may leave, with its number for `learn` or `lose` at the end of its attempt.
     *
     * @throws the reason of `signal` once that is aborted. InventoryApiError `api_key_banned` during a ban, and for an
     * impatient request `rate_limit_exceeded` when a spent window ends only after two minutes. While either lasts over a
     * minute, one request a minute still leaves
     */
    turn(isPatient, signal) {
        return new Promise((resolve, reject) => {
            signal?.throwIfAborted();
            const abort = () => waiting.fail(signal.reason);
            const settle = (how) => {
                signal?.removeEventListener("abort", abort);
                this.#waiting.delete(waiting);
                if (this.#waiting.size === 0)
                    clearTimeout(this.#timer);
                how();
            };
            const waiting = {
                isPatient,
                leave: (number) => settle(() => resolve(number)),
                fail: (reason) => settle(() => reject(reason)),
            };
            signal?.addEventListener("abort", abort);
            this.#waiting.add(waiting);
            this.#next();
        });
    }
    /** Counts a request that the account's windows leave out, so that it never waits. @returns its number, for `learn` */
    uncharged() {
        return this.#windows.sentUncharged();
    }
    /** Takes over what the headers of the answer to a request tell. */
    learn(headers, number) {
        this.#windows.learn(headers, number, performance.now());
        this.#next();
    }
    /** Ends a request that got no answer, one of 5xx, or an error that tells windows other than the account's. */
    lose(number) {
        this.#windows.lose(number);
        this.#next();
    }
    /** Takes over a ban. Call it before `learn` for the same answer. */
    beginBan(banMs) {
        this.#windows.ban(banMs, performance.now());
        this.#next();
    }
    /** Takes over that the key is not banned. */
    endBan() {
        this.#windows.endBan();
        this.#next();
    }
    /**
     * Lets all leave that may, and fails those that may not wait: all during a ban, and impatient ones when a spent
     * window ends only after 2 minutes. A timer, an answer or a new request calls it again.
     */
    #next() {
        clearTimeout(this.#timer);
        const nowMs = performance.now();
        for (const { leave } of this.#waiting) {
            if (this.#windows.waitMs(nowMs) > 0)
                break;
            leave(this.#windows.sent(nowMs));
        }
        const banMs = this.#windows.banMs(nowMs);
        const spentMs = this.#windows.spentMs(nowMs);
        for (const { isPatient, fail } of this.#waiting) {
            if (banMs > 0)
                fail(refusal("api_key_banned", "the key is banned, so nothing was sent", banMs));
            else if (spentMs > maxWaitMs && !isPatient)
                fail(refusal("rate_limit_exceeded", "nothing is left of the limit, so nothing was sent", spentMs));
        }
        if (this.#waiting.size > 0)
            this.#timer = setTimeout(() => this.#next(), Math.ceil(this.#windows.waitMs(nowMs)));
    }
}
function refusal(code, message, retryAfterMs) {
    return new InventoryApiError(code, message, { status: 429, retryAfterMs: Math.ceil(retryAfterMs) });
}
/**
 * How long an answer may be silent, before it begins and within it: longer than a gateway with the default settings
 * repeats an update.
 */
const silenceTimeoutMs = 45_000;
/** How long a request that fails is repeated, beside the wait for the end of a window. */
const patienceMs = 60_000;
const firstPauseMs = 200;
const maxPauseMs = 10_000;
/** Makes the function that sends all requests of one key. */
function createSender({ baseUrl, apiKey, fetch, pace, }) {
    if (!baseUrl)
        throw new TypeError("baseUrl is missing");
    if (!apiKey)
        throw new TypeError("apiKey is missing"); // such as a variable of the environment that is not set
    const root = baseUrl.replace(/\/+$/, "");
    const authorization = `Bearer ${apiKey}`;
    new Request(root, { headers: { authorization } }); // throws for an invalid address or key
    if (!root.endsWith("/v1"))
        throw new TypeError("baseUrl must end in /v1");
    /**
     * Resolves with an answer of 2xx, or of 304 to an `If-None-Match`.
     *
     * @throws InventoryApiError for every other outcome; the reason of `signal` once that is aborted
     */
    async function send(request) {
        const { isUncharged = false, isPatient = false, signal } = request;
        const headers = new Headers({ ...request.headers, Authorization: authorization }); // throws for invalid values
        let failingSinceMs;
        let limitMs = 0; // the longest wait for the end of a window, which uses up no patience
        for (let pauseMs = firstPauseMs;; pauseMs = Math.min(2 * pauseMs, maxPauseMs)) {
            const askedMs = performance.now();
            const number = isUncharged ? pace.uncharged() : await pace.turn(isPatient, signal);
            if (failingSinceMs !== undefined)
                failingSinceMs += performance.now() - askedMs; // it waited for its turn
            const outcome = await attempt(request, headers, number);
            if (!(outcome instanceof InventoryApiError))
                return outcome;
            if (!isPassing(outcome))
                throw outcome;
            const nowMs = performance.now();
            const { status, retryAfterMs = 0 } = outcome;
            failingSinceMs ??= nowMs;
            if (status === 429)
                limitMs = Math.max(limitMs, retryAfterMs);
            // A patient request cuts a longer `retryAfterMs` short: a limit may be raised, or an outage end early.
            const waitMs = Math.min(retryAfterMs, maxWaitMs) + pauseMs * (0.5 + Math.random() / 2);
            const isTooLong = retryAfterMs > maxWaitMs || nowMs + waitMs > failingSinceMs + limitMs + patienceMs;
            if (isTooLong && !isPatient)
                throw outcome;
            await pause(waitMs, signal);
        }
    }
    async function attempt(request, headers, number) {
        const { method = "GET", path, body = null, maxHoldMs = 0, signal } = request;
        const connection = new AbortController();
        const cut = () => connection.abort();
        let timer = setTimeout(cut, silenceTimeoutMs + maxHoldMs);
        const onPart = () => {
            clearTimeout(timer);
            timer = setTimeout(cut, silenceTimeoutMs);
        };
        signal?.addEventListener("abort", cut);
        try {
            signal?.throwIfAborted();
            const response = await fetch(root + path, { method, headers, body, signal: connection.signal });
            onPart();
            const text = await readText(response, onPart);
            const { status } = response;
            const error = response.ok || (status === 304 && headers.has("If-None-Match")) ? undefined : readError(response, text);
            if (error?.code === "api_key_banned")
                pace.beginBan(error.retryAfterMs ?? 0);
            if (status < 500 && !(error && tellsOthers(response.headers)))
                pace.learn(response.headers, number);
            else
                pace.lose(number);
            return error ?? { status, headers: response.headers, text };
        }
        catch (cause) {
            pace.lose(number);
            signal?.throwIfAborted();
            return new InventoryApiError("no_answer", `${method} ${path} got no answer (${reasonOf(cause)})`, { cause });
        }
        finally {
            clearTimeout(timer);
            signal?.removeEventListener("abort", cut);
        }
    }
    return send;
}
/**
 * Why `fetch` failed: Node and Bun give a code, as `ENOTFOUND` or `ECONNREFUSED`; browsers tell no more than that it
 * did.
 */
function reasonOf(fault) {
    const { name, message, code, cause } = fault;
    if (name === "AbortError")
        return "the time was up";
    return String(cause?.code ?? (typeof code === "string" ? code : message));
}
/** Reads a body, and tells of each part of it: a long list may take its time. */
async function readText({ body }, onPart) {
    const reader = body?.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
        const part = await reader?.read();
        onPart();
        if (!part?.value)
            return text + decoder.decode();
        text += decoder.decode(part.value, { stream: true });
    }
}
/** Whether the same request can succeed later. */
function isPassing({ code, status }) {
    return status === 0 || status === 408 || status >= 500 || (status === 429 && code !== "api_key_banned");
}
/** @throws the reason of `signal` once that is aborted */
function pause(ms, signal) {
    return new Promise((resolve, reject) => {
        signal?.throwIfAborted();
        const abort = () => {
            clearTimeout(timer);
            reject(signal.reason);
        };
        const timer = setTimeout(() => {
            signal?.removeEventListener("abort", abort);
            resolve();
        }, ms);
        signal?.addEventListener("abort", abort, { once: true });
    });
}
/** Less than the 100 s for which proxies wait. */
const waitSeconds = 90;
/** An answer that comes sooner was not held back. */
const minHeldMs = 1_000;
const maxIdlePauseMs = 30_000;
/**
 * Gives every difference once and in order: each question begins where the latest answer ended, so an answer that was
 * lost is asked for again. Questions that bring nothing new, and whose answers were not held back, become rarer.
 */
async function* followStock({ list, changes }, signal) {
    let since;
    for (let pauseMs = minHeldMs;;) {
        if (since === undefined) {
            const items = await list();
            since = items.etag;
            yield { type: "stock", etag: since, items };
        }
        const askedMs = performance.now();
        const difference = await changes(since, waitSeconds).catch(endOfDifferences);
        const wasHeld = performance.now() - askedMs >= minHeldMs;
        const hasChanges = difference !== undefined && difference.changed.length + difference.removed.length > 0;
        const isNew = hasChanges && difference.etag !== since;
        since = difference?.etag;
        if (hasChanges)
            yield { type: "changes", ...difference };
        if (isNew) {
            pauseMs = minHeldMs;
        }
        else if (!wasHeld) {
            await pause(pauseMs * (0.5 + Math.random() / 2), signal);
            pauseMs = Math.min(2 * pauseMs, maxIdlePauseMs);
        }
    }
}
/** @throws the error, unless it says that the differences are no longer known */
function endOfDifferences(error) {
    if (error instanceof InventoryApiError && error.code === "changes_unavailable")
        return;
    throw error;
}
/** Checks arguments before anything is sent: each of these functions throws a TypeError for one that is wrong. */
/**
 * Checks the names of options: one that is misspelt, such as `ifmatch`, must not be ignored.
 *
 * @param where the name of what takes the options, for the message
 */
function toOptions(where, options, ...names) {
    if (typeof options !== "object" || options === null)
        throw new TypeError(`${where} takes ${listed(names)}`);
    const unknown = Object.keys(options).find((name) => !names.includes(name));
    if (unknown === undefined)
        return options;
    throw new TypeError(`${unknown} is no option of ${where}, which takes ${listed(names)}`);
}
const listed = (names) => `{ ${names.join(", ")} }`;
const maxInt32 = 2_147_483_647;
const maxInt64 = 2n ** 63n - 1n;
/** Reads an int64. A number beyond 2^53 is refused: it may have been rounded already. */
function toPetId(id) {
    if (typeof id !== "bigint" && typeof id !== "number")
        throw new TypeError(`petId must be a bigint, such as 1001n, or a number: ${shown(id)}`);
    if (typeof id === "number" && !Number.isSafeInteger(id))
        throw new TypeError(`petId: ${id} is not exact; pass a bigint`);
    const petId = BigInt(id);
    if (petId > maxInt64 || petId < -maxInt64 - 1n)
        throw new TypeError(`petId must be an int64: ${id}`);
    return petId;
}
/** Reads the petIds of entries that come in one answer. */
function toPetIds(petIds) {
    if (petIds.length < 1 || petIds.length > 100)
        throw new TypeError(`petIds must be 1 to 100: ${petIds.length}`);
    return petIds.map(toPetId);
}
function toLimit(limit) {
    return toInteger("limit", limit, 1, 10_000);
}
function toQuantity(quantity) {
    return toInteger("quantity", quantity, 0, maxInt32);
}
function toDelta(delta) {
    if (delta === 0)
        throw new TypeError("delta must not be 0");
    return toInteger("delta", delta, -maxInt32, maxInt32);
}
function toReason(reason) {
    if (reason === undefined || (typeof reason === "string" && /^[^\p{Cc}\p{Cs}]{1,200}$/u.test(reason)))
        return reason;
    throw new TypeError("reason must be a string of 1 to 200 characters without control characters");
}
function toHistoryLimit(limit) {
    return toInteger("limit", limit, 1, 100);
}
function toWaitSeconds(waitSeconds = 0) {
    return toInteger("waitSeconds", waitSeconds, 0, 90);
}
function toGraceSeconds(graceSeconds) {
    return toInteger("graceSeconds", graceSeconds, 0, 604_800);
}
function toHours(hours) {
    return toInteger("hours", hours, 1, 168);
}
function toInteger(name, value, min, max) {
    if (Number.isInteger(value) && value >= min && value <= max)
        return value;
    throw new TypeError(`${name} must be an integer from ${min} to ${max}: ${shown(value)}`);
}
/** A value in a message. Quotes tell a string from the number that it looks like. */
function shown(value) {
    return typeof value === "string" ? JSON.stringify(value) : String(value);
}
/** Checks the `since` tag of `changes`. It is empty where a proxy removes the header. */
function toSince(since) {
    if (typeof since === "string" && since.trim())
        return since;
    throw new TypeError("since is empty: pass the etag of a list or of changes");
}
/**
 * Reads a precondition. One that is empty must not become none: the caller would overwrite what it has not seen. An
 * entry has an empty `etag` where a proxy removes the header. JavaScript may pass null, too.
 */
function toIfMatch(ifMatch) {
    if (ifMatch === undefined || ifMatch?.trim())
        return ifMatch;
    throw new TypeError("ifMatch is empty: pass an ETag, or leave ifMatch out");
}
const validKey = /^(?:"([\w.:-]{1,64})"|([\w.:-]{1,64}))$/;
/**
 * Reads a key as the API does, bare or as a quoted string, so that both are the same key.
 *
 * @returns the bare key; a new key when none is given
 */
function toIdempotencyKey(idempotencyKey) {
    if (idempotencyKey === undefined)
        return newIdempotencyKey();
    const [, quoted, bare] = (typeof idempotencyKey === "string" && validKey.exec(idempotencyKey)) || [];
    const key = quoted ?? bare;
    if (key !== undefined)
        return key;
    throw new TypeError("idempotencyKey must be 1 to 64 of A-Z a-z 0-9 _ . : -");
}
/** A key for one update: 128 random bits. */
function newIdempotencyKey() {
    return crypto.getRandomValues(new BigUint64Array(2)).join("-");
}
/** What the API takes: updates in a request, bytes of its body, and characters of its key. */
const maxUpdates = 100;
const maxBytes = 16 * 1024;
const maxKeyLength = 64;
const utf8 = new TextEncoder();
/**
 * Puts updates into as few requests as the API allows, in their order. An update that is too large by itself goes
 * alone, for the API to refuse. Each request has a key of its own: the same one for the same `idempotencyKey`.
 *
 * @throws TypeError for an update or a key that cannot be sent, and for two updates of one pet
 */
function toRequests(updates, idempotencyKey) {
    const key = toIdempotencyKey(idempotencyKey);
    const all = updates.map(updateJson);
    checkDifferent(updates);
    const parts = [];
    let room = 0;
    for (const [start, text] of all.entries()) {
        const bytes = utf8.encode(text).length + 1; // and what follows it: a comma or the last bracket
        if (bytes > room || parts.at(-1).texts.length === maxUpdates) {
            parts.push({ start, texts: [] });
            room = maxBytes - 1; // the first bracket
        }
        parts.at(-1).texts.push(text);
        room -= bytes;
    }
    const suffixOf = (start) => (start === 0 ? "" : `.${start}`);
    const longest = suffixOf(parts.at(-1)?.start ?? 0);
    const maxLength = maxKeyLength - longest.length;
    if (key.length > maxLength) {
        const reason = `the last of ${parts.length} requests appends ${longest}`;
        throw new TypeError(`idempotencyKey must have at most ${maxLength} characters: ${reason}`);
    }
    return parts.map(({ start, texts }) => ({ start, key: key + suffixOf(start), body: `[${texts}]` }));
}
/** One of many updates as JSON, with every digit of its petId. */
function updateJson(update) {
    const { petId, quantity, ifMatch, reason } = toOptions("an update", update, "petId", "quantity", "ifMatch", "reason");
    return changeJson(petId, { quantity: toQuantity(quantity), ifMatch: toIfMatch(ifMatch), reason: toReason(reason) });
}
/** The body of adjustments that are made all or none. @throws TypeError for one that cannot be sent, or two of a pet */
function toAdjustmentsBody(adjustments) {
    if (adjustments.length < 1 || adjustments.length > maxUpdates) {
        throw new TypeError(`adjustments must be 1 to ${maxUpdates}: ${adjustments.length}`);
    }
    const texts = adjustments.map((adjustment) => {
        const { petId, delta, ifMatch, reason } = toOptions("an adjustment", adjustment, "petId", "delta", "ifMatch", "reason");
        return changeJson(petId, { delta: toDelta(delta), ifMatch: toIfMatch(ifMatch), reason: toReason(reason) });
    });
    checkDifferent(adjustments);
    return `[${texts}]`;
}
/** Refuses two changes of one pet: in two requests the API would take both, and the later one would win. */
function checkDifferent(changes) {
    const places = new Map();
    for (const [place, { petId }] of changes.entries()) {
        const id = String(petId);
        if (places.has(id))
            throw new TypeError(`petId ${id} is named twice: at ${places.get(id)} and ${place}`);
        places.set(id, place);
    }
}
function changeJson(petId, rest) {
    return `{"petId":${toPetId(petId)},${JSON.stringify(rest).slice(1)}`;
}
/** Converts answers with entries to what callers get. */
function etagOf({ headers }) {
    return headers.get("etag") ?? "";
}
function listOf(answer) {
    const items = readBody(answer, (sent) => sent.map(withPetId));
    return Object.defineProperty(items, "etag", { value: etagOf(answer) });
}
function entryOf(answer) {
    return { ...readBody(answer, withPetId), etag: etagOf(answer) };
}
function changesOf(answer) {
    return readBody(answer, ({ changed, removed, ...rest }) => ({
        ...rest,
        changed: changed.map(withPetId),
        removed: removed.map(BigInt),
    }));
}
/** The client of the public API for consumers in TypeScript and JavaScript. */
/** Maximum entries that are remembered with their tags: the latest ones. */
const maxRemembered = 1_000;
/** @throws TypeError for options that are missing, unknown or invalid */
export function createInventoryApi(options) {
    const { baseUrl, apiKey, fetch = globalThis.fetch, } = toOptions("createInventoryApi", options, ...["baseUrl", "apiKey", "fetch"]);
    const pace = new Pace();
    const send = createSender({ baseUrl, apiKey, fetch, pace });
    const entries = new Map();
    let latest;
    const remember = (entry) => {
        entries.delete(entry.petId);
        entries.set(entry.petId, entry);
        if (entries.size > maxRemembered)
            entries.delete(entries.keys().next().value);
        return entry;
    };
    async function list(request = {}) {
        const known = latest;
        const answer = await send({ ...request, path: "/inventory", headers: unless(known) });
        if (answer.status === 304)
            return known;
        latest = listOf(answer);
        return latest;
    }
    async function* pages(options = {}) {
        const { limit = 1_000, signal } = toOptions("pages", options, "limit", "signal");
        for (let query = `?limit=${toLimit(limit)}`;;) {
            const page = listOf(await send({ path: `/inventory${query}`, signal }));
            yield page;
            if (page.length < limit)
                return;
            query = `?limit=${limit}&after=${page.at(-1).petId}`;
        }
    }
    async function get(petId, options = {}) {
        const { signal } = toOptions("get", options, "signal");
        const known = entries.get(toPetId(petId));
        const answer = await send({ path: `/inventory/${toPetId(petId)}`, headers: unless(known), signal });
        return remember(answer.status === 304 ? known : entryOf(answer));
    }
    async function update(petId, quantity, options = {}) {
        toOptions("update", options, "ifMatch", "reason", "idempotencyKey", "signal");
        const ifMatch = toIfMatch(options.ifMatch);
        const headers = {
            ...updateHeaders(toIdempotencyKey(options.idempotencyKey)),
            ...(ifMatch && { "If-Match": ifMatch }),
        };
        const path = `/inventory/${toPetId(petId)}`;
        const body = JSON.stringify({ quantity: toQuantity(quantity), reason: toReason(options.reason) });
        const answer = await send({ method: "PATCH", path, headers, body, signal: options.signal });
        return updatedBy(answer, remember(entryOf(answer)));
    }
    async function updateMany(updates, options = {}) {
        const { idempotencyKey, signal } = toOptions("updateMany", options, "idempotencyKey", "signal");
        const results = [];
        for (const { start, key, body } of toRequests(updates, idempotencyKey)) {
            const headers = updateHeaders(key);
            try {
                const answer = await send({ method: "POST", path: "/inventory/updates", headers, body, signal });
                results.push(...readBody(answer, (sent) => sent.map(withPetId)));
            }
            catch (error) {
                if (start === 0 || !(error instanceof InventoryApiError))
                    throw error;
                const { code, message, status } = error;
                const failed = updates
                    .slice(start)
                    .map(({ petId }) => ({ petId: toPetId(petId), error: { code, message, status } }));
                return [...results, ...failed];
            }
        }
        for (const result of results) {
            if ("error" in result)
                continue;
            const { replayed: _, ...entry } = result;
            remember(entry);
        }
        return results;
    }
    async function adjustMany(adjustments, options = {}) {
        const { idempotencyKey, signal } = toOptions("adjustMany", options, "idempotencyKey", "signal");
        const body = toAdjustmentsBody(adjustments);
        const headers = updateHeaders(toIdempotencyKey(idempotencyKey));
        const answer = await send({ method: "POST", path: "/inventory/adjustments", headers, body, signal });
        const adjusted = readBody(answer, (sent) => sent.map(withPetId));
        return adjusted.map((entry) => updatedBy(answer, remember(entry)));
    }
    async function adjust(petId, delta, options = {}) {
        const { ifMatch, reason, ...ofMany } = toOptions("adjust", options, "ifMatch", "reason", "idempotencyKey", "signal");
        return (await adjustMany([{ petId, delta, ifMatch, reason }], ofMany))[0];
    }
    async function history(petId, options = {}) {
        const { limit, before, signal } = toOptions("history", options, "limit", "before", "signal");
        const query = new URLSearchParams();
        if (limit !== undefined)
            query.set("limit", String(toHistoryLimit(limit)));
        if (before)
            query.set("before", before);
        const path = `/inventory/${toPetId(petId)}/history?${query}`;
        return readBody(await send({ path, signal }), (sent) => sent);
    }
    async function changes(since, { waitSeconds, ...request } = {}) {
        const path = `/inventory/changes?since=${encodeURIComponent(toSince(since))}`;
        const seconds = toWaitSeconds(waitSeconds);
        const held = seconds > 0 && { headers: { Prefer: `wait=${seconds}` }, maxHoldMs: seconds * 1_000 };
        const answer = await send({ ...request, ...held, path });
        return changesOf(answer);
    }
    async function rateLimit(options = {}) {
        const { signal } = toOptions("rateLimit", options, "signal");
        return readBody(await send({ path: "/rate_limit", isUncharged: true, signal }), (status) => {
            if (!status.ban)
                pace.endBan();
            return status;
        });
    }
    return {
        list: async (options = {}) => {
            const { petIds, signal } = toOptions("list", options, "petIds", "signal");
            if (petIds === undefined)
                return await list({ signal });
            return listOf(await send({ path: `/inventory?petIds=${toPetIds(petIds)}`, signal }));
        },
        pages,
        get,
        update,
        updateMany,
        adjust,
        adjustMany,
        history,
        changes: async (since, options = {}) => await changes(since, toOptions("changes", options, "waitSeconds", "signal")),
        follow: (options = {}) => {
            const { signal } = toOptions("follow", options, "signal");
            const request = { isPatient: true, signal };
            return followStock({ list: () => list(request), changes: (since, waitSeconds) => changes(since, { ...request, waitSeconds }) }, signal);
        },
        pet: async (petId, options = {}) => {
            const { signal } = toOptions("pet", options, "signal");
            return readBody(await send({ path: `/pets/${toPetId(petId)}`, signal }), withIds);
        },
        orders: async (options = {}) => {
            const { signal } = toOptions("orders", options, "signal");
            return readBody(await send({ path: "/store/orders", signal }), (sent) => sent.map(withIds));
        },
        rateLimit,
        usage: async (options = {}) => {
            const { hours, signal } = toOptions("usage", options, "hours", "signal");
            const query = hours === undefined ? "" : `?hours=${toHours(hours)}`;
            return readBody(await send({ path: `/usage${query}`, isUncharged: true, signal }), (sent) => sent);
        },
        rotateKey: async (options = {}) => {
            const { graceSeconds, signal } = toOptions("rotateKey", options, "graceSeconds", "signal");
            const body = graceSeconds === undefined ? "{}" : JSON.stringify({ graceSeconds: toGraceSeconds(graceSeconds) });
            const headers = { "Content-Type": "application/json" };
            const answer = await send({ method: "POST", path: "/keys/rotate", headers, body, signal });
            return readBody(answer, (sent) => sent);
        },
    };
}
/** An entry after an update, marked where an earlier request with the same key had made it. */
function updatedBy({ headers }, entry) {
    return headers.get("idempotency-replayed") === "true" ? { ...entry, replayed: true } : entry;
}
const updateHeaders = (key) => ({ "Content-Type": "application/json", "Idempotency-Key": key });
function unless(known) {
    return known?.etag ? { "If-None-Match": known.etag } : {};
}
