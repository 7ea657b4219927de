import { type ErrorRequestHandler, type Request, type RequestHandler, type Response, Router } from "express";
import { requireScope } from "./auth/scope.ts";
import { ApiError } from "./http/errors.ts";
import type { Locals, RouteName } from "./http/locals.ts";
import { requestId } from "./http/request-id.ts";
import { writeError } from "./http/respond.ts";
import { checkPetId } from "./inventory/routes.ts";
import type { Deprecation } from "./legacy/deprecation.ts";
import type { Admission } from "./limits/admission.ts";

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
 * It needs no setting of the app around it, and no body parser before it.
 */
export function gateway(parts: GatewayParts): Router {
  const { admission, deprecation } = parts;
  const router = Router({ strict: true, caseSensitive: true });

  // request id, then per-address guard, authentication, ban, plan limits, route, validation
  router.use(identify(parts));
  router.use(["/openapi.json", "/docs"], named("docs"), admission.announce);
  router.use(parts.docs);
  // A pattern without parameters: one that cannot be decoded is refused behind the checks, like any bad request.
  router.get(/^\/v1\/pets\/[^/]+$/, deprecation.announce);
  router.use(named("unknown"), admission.admit);

  router
    .route("/v1/inventory")
    .all(named("listInventory"))
    .get(requireScope("inventory:read"), parts.listInventory)
    .all(refuseMethod("GET, HEAD"));
  router
    .route("/v1/inventory/:petId")
    .all(named("updateInventory"))
    .patch(requireScope("inventory:write"), parts.updateInventory)
    .all(refuseMethod("PATCH"));
  router
    .route("/v1/pets/:petId")
    .all(named("getPet"))
    .get(requireScope("store:read"), checkPetId, deprecation.retire, parts.getPet)
    .all(refuseMethod("GET, HEAD"));
  router
    .route("/v1/store/orders")
    .all(named("getOrders"))
    .get(requireScope("store:read"), parts.getOrders)
    .all(refuseMethod("GET, HEAD"));

  router.use(() => {
    throw new ApiError("not_found");
  });
  router.use(answerError(parts));
  return router;
}

function identify({ clientAddress, onDone, now }: GatewayParts): RequestHandler {
  return (request, response, next) => {
    const id = requestId(request.headers["x-request-id"]);
    const locals = response.locals as Locals;
    locals.requestId = id;
    locals.clientAddress = clientAddress(request);
    locals.arrivedAtMs = now();
    locals.route = "unknown";
    response.setHeader("X-Request-Id", id);
    response.once("close", () => onDone(request, response));
    next();
  };
}

/** Gives the request its route's name, for logs and metrics. */
function named(route: RouteName): RequestHandler {
  return (_request, response, next) => {
    (response.locals as Locals).route = route;
    next();
  };
}

function refuseMethod(allow: string): RequestHandler {
  return () => {
    throw new ApiError("method_not_allowed", { headers: { Allow: allow } });
  };
}

function answerError({ onError }: GatewayParts): ErrorRequestHandler {
  return (thrown, request, response, _next) => {
    // Express refuses a path that is not valid percent-encoding with an error of its own.
    const error =
      (thrown as Error | null)?.name === "URIError" ? new ApiError("invalid_request", { cause: thrown }) : thrown;
    onError(writeError(request, response, error), response.locals as Partial<Locals>);
  };
}
