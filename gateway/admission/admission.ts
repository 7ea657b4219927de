/** Decides whether a request may go on. The order of the checks: key, ban, limits, scope. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Authenticator } from "../accounts/keys/authenticator.ts";
import type { PlanName } from "../accounts/keys/plans.ts";
import type { Principal, Scope } from "../accounts/keys/principal.ts";
import { ApiError } from "../http/api-error.ts";
import { peerAddress } from "../http/client-address.ts";
import { bearerToken, refuseDuplicates } from "../http/request.ts";
import type { HeaderList, RequestContext } from "../http/request-context.ts";
import {
  bannedWindows,
  bindingWindow,
  type Decision,
  type Limiter,
  limitHeaders,
  retryAfter,
  type Window,
} from "../limits/windows.ts";
import type { AccountGuard } from "./account-guard.ts";
import { AddressGuard, docsPerMinute } from "./address-guard.ts";
import { invalidKey, missingKey, missingScope, overLimit, unavailable } from "./admission-errors.ts";
import type { Strikes } from "./strikes.ts";

export interface AdmissionOptions {
  readonly authenticator: Pick<Authenticator, "remembered" | "authenticate">;
  /** Gets the caller of every request with a valid key, and what became of it. */
  readonly onUse: (principal: Principal, outcome: ChargeOutcome) => void;
  /** Counts the requests of accounts. */
  readonly limiter: Limiter;
  readonly windowsFor: (principal: Principal) => readonly Window[];
  /** Limits the operations that are not charged to the account. */
  readonly ownAccountGuard: AccountGuard;
  /** Requests without a valid key that an address has in a minute. */
  readonly addressGuardPerMinute: number;
  /** Counts the strikes of families of keys; too many bring a ban. */
  readonly strikes: Pick<Strikes, "throttled">;
  /** Gets the plan and the reason of every 429 of limits, bans and addresses; `AccountGuard` reports its own. */
  readonly onThrottled: (plan: PlanName | "none", reason: "minute" | "day" | "ban" | "address") => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** A request with a valid key is charged to its account, refused by a spent window or a ban, or not charged at all. */
export type ChargeOutcome = "charged" | "refused" | "uncharged";

/** What an operation asks of its callers. */
export interface OperationAccess {
  /** Null where any valid key will do. */
  readonly scope: Scope | null;
  /** True for operations that are not charged and also serve banned keys; `ownAccountGuard` limits them. */
  readonly isUncharged?: boolean;
  /**
   * Begins to load what the handler will need, while the limits are decided; the handler finds the promise in
   * `context.prefetched`. Not called without the scope, nor when this gateway already knows that nothing is left.
   *
   * @param arrivedMs the arrival of the request, by `performance.now()`
   */
  readonly prefetch?: (arrivedMs: number) => Promise<unknown>;
}

export interface Admission {
  /**
   * Admits a request that has a valid key, no ban, something left of its limits, and the scope of its operation. An
   * uncharged operation admits banned keys, too, and has a limit of its own. Sets `token`, `principal`, `limitHeaders`,
   * `shownWindows` and `prefetched` of its context.
   *
   * @param operation undefined where there is none by the path and method: such a request needs no scope
   * @throws ApiError for every other request
   */
  readonly admit: (
    request: IncomingMessage,
    context: RequestContext,
    operation: OperationAccess | undefined,
  ) => Promise<void>;
  /** True when this gateway remembers that the key works and is not banned. False also when it has to be looked up. */
  readonly isKeyKnownGood: (context: RequestContext) => boolean;
  /**
   * Looks again at the key of a request that is held, or had to wait.
   *
   * @throws ApiError invalid_api_key, api_key_banned; service_unavailable when the key cannot be looked up
   */
  readonly reverifyKeyAndBan: (context: RequestContext) => Promise<void>;
  /** The same for an operation that also serves banned keys. @throws ApiError invalid_api_key, service_unavailable */
  readonly reverifyKey: (context: RequestContext) => Promise<void>;
  /** Does `reverifyKeyAndBan` for a held request that goes on, and renews its `limitHeaders` without a charge. */
  readonly readmit: (context: RequestContext) => Promise<void>;
  /**
   * Admits a request for the documentation, which needs no key. It is counted by its address, in a limit of its own.
   *
   * @throws ApiError rate_limit_exceeded
   */
  readonly admitDocs: (request: IncomingMessage, context: RequestContext) => Promise<void>;
  /** Sets the limit headers of the address: for a request that needs no key, or fails before its caller is known. */
  readonly setAddressHeaders: (context: RequestContext) => void;
  /** The limit headers of an address, without a charge. */
  readonly limitHeadersOf: (address: string) => HeaderList;
}

