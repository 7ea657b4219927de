/** Routes requests: finds the operation in the route table, has admission check the request, and calls the handler. */
import type { IncomingMessage } from "node:http";
import { type ErrorRequestHandler, type Request, type RequestHandler, type Response, Router } from "express";
import { refuseDuplicates } from "./http/bearer.ts";
import { ApiError } from "./http/errors.ts";
import { pathOf, requestId, takeBody } from "./http/request.ts";
import {
  addCommonHeaders,
  contextOf,
  type HeaderList,
  type RequestContext,
  setContext,
} from "./http/request-context.ts";
import { writeError } from "./http/respond.ts";
import type { Admission } from "./limits/admission.ts";
import type { Operation, RouteTable } from "./routes.ts";

/** Everything the router uses. A part that is missing is a type error, never a check that is skipped. */
export interface RouterParts {
  readonly routes: RouteTable;
  readonly admission: Pick<Admission, "admit" | "setAddressLimits">;
  /** Answers `/openapi.json`, `/docs` and `/account`, which need no key; calls `next` for every other path. */
  readonly docs: RequestHandler;
  readonly clientAddress: (request: Request) => string;
  /** Counts a request of an account to a deprecated operation, whatever its answer. */
  readonly onDeprecatedUse: (accountId: string, operation: string) => void;
  /** Gets every request at its end, whatever became of it. */
  readonly onDone: (request: Request, response: Response) => void;
  readonly onError: (error: ApiError, context: RequestContext) => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** One path of the table, with its operations by method. */
interface Route {
  readonly path: string;
  readonly pattern: RegExp;
  readonly operations: ReadonlyMap<string, Operation>;
}

/**
 * The public API as an Express router: the table's paths and the pages beside them, below whatever path it is mounted
 * at. It needs no app around it, no setting of one, and no body parser before it: it uses nothing of requests
 * and responses but what Node gives them.
 */
export function createRouter(parts: RouterParts): Router {
  const routes = readTable(parts.routes);
  const router = Router({ strict: true, caseSensitive: true });
  router.use(enter(routes, parts));
  for (const { path, operations } of routes) {
    const route = router.route(path);
    for (const [method, { handler }] of operations) route[method.toLowerCase() as "get" | "patch" | "post"](handler);
    route.all(refuseMethod(operations));
  }
  router.use(() => {
    throw new ApiError("not_found", {
      message: "There is no such path; operations are below /v1, described at /docs.",
    });
  });
  router.use(answerError(routes, parts));
  return router;
}

/** The headers that announce the end of a request's operation, for an answer that is made before the router. */
export function deprecationHeaders(table: RouteTable): (request: IncomingMessage) => HeaderList {
  const routes = readTable(table);
  return (request) => findOperation(findRoute(routes, request), request)?.deprecation?.headers ?? [];
}

/** Groups the table by path: `GET /v1/pets/:petId` is the operation GET of the route `/v1/pets/:petId`. */
function readTable(table: RouteTable): Route[] {
  const entries = Object.entries(table).map(([key, operation]) => {
    const [method = "", path = ""] = key.split(" ");
    return { method, path, operation };
  });
  return [...Map.groupBy(entries, ({ path }) => path)].map(([path, ofPath]) => ({
    path,
    pattern: new RegExp(`^${path.replace(/:\w+/g, "[^/]+")}$`),
    operations: new Map(ofPath.map(({ method, operation }) => [method, operation])),
  }));
}

function findRoute(routes: readonly Route[], request: IncomingMessage): Route | undefined {
  const path = pathOf(request);
  return routes.find(({ pattern }) => pattern.test(path));
}

function findOperation(route: Route | undefined, { method }: IncomingMessage): Operation | undefined {
  return route?.operations.get(method === "HEAD" ? "GET" : method!);
}

/**
 * What every request goes through before its handler: its context, then, for all but the documentation, admission (key,
 * ban, limits, scope) and the end of a retired operation.
 *
 * It is one layer of the router, because each layer costs as much as what it does. It looks the operation up by itself,
 * because Express decodes the parameters of a path before the first handler of its route, and a request whose path
 * cannot be decoded has to be charged too.
 */
function enter(routes: readonly Route[], parts: RouterParts): RequestHandler {
  const { admission, docs, clientAddress, now } = parts;
  return (request, response, next) => {
    const route = findRoute(routes, request);
    const operation = findOperation(route, request);
    const context = openContext(request, response, operation, parts);
    takeBody(request);
    context.clientAddress = clientAddress(request); // it may throw, and the answer to that needs a context
    const admit = () => {
      const pass = () => {
        if (route) context.route = (operation ?? route.operations.values().next().value!).name;
        next(operation && retirement(operation, now()));
      };
      const refuse = (error: unknown) => next(error instanceof Error ? error : new Error("refused without an error"));
      admission.admit(request, context, operation).then(pass, refuse);
    };
    if (pathOf(request).startsWith("/v1/")) return admit();
    context.route = "docs";
    admission.setAddressLimits(context);
    refuseDuplicates(request.rawHeaders); // admission does it for all other paths
    docs(request, response, (error?: unknown) => {
      if (error) return next(error);
      context.route = "unknown";
      admit();
    });
  };
}

/** Opens the context that every later step needs, the answer to an error included, and ends it with the response. */
function openContext(
  request: Request,
  response: Response,
  operation: Operation | undefined,
  { onDeprecatedUse, onDone, now }: RouterParts,
): RequestContext {
  const context: RequestContext = {
    requestId: requestId(request.headers["x-request-id"]),
    clientAddress: "unknown",
    arrivedAtMs: now(),
    startedMs: performance.now(),
    route: "unknown",
    limits: [],
    windows: [],
    deprecation: operation?.deprecation?.headers ?? [],
    token: "",
    principal: undefined,
    isHeld: false,
    isHurried: false,
    onHurry: undefined,
    meanwhile: undefined,
  };
  setContext(response, context);
  addCommonHeaders(response);
  response.on("close", () => {
    if (operation?.deprecation && context.principal) onDeprecatedUse(context.principal.accountId, operation.name);
    onDone(request, response);
  });
  return context;
}

/** The answer of an operation whose end has come. */
function retirement({ deprecation }: Operation, nowMs: number): ApiError | undefined {
  if (deprecation === undefined || nowMs < deprecation.goneFromMs) return undefined;
  return new ApiError("not_found", { status: 410, message: "The operation has been retired; see the Link header." });
}

function refuseMethod(operations: Route["operations"]): RequestHandler {
  const allow = [...operations.keys()].flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : method)).join(", ");
  return () => {
    throw new ApiError("method_not_allowed", { headers: { Allow: allow } });
  };
}

function answerError(routes: readonly Route[], { admission, onError }: RouterParts): ErrorRequestHandler {
  return (thrown, request, response, _next) => {
    const context = contextOf(response);
    // Something went wrong before the caller was known.
    if (context.limits.length === 0) admission.setAddressLimits(context);
    const error = (thrown as Error | null)?.name === "URIError" ? undecodable(request, routes, thrown) : thrown;
    onError(writeError(request, response, error), context);
  };
}

/** The error for a path whose parameters Express could not decode. */
function undecodable(request: Request, routes: readonly Route[], cause: unknown): ApiError {
  const parameters = findRoute(routes, request)?.path.match(/(?<=:)\w+/g) ?? ["the path"];
  return new ApiError("invalid_request", { message: `${parameters.join(", ")} must be percent-encoded UTF-8.`, cause });
}
