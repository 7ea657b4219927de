import { publishedPlans } from "./accounts/keys/plans.ts";
import { AccountGuard, MemoryGuardPoints, rotationLimit } from "./admission/account-guard.ts";
import { publishedBanRules } from "./admission/bans.ts";
import { PinnedBodies } from "./inventory/list/pinned-bodies.ts";
import { openApiDocument } from "./openapi/document.ts";
import { type OperationDeps, routeTable, withDeprecations } from "./routes.ts";

/** No test here makes a request. */
const unused = (): never => {
  throw new Error("a route was used");
};

const guard = new AccountGuard(rotationLimit, new MemoryGuardPoints(rotationLimit), unused);

const deps: OperationDeps = {
  stock: {
    update: unused,
    adjust: unused,
    history: unused,
    load: unused,
    changesAfter: unused,
    endRepeats: unused,
    changesInFlight: 0,
    updatesUnknown: 0,
    close: unused,
  },
  list: { readFresh: unused, gzipOf: unused, changesSince: unused },
  pinnedBodies: new PinnedBodies(0),
  longPolls: { holdUntilChange: unused },
  admission: { isKeyKnownGood: unused, reverifyKeyAndBan: unused, reverifyKey: unused },
  keyedUpdateGuard: guard,
  allowanceMs: 1_000,
  bodyTimeoutMs: 1_000,
  pets: () => unused,
  orders: () => unused,
  usage: { read: unused },
  keyRotation: {
    admission: { reverifyKeyAndBan: unused },
    rotate: unused,
    guard,
    onRotated: unused,
    pepper: "",
    keyEnv: "test",
    bodyTimeoutMs: 1_000,
  },
  now: Date.now,
};

test("the route table and the OpenAPI document have the same operations, scopes and parameters", () => {
  const table = routeTable(deps);
  const operations = Object.entries(table).map(([route, operation]) => {
    const { name, scope, query } = operation;
    const [method = "", path = ""] = route.split(" ");
    const documented = path.replace(/^\/v1/, "").replace(/:(\w+)/g, "{$1}");
    return { operation: `${method} ${documented}`, name, scope: scope ?? "", query };
  });

  const { paths, components } = openApiDocument({
    servers: [],
    plans: publishedPlans,
    banRules: publishedBanRules,
    addressGuardPerMinute: 60,
    keyedUpdatesPerDay: 200_000,
    hasKeyRotation: true,
    deprecations: {},
  });
  const documented = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => {
      const { operationId, security, parameters } = operation as unknown as Described;
      const scopes = security.flatMap((scheme) => Object.values(scheme).flat());
      return {
        operation: `${method.toUpperCase()} ${path}`,
        name: operationId,
        scope: scopes.join(" "),
        query: ofSpecification.includes(operationId) ? undefined : queryParameters(parameters, components),
      };
    }),
  );
  const byOperation = (a: { operation: string }, b: { operation: string }) => (a.operation < b.operation ? -1 : 1);
  expect(operations.toSorted(byOperation)).toEqual(documented.toSorted(byOperation));
});

test("the end of an operation that does not exist is a fault that names the setting", () => {
  const table = routeTable({ ...deps, keyRotation: undefined });
  const announced = { deprecatedAt: null, sunsetAt: null };
  expect(withDeprecations(table, { getOrders: announced })["GET /v1/store/orders"]).toHaveProperty("deprecation");
  expect(() => withDeprecations(table, { getOrder: announced })).toThrow(
    "DEPRECATIONS: there is no operation getOrder",
  );
});

/** They ignore query parameters that they do not know. */
const ofSpecification = ["listInventory", "updateInventory", "getPet", "getOrders"];

interface Parameter {
  readonly $ref?: string;
  readonly name?: string;
  readonly in?: string;
}

interface Described {
  readonly operationId: string;
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  readonly parameters: readonly Parameter[];
}

function queryParameters(parameters: readonly Parameter[], components: object): string[] {
  const shared = (components as { parameters: Readonly<Record<string, Parameter>> }).parameters;
  const whole = parameters.map((each) => (each.$ref ? shared[each.$ref.split("/").at(-1)!]! : each));
  return whole.flatMap((each) => (each.in === "query" ? each.name! : []));
}
