// The stop of a gateway, as its clients and load balancers see it.
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import express from "express";
import { readGatewayConfig } from "../../gateway/config.ts";
import { createGateway } from "../../gateway/gateway.ts";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { createLogger } from "../../runtime/log.ts";
import { serveSite } from "../support/account-site.ts";
import { expectOutage } from "../support/answers.ts";
import { request } from "../support/http.ts";
import { startLink } from "../support/link.ts";
import { testPepper } from "../support/made-keys.ts";
import { freePort } from "../support/ports.ts";
import { type RunningProcess, startScript } from "../support/processes.ts";
import { type RawResponse, readResponse } from "../support/raw-http.ts";
import { suiteStack } from "../support/stack.ts";
import { type Env, type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

describe("the life of a gateway", () => {
  const stack = suiteStack();
  let system: System;
  let credentials: string;

  beforeAll(async () => {
    system = await startSystem({ seed: [{ petId: 1n, quantity: 100, status: "available" }], gateways: 0 });
    stack.defer(() => system.close());
    credentials = `Host: g\r\nAuthorization: Bearer ${system.keys.enterprise}\r\n`;
  });

  const start = (env: Env = {}) => system.startGateway({ LOG_LEVEL: "info", ...env });
  const get = () => `GET /v1/inventory HTTP/1.1\r\n${credentials}\r\n`;
  const body = '{"quantity":7}';
  const patchHead = (headers = "") =>
    `PATCH /v1/inventory/1 HTTP/1.1\r\n${credentials}${headers}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  const readiness = async ({ admin }: RunningProcess) => (await request(admin, { path: "/readyz" })).status;
  const isDraining = (gateway: RunningProcess) => until(async () => (await readiness(gateway)) === 503);
  const isClosed = ({ listen }: Pick<RunningProcess, "listen">) => until(async () => !(await isOpen(listen)));

  /** Starts a gateway whose service is not there, so that it listens and does not become ready. */
  async function startWithoutService(env: Env = {}) {
    const [listen, admin, inventory] = await Promise.all(
      Array.from({ length: 3 }, async () => `127.0.0.1:${await freePort()}`),
    );
    const addresses = { listen: listen!, admin: admin! };
    const gateway = await startScript({
      name: "gateway",
      script: "gateway/main.ts",
      env: {
        ...system.gatewayEnv,
        GATEWAY_LISTEN: addresses.listen,
        GATEWAY_ADMIN_LISTEN: addresses.admin,
        INVENTORY_ADDRESS: inventory!,
        INVENTORY_TIMEOUT_MS: "500",
        ...env,
      },
    });
    stack.defer(() => gateway.kill("SIGKILL"));
    return { gateway, addresses };
  }

  test("a stop begins unready, and serves DRAIN_DELAY_SECONDS with answers that end connections", async () => {
    const gateway = await start({ DRAIN_DELAY_SECONDS: "3" });
    const [idle, used, busy] = [openConnection(gateway), openConnection(gateway), openConnection(gateway)];
    for (const connection of [idle, used]) {
      expect(await connection.ask(get())).toMatchObject({ status: 200, headers: { connection: ["keep-alive"] } });
    }
    busy.socket.write(patchHead());
    const begun = busy.answer();

    await gateway.kill("SIGTERM");
    await isDraining(gateway);
    for (const connection of [used, openConnection(gateway)]) {
      expect(await connection.ask(get())).toMatchObject({ status: 200, headers: { connection: ["close"] } });
      await connection.ended;
    }
    // A refused request ends its connection too. The idle connection stays open.
    const stranger = await openConnection(gateway).ask("GET /v1/inventory HTTP/1.1\r\nHost: g\r\n\r\n");
    expect(stranger).toMatchObject({ status: 401, headers: { connection: ["close"] } });
    expect(idle.socket.closed).toBe(false);

    await isClosed(gateway);
    await idle.ended;
    busy.socket.write(body);
    expect(await begun).toMatchObject({ status: 200, headers: { connection: ["close"] } });
    expect(await gateway.exited).toBe(0);
    expect(gateway.output()).not.toContain("by force");
  });

  test("a stop without a delay closes idle connections at once, and those without a request", async () => {
    const gateway = await start({ DRAIN_SECONDS: "600" }); // a stop that waits for its end outlasts this test
    const [idle, silent, half, late] = Array.from({ length: 4 }, () => openConnection(gateway));
    expect(await idle!.ask(get())).toMatchObject({ status: 200 });
    for (const connection of [half, late]) connection!.socket.write(get().slice(0, -2));
    await silent!.opened;
    expect(await openConnection(gateway).ask(get())).toMatchObject({ status: 200 }); // so the bytes above have arrived
    await gateway.kill("SIGTERM");
    await isClosed(gateway);
    // The end of this request arrives after the signal.
    expect(await late!.ask("\r\n")).toMatchObject({ status: 200, headers: { connection: ["close"] } });
    await Promise.all([idle!.ended, silent!.ended, half!.ended]);
    expect(await gateway.exited).toBe(0);
  });

  test("a stop ends by force, with exit code 1, when a request does not end within DRAIN_SECONDS", async () => {
    const gateway = await start({ DRAIN_SECONDS: "1", BODY_TIMEOUT_MS: "60000" });
    const busy = openConnection(gateway);
    busy.socket.write(patchHead());
    expect(await openConnection(gateway).ask(get())).toMatchObject({ status: 200 });
    await gateway.kill("SIGTERM");
    expect(await gateway.exited).toBe(1);
    expect(gateway.output()).toContain("by force");
    await busy.ended;
  });

  test("a stop writes the use of keys before it waits for a client that holds it up", async () => {
    const gateway = await start({ DRAIN_SECONDS: "60", BODY_TIMEOUT_MS: "60000" });
    const { key, accountId } = await system.issueKey();
    for (let i = 0; i < 3; i++) {
      await request(gateway.listen, { path: "/v1/pets/1", headers: { authorization: `Bearer ${key}` } });
    }
    const busy = openConnection(gateway);
    busy.socket.write(patchHead());
    expect(await openConnection(gateway).ask(get())).toMatchObject({ status: 200 }); // so the head above has arrived
    await gateway.kill("SIGTERM");

    const db = openDatabase(system.databaseUrls.gateway);
    stack.defer(() => db.destroy());
    const rowsOf = (table: string) => db(table).where("account_id", accountId);
    const isWritten = async () => {
      const [minutes] = await rowsOf("account_minutes").sum({ requests: "requests" });
      const [deprecated] = await rowsOf("deprecated_use").sum({ requests: "requests" });
      const used = await rowsOf("api_keys").whereNotNull("last_used_at");
      return Number(minutes?.requests) === 3 && Number(deprecated?.requests) === 3 && used.length === 1;
    };
    await until(isWritten);
    busy.socket.write(body); // the stop still waits for it
    expect(await busy.answer()).toMatchObject({ status: 200 });
    expect(await gateway.exited).toBe(0);
  });

  test("a stop during an outage answers the update that it repeats, and then ends by itself", async () => {
    const gateway = await start({ DRAIN_SECONDS: "8", INVENTORY_TIMEOUT_MS: "1000" });
    const inFlight = async () =>
      /^gateway_updates_in_flight 1$/m.test((await request(gateway.admin, { path: "/metrics" })).text);
    await system.inventory.kill("SIGSTOP");
    stack.defer(() => system.inventory.kill("SIGCONT"));
    const { ask, ended } = openConnection(gateway);
    const answer = ask(patchHead("Idempotency-Key: k\r\n") + body);
    await until(inFlight);
    await gateway.kill("SIGTERM");
    expect(await answer).toMatchObject({ status: 504, headers: { connection: ["close"] } });
    await ended;
    expect(await gateway.exited).toBe(0);
    expect(gateway.output()).not.toContain("by force");
    await system.inventory.kill("SIGCONT");
  });

  test("a gateway that was started over a channel stops when its parent disconnects, ready or not", async () => {
    const listen = `127.0.0.1:${await freePort()}`;
    const env = {
      ...process.env,
      KEY_PEPPER: testPepper,
      GATEWAY_DATABASE_URL: system.databaseUrls.gateway,
      GATEWAY_LISTEN: listen,
      GATEWAY_ADMIN_LISTEN: "127.0.0.1:0",
      INVENTORY_ADDRESS: `127.0.0.1:${await freePort()}`, // nothing listens there
    };
    const child = fork(join(import.meta.dirname, "../../gateway/main.ts"), { env, stdio: "ignore" });
    stack.defer(() => void child.kill("SIGKILL"));
    const exited = once(child, "exit");
    const isServing = () => request(listen, { path: "/docs/" }).then(({ status }) => status === 200);
    await until(() => isServing().catch(() => false), { withinMs: 30_000 });
    child.disconnect();
    expect(await exited).toEqual([0, null]);
  });

  test.each([
    ["its operators' port answers", "admin"],
    ["it listens to callers, and waits for its service", "listen"],
  ] as const)("a gateway that gets SIGTERM when %s ends with exit code 0", async (_moment, port) => {
    const { gateway, addresses } = await startWithoutService();
    await until(() => isOpen(addresses[port]), { withinMs: 30_000 });
    await gateway.kill("SIGTERM");
    expect(await gateway.exited).toBe(0);
  });

  test("a gateway that waits for its service answers what is under way at SIGTERM, and no more", async () => {
    const { gateway, addresses } = await startWithoutService({ DRAIN_DELAY_SECONDS: "10" });
    await until(() => isOpen(addresses.listen), { withinMs: 30_000 });
    const busy = openConnection(addresses);
    busy.socket.write(patchHead());
    const begun = busy.answer();
    const stranger = await openConnection(addresses).ask("GET /v1/inventory HTTP/1.1\r\nHost: g\r\n\r\n");
    expect(stranger).toMatchObject({ status: 401 }); // so the head above has arrived
    await gateway.kill("SIGTERM");
    await isClosed(addresses); // without the delay: no load balancer has met it
    busy.socket.write(body);
    const answer = await begun;
    expectOutage(answer);
    expect(answer.headers).toMatchObject({ connection: ["close"] });
    expect(await gateway.exited).toBe(0);
    expect(gateway.output()).not.toMatch(/"ready"|by force|the stop failed/);
  });

  test("a gateway that gets SIGTERM as it becomes ready drains like any other", async () => {
    const gateway = await start();
    await gateway.kill("SIGTERM");
    expect(await gateway.exited).toBe(0);
    expect(gateway.output()).toContain('"stopped"');
  });

  test("an embedded gateway that is closed waits no more for a service or for the end of a list", async () => {
    const silent = new Server();
    const asked = Promise.withResolvers<void>();
    silent.addService(InventoryServiceService, { listInventory: () => asked.resolve() } as never);
    const port = await new Promise<number>((resolve) => {
      silent.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (_error, bound) => resolve(bound));
    });
    stack.defer(() => silent.forceShutdown());
    for (const [address, isWaiting] of [
      [`127.0.0.1:${await freePort()}`, undefined], // nothing listens there
      [`127.0.0.1:${port}`, asked.promise],
    ] as const) {
      const config = readGatewayConfig({
        KEY_PEPPER: testPepper,
        GATEWAY_DATABASE_URL: system.databaseUrls.gateway,
        INVENTORY_ADDRESS: address,
        INVENTORY_TIMEOUT_MS: "60000", // waiting for the end of either outlasts this test
      });
      const gateway = createGateway(config, { log: createLogger("gateway", "fatal") });
      const ready = gateway.untilReady();
      ready.catch(() => {});
      await isWaiting;
      await gateway.close();
      await expect(ready).rejects.toThrow("the gateway was closed");
    }
  });

  test("a gateway is not ready before its Redis has answered, or is known to be away", async () => {
    const redis = await startLink(stack, await freePort());
    redis.silence();
    const env = { ...system.gatewayEnv, REDIS_URL: `redis://127.0.0.1:${redis.port}` };
    const gateway = createGateway(readGatewayConfig(env), { log: createLogger("gateway", "fatal") });
    stack.defer(() => gateway.close());
    await gateway.untilReady();
    expect(await gateway.metrics.metrics()).toContain("gateway_redis_up 0");
  });

  test("what an app around the gateway has named in Vary stays on the list", async () => {
    const gateway = createGateway(readGatewayConfig(system.gatewayEnv), { log: createLogger("gateway", "fatal") });
    stack.defer(() => gateway.close());
    await gateway.untilReady();
    const app = express().use((_request, response, next) => response.vary("Origin") && next());
    const origin = await serveSite(app.use(gateway.router), stack);
    const headers = { Authorization: `Bearer ${system.keys.enterprise}` };
    expect((await fetch(`${origin}/v1/inventory`, { headers })).headers.get("Vary")).toBe("Origin, Accept-Encoding");
  });

  test("a second signal ends a gateway by force a second after the first one, and not earlier", async () => {
    const gateway = await start({ DRAIN_SECONDS: "1000", DRAIN_DELAY_SECONDS: "999" });
    await gateway.kill("SIGTERM");
    await gateway.kill("SIGINT");
    await isDraining(gateway);
    expect(await openConnection(gateway).ask(get())).toMatchObject({ status: 200 });
    await setTimeout(1_000); // since the gateway took the first signal
    await gateway.kill("SIGINT");
    expect(await gateway.exited).toBe(1);
  });

  test.each([
    ["Ctrl-C on a terminal, which signals npm and the gateway, and npm passes it on", true],
    ["SIGTERM to the whole group, as systemd sends it by default", false],
  ])("the gateway of npm run gateway drains at %s", async (_how, onTerminal) => {
    const [listen, admin] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
    const command = onTerminal ? ["script", "-qec", "npm run gateway", "/dev/null"] : ["npm", "run", "gateway"];
    const { PATH, HOME } = process.env;
    const npm = spawn(command[0]!, command.slice(1), {
      cwd: join(import.meta.dirname, "../.."),
      env: {
        ...{ PATH, HOME, ...system.gatewayEnv },
        ...{ GATEWAY_LISTEN: listen, GATEWAY_ADMIN_LISTEN: admin, DRAIN_DELAY_SECONDS: "0" },
      },
      stdio: ["pipe", "pipe", "inherit"],
      detached: true,
    });
    stack.defer(() => void npm.kill("SIGKILL"));
    const exited = once(npm, "exit");
    let output = "";
    npm.stdout.on("data", (chunk) => {
      output += chunk;
    });
    const isReady = () => request(admin, { path: "/readyz" }).then(({ status }) => status === 200);
    await until(() => isReady().catch(() => false), { withinMs: 30_000 });
    const busy = openConnection({ listen });
    busy.socket.write(patchHead());
    const begun = busy.answer();
    expect(await openConnection({ listen }).ask(get())).toMatchObject({ status: 200 }); // so the head above has arrived

    if (onTerminal) npm.stdin.write("\x03");
    else process.kill(-npm.pid!, "SIGTERM");
    await isClosed({ listen });
    busy.socket.write(body);
    expect(await begun).toMatchObject({ status: 200, headers: { connection: ["close"] } });
    await exited;
    expect(output).toContain("stopped");
    expect(output).not.toMatch(/by force|the stop failed/);
  });

  test("a gateway refuses to start when DRAIN_DELAY_SECONDS is not less than DRAIN_SECONDS", async () => {
    await expect(start({ DRAIN_SECONDS: "5", DRAIN_DELAY_SECONDS: "5" })).rejects.toThrow(
      /DRAIN_DELAY_SECONDS: must be less than DRAIN_SECONDS/,
    );
  });
});