/** Makes the admission. It limits requests without a valid key by their address, in the memory of this process. */
export function createAdmission(options: AdmissionOptions): Admission {
  const { authenticator, onUse, limiter, windowsFor, ownAccountGuard, strikes, onThrottled, now } = options;
  const guard = new AddressGuard("without a valid key", options.addressGuardPerMinute, now);
  const docsGuard = new AddressGuard("for documents", docsPerMinute, now);

  const setAddressHeaders = (context: RequestContext) => {
    context.limitHeaders = guard.limitHeadersOf(context.clientAddress);
  };

  async function admit(request: IncomingMessage, context: RequestContext, operation: OperationAccess | undefined) {
    let principal: Principal;
    try {
      context.token = bearerToken(request);
      if (context.token === "") throw missingKey();
      principal = authenticator.remembered(context.token) ?? (await lookUp(context.token));
    } catch (cause) {
      throw refuseUnidentified(request, context, cause);
    }
    context.principal = principal;
    const charging = operation?.isUncharged
      ? admitUncharged(context, principal)
      : admitCharged(context, principal, operation);
    if (charging) await charging;
    if (operation && !mayUse(principal, operation)) throw missingScope(operation.scope);
  }

  /**
   * Charges the account.
   *
   * @returns a promise where Redis has to be asked
   * @throws ApiError rate_limit_exceeded, api_key_banned
   */
  function admitCharged(context: RequestContext, principal: Principal, operation: OperationAccess | undefined) {
    const windows = windowsFor(principal);
    if (principal.bannedUntilMs > now()) {
      onUse(principal, "refused");
      throw refuseBanned(context, principal, windows);
    }
    const deciding = limiter.charge(principal.accountId, windows);
    const mayGoOn = deciding instanceof Promise || deciding.admitted;
    if (mayGoOn && operation?.prefetch && mayUse(principal, operation)) {
      context.prefetched = operation.prefetch(context.arrivedMs);
      context.prefetched.catch(() => {}); // a refused request does not wait for it
    }
    if (deciding instanceof Promise) return deciding.then((decision) => enforce(decision, windows, context, principal));
    enforce(deciding, windows, context, principal);
    return undefined;
  }

  /** Refuses a request that the limits of its account do not admit. @throws ApiError rate_limit_exceeded */
  function enforce(decision: Decision, windows: readonly Window[], context: RequestContext, principal: Principal) {
    context.limitHeaders = limitHeaders(windows, decision);
    onUse(principal, decision.admitted ? "charged" : "refused");
    if (decision.admitted) return;
    const { name, resetAtMs } = bindingWindow(decision.states);
    strikes.throttled(principal.familyId, resetAtMs - decision.nowMs);
    onThrottled(principal.plan, name === "minute" ? "minute" : "day");
    throw overLimit(decision);
  }

  /** Charges the guard of the account alone; its 429s are no strikes. @throws ApiError rate_limit_exceeded */
  async function admitUncharged(context: RequestContext, principal: Principal) {
    onUse(principal, "uncharged");
    await ownAccountGuard.admit(context, principal.accountId);
    await showLimits(context, principal);
  }

  /** Sets the windows of the account and their headers, as they stand. */
  async function showLimits(context: RequestContext, principal: Principal) {
    const windows = windowsFor(principal);
    const current = await limiter.readShared(principal.accountId, windows);
    context.limitHeaders = limitHeaders(windows, current);
    context.shownWindows = current.states;
  }

  function isKeyKnownGood({ token }: RequestContext): boolean {
    const principal = authenticator.remembered(token);
    return principal !== undefined && principal.bannedUntilMs <= now();
  }

  async function reverifyKey(context: RequestContext) {
    try {
      context.principal = authenticator.remembered(context.token) ?? (await lookUp(context.token));
    } catch (cause) {
      setAddressHeaders(context);
      throw cause instanceof ApiError ? cause : unavailable(cause);
    }
  }

  async function reverifyKeyAndBan(context: RequestContext) {
    await reverifyKey(context);
    const principal = context.principal!;
    if (principal.bannedUntilMs > now()) throw refuseBanned(context, principal, windowsFor(principal));
  }

  async function readmit(context: RequestContext) {
    await reverifyKeyAndBan(context);
    await showLimits(context, context.principal!);
  }

  async function admitDocs({ socket, rawHeaders }: IncomingMessage, context: RequestContext) {
    const decision = docsGuard.charge(context.clientAddress);
    if (!decision.admitted) throw refuseAddress(socket, context, docsGuard, decision);
    context.limitHeaders = limitHeaders(docsGuard.windows, decision);
    refuseDuplicates(rawHeaders);
  }

  /** Finds the caller of a key that this gateway does not remember. @throws ApiError invalid_api_key */
  async function lookUp(token: string): Promise<Principal> {
    const principal = await authenticator.authenticate(token);
    if (principal === undefined) throw invalidKey();
    return principal;
  }

  /** Charges the address of a request without a valid key. @returns the error that answers the request */
  function refuseUnidentified({ socket }: IncomingMessage, context: RequestContext, cause: unknown): ApiError {
    if (!(cause instanceof ApiError)) {
      setAddressHeaders(context);
      return unavailable(cause);
    }
    const decision = guard.charge(context.clientAddress);
    if (!decision.admitted) return refuseAddress(socket, context, guard, decision);
    context.limitHeaders = limitHeaders(guard.windows, decision);
    return cause;
  }

  /** Refuses an address. A refused client keeps no connection, but a proxy keeps its own, which serves many clients. */
  function refuseAddress(socket: Socket, context: RequestContext, by: AddressGuard, decision: Decision): ApiError {
    context.limitHeaders = limitHeaders(by.windows, decision);
    onThrottled("none", "address");
    const headers = peerAddress(socket) === context.clientAddress ? { Connection: "close" } : undefined;
    return overLimit(decision, { message: by.refusalMessage, headers });
  }

  function refuseBanned(context: RequestContext, principal: Principal, windows: readonly Window[]): ApiError {
    const current = limiter.readLocal(principal.accountId, windows);
    const decision = bannedWindows(current, principal.bannedUntilMs, now());
    context.limitHeaders = limitHeaders(windows, decision);
    onThrottled(principal.plan, "ban");
    return new ApiError("api_key_banned", { headers: { "Retry-After": retryAfter(decision) } });
  }

  const { limitHeadersOf } = guard;
  const again = { reverifyKey, reverifyKeyAndBan, readmit };
  return { admit, isKeyKnownGood, ...again, admitDocs, setAddressHeaders, limitHeadersOf };
}

function mayUse({ scopes }: Principal, { scope }: OperationAccess): boolean {
  return scope === null || scopes.has(scope);
}
