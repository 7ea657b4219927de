import { execFile } from "node:child_process";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { load } from "@grpc/proto-loader";
import { startChild } from "../support/children.ts";
import { request } from "../support/http.ts";
import { npm } from "../support/npm.ts";
import { freePort } from "../support/ports.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const pepper = "a-pepper-that-only-the-tests-know";

const succeeds = (work: Promise<unknown>) =>
  work.then(
    () => true,
    () => false,
  );

const stack = suiteStack();
/** The folder of an app that has only Express and the package. */
let app: string;

beforeAll(async () => {
  const folder = await temporaryFolder("package");
  stack.defer(() => folder.remove());
  app = join(folder.path, "app");
  const packed = join(folder.path, "packed");
  for (const path of [app, packed]) await mkdir(path);
  await npm(root, "pack", "--pack-destination", packed);
  const [tarball] = await readdir(packed);
  await writeFile(join(app, "package.json"), '{"type":"module"}');
  await npm(app, "install", "express@5", join(packed, tarball!));
}, 180_000);

test("the package holds JavaScript, declarations and texts, and installs only what it uses", async () => {
  const own = join(app, "node_modules/petstore-inventory");
  const files = (await readdir(own, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  const names = files.map((file) => join(file.parentPath, file.name).slice(own.length + 1)).sort();
  const inDist =
    /^dist\/(gateway|inventory-svc|runtime|proto|client|deploy)\/[\w/-]+(\.d\.ts|\.js|\.css|\.binpb|\.yaml)$/;
  expect(names.filter((name) => !inDist.test(name))).toEqual([
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    ...["go", "mjs", "py", "sh"].map((language) => `dist/gateway/openapi/programs/stock.${language}`),
    "package.json",
    "proto/google/rpc/error_details.proto",
    "proto/google/rpc/status.proto",
    "proto/grpc/health/v1/health.proto",
    "proto/petstore/inventory/v1/inventory.proto",
  ]);
  expect(names.filter((name) => /\.test\.|start\.js|stand-in/.test(name))).toEqual([]);

  const installed = await readdir(join(app, "node_modules"));
  // @scarf/scarf, which Swagger UI brings, calls its vendor at the installation.
  for (const name of ["typescript", "jest", "node-24", "swagger-ui-dist", "@scarf", `node-linux-${process.arch}`]) {
    expect(installed).not.toContain(name);
  }
});

test("the package has the gRPC contract, which callers in other languages compile", async () => {
  const includeDirs = [join(app, "node_modules/petstore-inventory/proto")];
  const contract = await load("petstore/inventory/v1/inventory.proto", { includeDirs });
  expect(contract).toHaveProperty(["petstore.inventory.v1.InventoryService"]);
});

test("the script that npm runs in the folder of a package works in the packed one", async () => {
  await npm(join(app, "node_modules/petstore-inventory"), "run", "prepare");
});

test("the package's types pass a strict consumer that checks libraries, and know the settings", async () => {
  const compilerOptions = { module: "nodenext", target: "es2024", strict: true, skipLibCheck: false, noEmit: true };
  await writeFile(join(app, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["shop.mts", "caller.mts"] }));
  await writeFile(
    join(app, "shop.mts"),
    `import express from "express";
import { createGateway, type Gateway, type GatewayConfig, readGatewayConfig, SettingsError } from "petstore-inventory";

const config: GatewayConfig = readGatewayConfig({ ...process.env, KEY_PEPPER: "secret" });
readGatewayConfig(process.env);
const replicas: number = config.GATEWAY_REPLICAS;
const gateway: Gateway = createGateway(config);
express().use("/api", gateway.router);
const text: Promise<string> = gateway.metrics.metrics();
const faults = (error: unknown): readonly string[] => (error instanceof SettingsError ? error.faults : []);
// @ts-expect-error no such setting
readGatewayConfig({ KEY_PEPER: "secret" });
// @ts-expect-error settings are text
readGatewayConfig({ GATEWAY_REPLICAS: 2 });
export { faults, replicas, text };
`,
  );
  const manual = await readFile(join(root, "docs/internal-grpc.md"), "utf8");
  const caller = [...manual.matchAll(/```ts\n([^`]*)```/g)].map(([, lines]) => lines).join("");
  expect(caller).toContain('from "petstore-inventory/client"');
  await writeFile(join(app, "caller.mts"), caller);
  const tsc = join(root, "node_modules/.bin/tsc");
  const { stdout } = await run(tsc, ["-p", app]).catch((error) => error);
  expect(stdout).toBe("");
}, 120_000);

describe("an app with the package", () => {
  let env: NodeJS.ProcessEnv;
  let cwd: string;
  const binary = (name: string) => join(app, "node_modules/.bin", name);
  const command = async (name: string, ...args: string[]) =>
    (await run(process.execPath, [binary(name), ...args], { cwd, env })).stdout;

  beforeAll(async () => {
    const folder = await temporaryFolder("package-data");
    stack.defer(() => folder.remove());
    cwd = folder.path;
    env = {
      PATH: process.env.PATH,
      GATEWAY_DATABASE_URL: `sqlite:${cwd}/gateway.sqlite`,
      INVENTORY_DATABASE_URL: `sqlite:${cwd}/inventory.sqlite`,
      INVENTORY_LISTEN: "127.0.0.1:0",
      INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
      KEY_PEPPER: pepper,
    };
  });

  test("serves the API below /api with the package's commands and the lines of docs/embedding.md", async () => {
    expect(await command("petstore-migrate")).toContain("inventory: up 0001");
    await command("petstore-stock", "import", "--generate", "3");
    const issued = JSON.parse(await command("petstore-keys", "issue", "--account", "shop", "--json"));
    const address = `127.0.0.1:${await freePort()}`;
    const port = await freePort();
    const shopLines = /```js\n(import express[^`]*from "petstore-inventory"[^`]*)```/.exec(
      await readFile(join(root, "docs/embedding.md"), "utf8"),
    )?.[1];
    const file = join(app, "shop.js");
    await writeFile(file, shopLines!);
    const shop = startChild(process.execPath, [file], {
      name: "the shop",
      cwd,
      env: { ...env, INVENTORY_ADDRESS: address, PORT: String(port) },
    });
    stack.defer(() => shop.kill("SIGKILL"));
    // It waits for the service, and says so in a line without a stack.
    const waiting = await shop.waitForLine((line) => (line.includes("not ready yet") ? line : undefined), 30_000);
    expect(JSON.parse(waiting)).toEqual({
      level: "warn",
      time: expect.any(String),
      name: "gateway",
      reason: expect.stringMatching(/^INVENTORY_ADDRESS \(inventory-svc\): no service answers \(.*ECONNREFUSED/),
      msg: "not ready yet",
    });
    const service = startChild(process.execPath, [binary("petstore-inventory-svc")], {
      name: "the service",
      cwd,
      env: { ...env, INVENTORY_LISTEN: address },
    });
    stack.defer(async () => void (await service.stop(20_000)));
    let ended = false;
    void shop.exited.then(() => {
      ended = true;
    });
    const at = `127.0.0.1:${port}`;
    const get = (path: string, headers = {}) => request(at, { path, headers });
    await until(async () => {
      if (ended) throw new Error(shop.output());
      return await succeeds(get("/"));
    });

    const authorization = `Bearer ${issued.key}`;
    expect((await get("/")).text).toBe("The shop");
    expect(await get("/api/v1/inventory")).toMatchObject({ status: 401 });
    expect((await get("/api/v1/inventory", { authorization })).json()).toMatchObject([{ petId: 1 }, { petId: 2 }, {}]);
    const changed = await request(at, {
      method: "PATCH",
      path: "/api/v1/inventory/2",
      headers: { authorization, "content-type": "application/json" },
      body: '{"quantity":77}',
    });
    expect(changed).toMatchObject({ status: 200, text: expect.stringContaining('{"petId":2,"quantity":77,') });

    const url = (path: string, base: string) => new URL(path, `http://${at}${base}`).pathname;
    const redirect = await get("/api/docs");
    expect(redirect.status).toBe(302);
    const page = url(String(redirect.headers.location), "/api/docs");
    const { text: html } = await get(page);
    const links = [...html.matchAll(/(?:href|src)="(?!data:)([^"]+)"/g)].map(([, link]) => url(link!, page));
    expect(links).toContain("/api/docs/page.js");
    expect(links).toContain("/api/openapi.json");
    for (const link of links) expect(await get(link)).toMatchObject({ status: 200 });

    const readme = await readFile(join(app, "node_modules/petstore-inventory/README.md"), "utf8");
    const lines = /```js\n([^`]*"petstore-inventory\/client"[^`]*)```/.exec(readme)![1]!;
    const caller = join(app, "caller.js");
    await writeFile(caller, lines.replace("127.0.0.1:50051", address).replace("1001n", "2n"));
    await run(process.execPath, [caller], { cwd });
    expect((await get("/api/v1/inventory", { authorization })).text).toContain('{"petId":2,"quantity":78,');

    expect(await shop.stop(20_000)).toBe(0);
    expect(await service.stop(20_000)).toBe(0);
  }, 120_000);

  test("gets the times and cookies of the middleware before the gateway on every response", async () => {
    const middleware = ["morgan@1", "response-time@2", "cookie-session@2"];
    await npm(app, "install", ...middleware);
    const port = await freePort();
    const file = join(app, "timed.js");
    await writeFile(
      file,
      `import cookieSession from "cookie-session";
import express from "express";
import morgan from "morgan";
import { createGateway, readGatewayConfig } from "petstore-inventory";
import responseTime from "response-time";
express()
  .use(morgan("took :response-time ms for :url"), responseTime())
  .use(cookieSession({ name: "basket", keys: ["secret"] }), (request, response, next) => {
    response.setHeader("X-RateLimit-Limit", "the app's");
    request.session.items = 3;
    next();
  })
  .use("/api", createGateway(readGatewayConfig(process.env)).router)
  .listen(${port}, "127.0.0.1");
`,
    );
    const timed = startChild(process.execPath, [file], { name: "the timed app", cwd, env });
    stack.defer(() => timed.kill("SIGKILL"));
    const at = `127.0.0.1:${port}`;
    await until(() => succeeds(request(at, { path: "/" })));
    for (const [path, status] of [
      ["/api/v1/inventory", 401],
      ["/api/openapi.json", 200],
      ["/api/docs", 302],
    ] as const) {
      const { headers, ...rest } = await request(at, { path });
      expect(rest).toMatchObject({ status });
      expect(headers["x-response-time"]).toMatch(/^[\d.]+ms$/);
      expect(String(headers["set-cookie"])).toMatch(/basket=.*basket\.sig=/);
      expect(headers["x-request-id"]).toMatch(/^[\w.:-]{8,64}$/);
      expect(headers["x-ratelimit-limit"]).toMatch(/^\d+$/); // the gateway's own headers win
      await timed.waitForLine(
        (line) => (/^took [\d.]+ ms for /.test(line) && line.endsWith(path)) || undefined,
        20_000,
      );
    }
  }, 120_000);

  test("may compress, use response.locals.principal, and lose a client in the middle of a request", async () => {
    await npm(app, "install", "compression@1");
    const port = await freePort();
    const file = join(app, "other.js");
    await writeFile(
      file,
      `import compression from "compression";
import express from "express";
import { createGateway, readGatewayConfig } from "petstore-inventory";
let open = 0;
express()
  .get("/open", (request, response) => response.end(String(open)))
  .use(compression(), (request, response, next) => {
    open += 1;
    response.on("close", () => (open -= 1));
    response.locals.principal = { plan: "starter" };
    setTimeout(next, open % 2 ? 0 : 200);
  })
  .use("/api", createGateway(readGatewayConfig(process.env)).router)
  .listen(${port}, "127.0.0.1");
`,
    );
    const other = startChild(process.execPath, [file], { name: "the other app", cwd, env });
    stack.defer(() => other.kill("SIGKILL"));
    const at = `127.0.0.1:${port}`;
    const openCount = async () => Number((await request(at, { path: "/open" })).text);
    await until(() => succeeds(openCount()));

    const path = "/api/openapi.json";
    for (const coding of ["identity", "gzip"]) {
      const answer = await fetch(`http://${at}${path}`, { headers: { "accept-encoding": coding } });
      expect(answer.headers.get("content-encoding") ?? "identity").toBe(coding);
      expect(await answer.json()).toMatchObject({ openapi: "3.1.0" });
    }

    const socket = connect(port, "127.0.0.1").on("error", () => {});
    socket.pause();
    socket.write(`GET ${path} HTTP/1.1\r\nHost: g\r\n\r\n`.repeat(20_000));
    await until(async () => (await openCount()) > 1);
    socket.destroy();
    await until(async () => (await openCount()) === 0);
  }, 120_000);
});
