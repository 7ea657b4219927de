import type { Request, Response } from "express";
import type { RateLimiterAbstract } from "rate-limiter-flexible";
import type { Authenticator } from "../auth/authenticator.ts";
import { bearerToken } from "../auth/bearer.ts";
import type { PlanName, Principal } from "../auth/principal.ts";
import { addressBlock } from "../http/client-address.ts";
import type { FlatHeaders } from "../http/common-headers.ts";
import { ApiError } from "../http/errors.ts";
import type { Locals } from "../http/request-context.ts";
import { banned, limitHeaders, retryAfter } from "./limit-headers.ts";
import { Strangers, TooManyStrangersError } from "./look-up-limit.ts";
import { decide, type MemoryWindows } from "./memory-windows.ts";
import type { RefusalCounter } from "./refusals.ts";
import { bindingWindow, type Decision, type Window } from "./windows.ts";

export interface AdmissionOptions {
  readonly authenticator: Authenticator;
  /** Told of every request that brings a valid key. */
  readonly onUse: (principal: Principal) => void;
  /** Told of every request whose limits are about to be decided: what its answer needs can be asked for meanwhile. */
  readonly onLikely: (request: Request, response: Response) => void;
  /** Counts the requests of accounts. */
  readonly limiter: RateLimiterAbstract;
  /** How an account stood when this replica last heard of it, without a charge. */
  readonly standing: (id: string, windows: readonly Window[]) => Decision;
  /** Counts the requests of addresses that bring no valid key. */
  readonly guard: MemoryWindows;
  readonly guardPerMinute: number;
  readonly windowsOf: (principal: Principal) => readonly Window[];
  /** Counts the refusals of keys; too many bring a ban. */
  readonly refusals: Pick<RefusalCounter, "refused">;
  /** Told of every 429. */
  readonly onRefused: (plan: PlanName | "none", reason: Window["name"] | "ban" | "address") => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

export interface Admission {
  /**
   * Lets a request pass that has a valid key, no ban and something left of its limits.
   *
   * @throws ApiError of the contract for any other
   */
  readonly admit: (request: Request, response: Response) => Promise<void>;
  /** For what needs no key: sets the headers of the address's limit. */
  readonly announce: (response: Response) => void;
  /** The limit headers of an address. */
  readonly headersFor: (address: string) => FlatHeaders;
}

/**
 * The order of the checks: key, ban, limits. Who has no valid key is the address it comes from, with a limit of its
 * own. The limit headers are set before anything else can answer.
 */
export function admission(options: AdmissionOptions): Admission {
  const { authenticator, onUse, onLikely, limiter, standing, guard, windowsOf, refusals, onRefused, now } = options;
  const guardWindows: readonly Window[] = [{ name: "minute", seconds: 60, limit: options.guardPerMinute }];

  const headersFor = (address: string) => limitHeaders(guardWindows, guard.peek(addressBlock(address), guardWindows));

  /** Charges the address. @throws ApiError rate_limit_exceeded when it has no more */
  async function chargeAddress(locals: Locals): Promise<void> {
    const decision = await decide(guard, addressBlock(locals.clientAddress), guardWindows);
    locals.limits = limitHeaders(guardWindows, decision);
    if (decision.admitted) return;
    onRefused("none", "address");
    throw overLimit(decision);
  }

  async function refuseStranger(locals: Locals, refusal: ApiError): Promise<never> {
    await chargeAddress(locals);
    throw refusal;
  }

  function refuseBanned(locals: Locals, windows: readonly Window[], principal: Principal): never {
    const decision = banned(standing(principal.accountId, windows), principal.bannedUntilMs);
    locals.limits = limitHeaders(windows, decision);
    onRefused(principal.plan, "ban");
    throw new ApiError("api_key_banned", { headers: { "Retry-After": retryAfter(decision) } });
  }

  const strangers = new Strangers({
    remaining: (block) => guard.peek(block, guardWindows).windows[0]!.remaining,
    now,
  });

  async function identify(token: string, locals: Locals): Promise<Principal | undefined> {
    try {
      return await authenticator.authenticate(token, (lookUp) =>
        strangers.lookUp(addressBlock(locals.clientAddress), lookUp),
      );
    } catch (cause) {
      if (cause instanceof TooManyStrangersError) {
        await chargeAddress(locals); // a key that was not looked up may be a good one: nobody is told that it is not
        return await identify(token, locals); // the window of the address has just begun anew
      }
      locals.limits = headersFor(locals.clientAddress);
      throw new ApiError("service_unavailable", { cause, headers: { "Retry-After": "1" } });
    }
  }

  const admit = async (request: Request, response: Response): Promise<void> => {
    const locals = response.locals as Locals;
    let token: string | undefined;
    try {
      token = bearerToken(request);
    } catch (refusal) {
      return await refuseStranger(locals, refusal as ApiError);
    }
    if (token === undefined) return await refuseStranger(locals, missingKey());
    const principal = authenticator.remembered(token) ?? (await identify(token, locals));
    if (principal === undefined) return await refuseStranger(locals, invalidKey());

    locals.principal = principal;
    onUse(principal);
    const windows = windowsOf(principal);
    if (principal.bannedUntilMs > now()) return refuseBanned(locals, windows, principal);
    onLikely(request, response);
    const decision = await decide(limiter, principal.accountId, windows);
    locals.limits = limitHeaders(windows, decision);
    if (!decision.admitted) {
      refusals.refused(principal.keyId, locals.arrivedAtMs);
      onRefused(principal.plan, bindingWindow(decision.windows).name);
      throw overLimit(decision);
    }
  };

  const announce = (response: Response) => {
    const locals = response.locals as Locals;
    locals.limits = headersFor(locals.clientAddress);
  };

  return { admit, announce, headersFor };
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
