/** Decides whether a request may go on. The order of the checks: key, ban, limits, scope. */
import type { IncomingMessage } from "node:http";
import type { Authenticator, LimitLookUp } from "../auth/authenticator.ts";
import type { PlanName } from "../auth/plans.ts";
import type { Principal, Scope } from "../auth/principal.ts";
import { bearerToken } from "../http/bearer.ts";
import { addressBlock } from "../http/client-address.ts";
import { ApiError } from "../http/errors.ts";
import type { HeaderList, RequestContext } from "../http/request-context.ts";
import { AddressGuard } from "./address-guard.ts";
import { limitHeaders, retryAfter, untilBanEnds } from "./limit-headers.ts";
import { AddressExhaustedError, LookUpLimit } from "./look-up-limit.ts";
import type { RefusalCounter } from "./refusals.ts";
import { bindingWindow, type Decision, type Limiter, type Window } from "./windows.ts";

export interface AdmissionOptions {
  readonly authenticator: Pick<Authenticator, "remembered" | "authenticate">;
  /** Gets the caller of every request with a valid key. */
  readonly onUse: (principal: Principal) => void;
  /** Counts the requests of accounts. */
  readonly limiter: Limiter;
  /** The windows of an account as this replica last heard of them, without a charge. */
  readonly currentLimits: (accountId: string, windows: readonly Window[]) => Decision;
  readonly windowsFor: (principal: Principal) => readonly Window[];
  /** Requests without a valid key that an address has in a minute. */
  readonly guardPerMinute: number;
  /** Counts the refusals of keys; too many bring a ban. */
  readonly refusals: Pick<RefusalCounter, "refused">;
  /** Gets the plan and the reason of every refusal, that is, of every 429. */
  readonly onRefused: (plan: PlanName | "none", reason: Window["name"] | "ban" | "address") => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** What an operation asks of its callers. */
export interface OperationAccess {
  readonly scope: Scope;
  /** Begins what the answer needs while the limits are being decided, for callers with the scope. */
  readonly meanwhile?: ((arrivedMs: number) => Promise<unknown>) | undefined;
}

export interface Admission {
  /**
   * Admits a request that has a valid key, no ban, something left of its limits, and the scope of its operation. Sets
   * `principal`, `limits` and `meanwhile` of its context.
   *
   * @param operation undefined where there is none by the path and method: such a request needs no scope
   * @throws ApiError of the contract for every other request
   */
  readonly admit: (
    request: IncomingMessage,
    context: RequestContext,
    operation: OperationAccess | undefined,
  ) => Promise<void>;
  /**
   * Admits a request for the documentation, which needs no key and is counted by its address, beside all others.
   *
   * @throws ApiError rate_limit_exceeded
   */
  readonly admitDocs: (context: RequestContext) => Promise<void>;
  /** Sets the limit headers of the address, for what needs no key. */
  readonly setAddressLimits: (context: RequestContext) => void;
  /** The limit headers of an address, without a charge. */
  readonly headersFor: (address: string) => HeaderList;
}

/** Requests for the documentation that an address has in a minute: reading the page takes a few. */
const docsPerMinute = 300;

/** Makes the admission. It limits requests without a valid key by their address, in the memory of this process. */
export function createAdmission(options: AdmissionOptions): Admission {
  const { authenticator, onUse, limiter, currentLimits, windowsFor, refusals, onRefused, now } = options;
  const guard = new AddressGuard(options.guardPerMinute);
  const docsGuard = new AddressGuard(docsPerMinute);
  const lookUpLimit = new LookUpLimit((block) => guard.currentLimits(block));

  const headersFor = (address: string) => limitHeaders(guard.windows, guard.currentLimits(addressBlock(address)));

  const setAddressLimits = (context: RequestContext) => {
    context.limits = headersFor(context.clientAddress);
  };

  async function admit(request: IncomingMessage, context: RequestContext, operation: OperationAccess | undefined) {
    let principal: Principal;
    try {
      const token = bearerToken(request);
      if (token === undefined) throw missingKey();
      principal = authenticator.remembered(token) ?? (await lookUp(token, context));
    } catch (cause) {
      throw await refuseUnidentified(context, cause);
    }
    context.principal = principal;
    onUse(principal);
    const windows = windowsFor(principal);
    if (principal.bannedUntilMs > now()) throw refuseBanned(context, principal, windows);
    if (operation?.meanwhile && principal.scopes.has(operation.scope)) {
      context.meanwhile = operation.meanwhile(context.startedMs);
      context.meanwhile.catch(() => {}); // a refused request does not wait for it
    }
    const decision = await limiter.decide(principal.accountId, windows);
    context.limits = limitHeaders(windows, decision);
    if (!decision.admitted) {
      const { name, resetAtMs } = bindingWindow(decision.windows);
      refusals.refused(principal.keyId, { arrivedAtMs: context.arrivedAtMs, waitMs: resetAtMs - decision.nowMs });
      onRefused(principal.plan, name);
      throw overLimit(decision);
    }
    if (operation) checkScope(principal, operation.scope);
  }

  async function admitDocs(context: RequestContext) {
    const decision = await docsGuard.charge(addressBlock(context.clientAddress));
    if (!decision.admitted) throw refuseAddress(context, docsGuard, decision);
    context.limits = limitHeaders(docsGuard.windows, decision);
  }

  /** Looks a key up that this gateway does not remember. @throws ApiError invalid_api_key, AddressExhaustedError */
  async function lookUp(token: string, context: RequestContext): Promise<Principal> {
    const limitLookUp: LimitLookUp = (find) => {
      context.isHeld = true;
      return lookUpLimit.run(addressBlock(context.clientAddress), () => {
        context.isHeld = false;
        return find();
      });
    };
    const principal = await authenticator.authenticate(token, limitLookUp);
    if (principal === undefined) throw invalidKey();
    return principal;
  }

  /** Charges the address of a request without a valid key. @returns the error that answers the request */
  async function refuseUnidentified(context: RequestContext, cause: unknown): Promise<ApiError> {
    // The key was not looked up and may be a good one, so it is not called invalid.
    if (cause instanceof AddressExhaustedError) return refuseAddress(context, guard, cause.decision);
    if (!(cause instanceof ApiError)) {
      setAddressLimits(context);
      return new ApiError("service_unavailable", { cause, headers: { "Retry-After": "1" } });
    }
    const decision = await guard.charge(addressBlock(context.clientAddress));
    if (!decision.admitted) return refuseAddress(context, guard, decision);
    context.limits = limitHeaders(guard.windows, decision);
    return cause;
  }

  function refuseAddress(context: RequestContext, { windows }: AddressGuard, decision: Decision): ApiError {
    context.limits = limitHeaders(windows, decision);
    onRefused("none", "address");
    return overLimit(decision);
  }

  function refuseBanned(context: RequestContext, principal: Principal, windows: readonly Window[]): ApiError {
    const decision = untilBanEnds(currentLimits(principal.accountId, windows), principal.bannedUntilMs);
    context.limits = limitHeaders(windows, decision);
    onRefused(principal.plan, "ban");
    return new ApiError("api_key_banned", { headers: { "Retry-After": retryAfter(decision) } });
  }

  return { admit, admitDocs, setAddressLimits, headersFor };
}

function overLimit(decision: Decision): ApiError {
  return new ApiError("rate_limit_exceeded", { headers: { "Retry-After": retryAfter(decision) } });
}

/** RFC 6750 section 3: the error attribute only where a token was sent. */
function missingKey(): ApiError {
  return new ApiError("missing_api_key", { headers: { "WWW-Authenticate": 'Bearer realm="petstore"' } });
}

function invalidKey(): ApiError {
  return new ApiError("invalid_api_key", {
    headers: { "WWW-Authenticate": 'Bearer realm="petstore", error="invalid_token"' },
  });
}

/**
 * Lets only keys with this scope pass (RFC 6750 section 3.1).
 *
 * @throws ApiError insufficient_scope
 */
function checkScope({ scopes }: Principal, scope: Scope): void {
  if (scopes.has(scope)) return;
  throw new ApiError("insufficient_scope", {
    message: `The API key does not have the scope ${scope}.`,
    headers: { "WWW-Authenticate": `Bearer realm="petstore", error="insufficient_scope", scope="${scope}"` },
  });
}
