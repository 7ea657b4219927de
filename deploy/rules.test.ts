// What the alerts say beside their queries, which promtool tests.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { type OperationDeps, routeTable } from "../gateway/routes.ts";
import { rulesFile } from "../test/support/prometheus.ts";

interface Rule {
  readonly record?: string;
  readonly alert?: string;
  readonly expr: string;
  readonly annotations?: { readonly runbook_url?: string };
}

const { groups } = parse(readFileSync(rulesFile, "utf8")) as { groups: { rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);
const alerts = rules.filter((rule) => rule.alert !== undefined);

const handler = () => () => {};
const operations = Object.values(
  routeTable({ pets: handler, orders: handler, keyRotation: {} } as unknown as OperationDeps),
);

/** The routes that a selector takes of the operations, and of what is none. */
function routesOf(expr: string): string[][] {
  const routes = [...operations.map(({ name }) => name), "docs", "unknown"];
  return Array.from(expr.matchAll(/route([=!])~"([^"]+)"/g), ([, not, pattern]) =>
    routes.filter((route) => new RegExp(`^(?:${pattern})$`).test(route) !== (not === "!")),
  );
}

test("the latency objective is about every operation of the route table, and nothing else", () => {
  const selected = rules
    .filter(({ record }) => record?.startsWith("gateway:slow_requests:"))
    .map(({ expr }) => routesOf(expr));
  const all = operations.map(({ name }) => name);
  expect(selected).toEqual(selected.map(() => [all, all]));
  expect(selected).toHaveLength(4);
});

test("the alert for an unchecked list is about every operation that reads the list", () => {
  const { expr } = alerts.find(({ alert }) => alert === "GatewayListNotChecked")!;
  expect(routesOf(expr)).toEqual([operations.filter(({ prefetch }) => prefetch).map(({ name }) => name)]);
});

test("no rule sums up what belongs to several deployments", () => {
  const grouped = rules.flatMap(
    ({ expr }) => expr.match(/\b(?:sum|max|min|avg|count|group)\b(?:\s+by\s+)?\([^)]*\)/g) ?? [],
  );
  expect(grouped.length).toBeGreaterThan(20);
  expect(grouped.filter((by) => !/^\w+ by \(namespace\b/.test(by))).toEqual([]);
});

test("each alert has a runbook, in a section that is there and names the alert", () => {
  for (const { alert, annotations } of alerts) {
    const [path, anchor] = annotations!.runbook_url!.split("#");
    const sections = readFileSync(join(import.meta.dirname, "..", path!), "utf8").split(/^## /m);
    const named = sections.filter((section) => anchorOf(section.split("\n", 1)[0]!) === anchor);
    expect({ alert, sections: named.length, isNamed: named[0]?.includes(`\`${alert}\``) }).toEqual({
      alert,
      sections: 1,
      isNamed: true,
    });
  }
});

/** The anchor that GitHub and GitLab give to a heading. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\s-]/g, "")
    .replaceAll(" ", "-");
}
