import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Connection } from "mysql2/promise";
import { scopes } from "../../gateway/accounts/keys/principal.ts";
import { request } from "../support/http.ts";
import { startLocalGateway } from "../support/local-gateway.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

/** The grants that docs/operations/databases.md gives the gateway, those for rotation apart. */
const [, usual = [], forRotation = []] = readFileSync(
  join(import.meta.dirname, "../../docs/operations/databases.md"),
  "utf8",
)
  .match(/-- npm run gateway\n[\s\S]*?(?=\n\n)/)![0]
  .split(/-- .*\n/)
  .map((part) => part.match(/^GRANT .*;$/gm) ?? []);

describe("the documented grants (MySQL/MariaDB)", () => {
  const stack = suiteStack();
  const user = `gate_${process.pid}`;
  let system: System;
  let owner: Connection;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0, database: "mysql" });
    stack.defer(() => system.close());
    owner = await connectMysql(system.databaseUrls.gateway);
    stack.defer(() => owner.end());
    await owner.query(`CREATE USER ${user}@'%' IDENTIFIED BY 'gate-password'`);
    stack.defer(async () => void (await owner.query(`DROP USER ${user}@'%'`)));
  });

  const grant = async (statements: readonly string[]) => {
    const database = new URL(system.databaseUrls.gateway).pathname.slice(1);
    for (const statement of statements) {
      await owner.query(statement.replace("petstore_keys.", `${database}.`).replace("'petstore_gateway'", user));
    }
  };

  test("let a gateway count and read the use of accounts, and rotate keys only with their grant", async () => {
    expect([usual.length, forRotation.length]).toEqual([4, 1]);
    await grant(usual);
    const url = new URL(system.databaseUrls.gateway);
    [url.username, url.password] = [user, "gate-password"];
    const env = { ...system.gatewayEnv, GATEWAY_DATABASE_URL: url.href, KEY_ROTATION: "1" };
    const { key } = await system.issueKey({ scopes });
    const send = async (method: string, path: string) => {
      const gateway = await startLocalGateway(env); // each on connections of its own, and writes its counts at its end
      const { status, text } = await request(gateway.address, {
        method,
        path: `/v1${path}`,
        headers: { authorization: `Bearer ${key}` },
      });
      await gateway.close();
      return { status, body: JSON.parse(text) };
    };
    expect(await send("POST", "/keys/rotate")).toMatchObject({ status: 503, body: { code: "service_unavailable" } });
    const { body } = await send("GET", "/usage?hours=24");
    expect(body.steps.at(-1)).toMatchObject({ served: 1 });
    await grant(forRotation);
    expect(await send("POST", "/keys/rotate")).toMatchObject({ status: 201 });
  });
});
