import { contractPlans } from "./auth/plans.ts";
import { publishedBanRules } from "./limits/bans.ts";
import { openApiDocument } from "./openapi/document.ts";
import { deprecation } from "./passthrough/deprecation.ts";
import { type RouteParts, routeTable } from "./routes.ts";

const dates = { deprecatedAt: new Date(0), sunsetAt: new Date(0) };

test("the route table and the OpenAPI document have the same operations, scopes and deprecations", () => {
  const handler = () => () => {};
  const getPet = deprecation({ ...dates, goneAfterSunset: false, documentationUrl: "/docs" });
  const table = routeTable({ pets: handler, orders: handler, deprecations: { getPet } } as unknown as RouteParts);
  const operations = Object.entries(table).map(([route, { name, scope, deprecation }]) => {
    const [method = "", path = ""] = route.split(" ");
    const documented = path.replace(/^\/v1/, "").replace(/:(\w+)/g, "{$1}");
    return { operation: `${method} ${documented}`, name, scope, isDeprecated: deprecation !== undefined };
  });

  const { paths } = openApiDocument({
    servers: [],
    plans: contractPlans,
    banRules: publishedBanRules,
    guardPerMinute: 60,
    deprecations: { getPet: dates },
  });
  const documented = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => {
      const { operationId, security, deprecated = false } = operation as unknown as Described;
      const scopes = security.flatMap((scheme) => Object.values(scheme).flat());
      return {
        operation: `${method.toUpperCase()} ${path}`,
        name: operationId,
        scope: scopes.join(" "),
        isDeprecated: deprecated,
      };
    }),
  );
  const byOperation = (a: { operation: string }, b: { operation: string }) => (a.operation < b.operation ? -1 : 1);
  expect(operations.toSorted(byOperation)).toEqual(documented.toSorted(byOperation));
});

interface Described {
  readonly operationId: string;
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  readonly deprecated?: boolean;
}