const portOf = (address: string) => Number(new URL(`http://${address}`).port);

/** Whether something listens at an address. */
async function isOpen(address: string): Promise<boolean> {
  const socket = connect({ host: "127.0.0.1", port: portOf(address) });
  const opened = await new Promise<boolean>((resolve) => {
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
  });
  socket.destroy();
  return opened;
}

/** Opens a connection for several requests. */
function openConnection({ listen }: Pick<RunningProcess, "listen">) {
  const socket: Socket = connect({ host: "127.0.0.1", port: portOf(listen) }).on("error", () => {});
  let received: Buffer = Buffer.alloc(0);
  let ended = false;
  let wake = () => {};
  socket.on("data", (chunk) => {
    received = Buffer.concat([received, chunk]);
    wake();
  });
  const opened = new Promise<void>((resolve) => socket.once("connect", resolve));
  const closed = new Promise<void>((resolve) => {
    socket.once("close", () => {
      ended = true;
      wake();
      resolve();
    });
  });
  const answer = async (): Promise<RawResponse> => {
    for (;;) {
      const response = readResponse(received, ended, false);
      if (response) {
        received = Buffer.alloc(0);
        return response;
      }
      if (ended) throw new Error(`the connection ended without a response: ${received}`);
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
  return {
    socket,
    opened,
    /** Resolves when the connection is closed. */
    ended: closed,
    answer,
    ask: (bytes: string) => {
      socket.write(bytes);
      return answer();
    },
  };
}
