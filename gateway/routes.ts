import { type ErrorRequestHandler, type Request, type RequestHandler, type Response, Router } from "express";
import type { Scope } from "./auth/principal.ts";
import { checkScope } from "./auth/scope.ts";
import { guardHead } from "./http/common-headers.ts";
import { ApiError } from "./http/errors.ts";
import { pathOf } from "./http/path.ts";
import { closeWithConnection } from "./http/queued.ts";
import type { Locals, RouteName } from "./http/request-context.ts";
import { requestId } from "./http/request-id.ts";
import { writeError } from "./http/respond.ts";
import { checkPetId } from "./inventory/handlers.ts";
import { notAPetId } from "./inventory/pet-id.ts";
import type { Admission } from "./limits/admission.ts";
import type { Deprecation } from "./passthrough/deprecation.ts";

/** Everything the gateway is made of. A part that is missing is a type error, never a check that is skipped. */
export interface GatewayParts {
  readonly admission: Admission;
  /** `/openapi.json` and `/docs`. */
  readonly docs: RequestHandler;
  readonly listInventory: RequestHandler;
  readonly updateInventory: RequestHandler;
  readonly getPet: RequestHandler;
  readonly getOrders: RequestHandler;
  readonly deprecation: Deprecation;
  readonly clientAddress: (request: Request) => string;
  /** Told of every request at its end, whatever became of it. */
  readonly onDone: (request: Request, response: Response) => void;
  readonly onError: (error: ApiError, locals: Partial<Locals>) => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/**
 * The public API as an Express router: `/v1/…`, `/openapi.json` and `/docs`, below whatever path it is mounted at.
 * It needs no app around it, no setting of one that there is, and no body parser before it: it uses nothing of requests
 * and responses but what Node gives them.
 */
export function gateway(parts: GatewayParts): Router {
  const router = Router({ strict: true, caseSensitive: true });

  router.use(enter(parts));

  router
    .route("/v1/inventory")
    .get(operation("listInventory", "inventory:read"), parts.listInventory)
    .all(operation("listInventory"), refuseMethod("GET, HEAD"));
  router
    .route("/v1/inventory/:petId")
    .patch(operation("updateInventory", "inventory:write"), parts.updateInventory)
    .all(operation("updateInventory"), refuseMethod("PATCH"));
  router
    .route("/v1/pets/:petId")
    .get(operation("getPet", "store:read"), checkPetId, parts.deprecation.retire, parts.getPet)
    .all(operation("getPet"), refuseMethod("GET, HEAD"));
  router
    .route("/v1/store/orders")
    .get(operation("getOrders", "store:read"), parts.getOrders)
    .all(operation("getOrders"), refuseMethod("GET, HEAD"));

  router.use(() => {
    throw new ApiError("not_found");
  });
  router.use(answerError(parts));
  return router;
}

// Not a parameter of a route: one that cannot be decoded is refused behind the checks, like any bad request.
const petPath = /^\/v1\/pets\/[^/]+$/;

/**
 * What every request goes through before its route: request id, what needs no key, the notice of a deprecated route, then
 * authentication (with the limit of the address for who fails it), ban and plan limits. One layer of the router and not
 * four, as each costs as much as what it does.
 */
function enter(parts: GatewayParts): RequestHandler {
  const { admission, deprecation, docs } = parts;
  const identify = identifier(parts);
  return (request, response, next) => {
    const refuse = (error: unknown) => next(error ?? new Error("refused without a reason"));
    const admit = () => admission.admit(request, response).then(() => next(), refuse);
    identify(request, response);
    const path = pathOf(request);
    if (petPath.test(path) && (request.method === "GET" || request.method === "HEAD")) {
      deprecation.announce(request, response);
    }
    if (path.startsWith("/v1/")) return admit();
    const locals = response.locals as Locals;
    locals.route = "docs";
    admission.announce(response);
    docs(request, response, (error?: unknown) => {
      if (error) return next(error);
      locals.route = "unknown";
      return admit();
    });
  };
}

/** Says who asks. What an error needs for its answer is there before anything can throw. */
function identifier({ clientAddress, onDone, now }: GatewayParts): (request: Request, response: Response) => void {
  return (request, response) => {
    response.locals ??= {}; // it comes from an app, and there may be none
    const locals = response.locals as Locals;
    locals.requestId = requestId(request.headers["x-request-id"]);
    locals.clientAddress = "unknown";
    locals.arrivedAtMs = now();
    locals.startedMs = performance.now();
    locals.route = "unknown";
    locals.limits = [];
    locals.list = undefined;
    (locals as Partial<Locals>).principal = undefined; // an app around this one may have one of its own there
    guardHead(response);
    closeWithConnection(request, response);
    response.on("close", () => {
      locals.list = undefined; // who was refused did not take it, and an idle connection keeps its last response
      onDone(request, response);
    });
    locals.clientAddress = clientAddress(request);
  };
}

/** Names the operation, for logs and metrics, and lets only keys with its scope pass. */
function operation(name: RouteName, scope?: Scope): RequestHandler {
  return (_request, response, next) => {
    const locals = response.locals as Locals;
    locals.route = name;
    if (scope !== undefined) checkScope(locals.principal, scope);
    next();
  };
}

function refuseMethod(allow: string): RequestHandler {
  return () => {
    throw new ApiError("method_not_allowed", { headers: { Allow: allow } });
  };
}

function answerError({ admission, onError }: GatewayParts): ErrorRequestHandler {
  return (thrown, request, response, _next) => {
    // What Express cannot decode of a path is a petId: the routes have no other parameter.
    const error = (thrown as Error | null)?.name === "URIError" ? notAPetId(thrown) : thrown;
    // Something went wrong before the caller was known.
    if ((response.locals as Locals).limits.length === 0) admission.announce(response);
    onError(writeError(request, response, error), response.locals as Partial<Locals>);
  };
}
