import { randomUUID } from "node:crypto";
import { Pool } from "undici";
import { type Balancer, type Slot, startBalancer } from "../support/balancer.ts";
import { type DnsServer, startDnsServer } from "../support/dns.ts";
import { request } from "../support/http.ts";
import { freePort } from "../support/ports.ts";
import { type RunningProcess, startProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

/** `npm run test:faults` runs the long version. */
const rounds = process.env.FAULTS === "long" ? 20 : 1;
const replicas = 3;
const pets = 8;

/** The drain delay outlasts the two checks of the balancer, also on a busy machine. */
const env = { LOG_LEVEL: "warn", DRAIN_SECONDS: "15", DRAIN_DELAY_SECONDS: "2" };

/** All results that the load may have. */
const successes = ["GET 200", "PATCH 200", "bulk 200", "changes 200", "entry 304", "keyed 200"];

/** Resolves to whether a process is ready. One that has ended is not. */
const isReady = ({ admin }: RunningProcess) =>
  request(admin, { path: "/readyz" }).then(
    ({ status }) => status === 200,
    () => false,
  );

describe("three gateways behind a load balancer and three inventory services behind DNS", () => {
  const stack = suiteStack();
  let system: System;
  let dns: DnsServer;
  let balancer: Balancer;
  const services: Service[] = [];
  const gateways: Gateway[] = [];
  /** One more than there are replicas: the new one starts before the old one stops. */
  const slots: Slot[] = [];
  let servicePort: number;
  let lastService = 0;
  const processes: RunningProcess[] = [];

  interface Service {
    readonly ip: string;
    readonly process: RunningProcess;
  }
  interface Gateway {
    readonly slot: Slot;
    readonly process: RunningProcess;
  }

  beforeAll(async () => {
    system = await startSystem({
      database: "mysql",
      gateways: 0,
      seed: Array.from({ length: pets + 1 }, (_, i) => ({ petId: BigInt(i + 1), quantity: 0, status: "available" })),
      inventoryEnv: env,
    });
    stack.defer(() => system.close());
    dns = await startDnsServer();
    stack.defer(() => dns.close());
    servicePort = await freePort();
    for (let i = 0; i < replicas; i++) services.push(await startService());
    dns.addresses = services.map(({ ip }) => ip);
    for (let i = 0; i <= replicas; i++) slots.push({ listenPort: await freePort(), adminPort: await freePort() });
    balancer = await startBalancer(slots);
    stack.defer(() => balancer.stop());
    for (let i = 0; i < replicas; i++) gateways.push(await startGateway());
  });

  /** Starts a service like a pod: each has an address of its own, and a common name resolves to the ready ones. */
  async function startService(): Promise<Service> {
    lastService += 1;
    const ip = `127.0.1.${lastService}`;
    const process = await startProcess({
      name: "inventory-svc",
      script: "inventory-svc/main.ts",
      env: {
        ...env,
        INVENTORY_LISTEN: `${ip}:${servicePort}`,
        INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
        INVENTORY_DATABASE_URL: system.databaseUrls.inventory,
      },
    });
    stack.defer(async () => void (await process.stop()));
    processes.push(process);
    return { ip, process };
  }

  async function startGateway(): Promise<Gateway> {
    const slot = slots.find((free) => gateways.every((gateway) => gateway.slot !== free))!;
    const process = await system.startGateway({
      ...env,
      GATEWAY_LISTEN: `127.0.0.1:${slot.listenPort}`,
      GATEWAY_ADMIN_LISTEN: `127.0.0.1:${slot.adminPort}`,
      INVENTORY_ADDRESS: `dns://${dns.address}/inventory.test:${servicePort}`,
      GRPC_NODE_USE_ALTERNATIVE_RESOLVER: "true", // the resolver that asks the name server in the address
    });
    processes.push(process);
    await until(() => balancer.uses(slot));
    return { slot, process };
  }

  /** Stops a replica as an orchestrator does, and expects that it exits by itself. */
  async function end({ kill, exited, output }: RunningProcess): Promise<void> {
    await kill("SIGTERM");
    expect({ code: await exited, output: output() }).toMatchObject({ code: 0 });
  }

  function expectOnlySuccess(results: Record<string, number>): void {
    const seen = Object.keys(results).sort();
    // The warnings of the processes explain any other result.
    if (seen.length > successes.length) console.log(processes.map(({ output }) => output()).join("\n"));
    console.log(results);
    expect(seen).toEqual(successes);
  }

  test(`the gateways hide ${rounds} rolling restart(s) of themselves from clients`, async () => {
    const load = startLoad(balancer.address, system.keys.enterprise);
    for (let i = 0; i < rounds * replicas; i++) {
      gateways.push(await startGateway());
      await end(gateways[0]!.process);
      gateways.shift();
    }
    expectOnlySuccess(await load.stop());
  }, 1_200_000);

  test(`the services hide ${rounds} rolling restart(s) of themselves from clients`, async () => {
    const load = startLoad(balancer.address, system.keys.enterprise);
    for (let i = 0; i < rounds * replicas; i++) {
      const [old] = services;
      services.push(await startService());
      dns.addresses = services.map(({ ip }) => ip);
      const ended = end(old!.process);
      await until(async () => !(await isReady(old!.process)));
      services.shift();
      dns.addresses = services.map(({ ip }) => ip);
      await ended;
    }
    expectOnlySuccess(await load.stop());
  }, 1_200_000);
});

/** Reads, waits and updates at a steady rate over kept connections. */
function startLoad(address: string, key: string) {
  const pool = new Pool(`http://${address}`, { connections: 32, pipelining: 1 });
  const results = new Map<string, number>();
  let isOver = false;

  interface Options {
    readonly method?: "PATCH" | "POST";
    readonly headers?: Record<string, string>;
    readonly body?: string;
  }
  /** @param name of its results @returns the ETag of the answer, or the one in its body */
  const send = async (name: string, path: string, { headers, ...options }: Options = {}) => {
    let result: string;
    let etag: string | undefined;
    try {
      const { statusCode, ...response } = await pool.request({
        method: "GET",
        path: `/v1/inventory${path}`,
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
        ...options,
      });
      const text = await response.body.text();
      etag = name === "changes" ? JSON.parse(text).etag : response.headers.etag;
      result = statusCode < 400 ? `${name} ${statusCode}` : `${name} ${statusCode} ${text}`;
    } catch (error) {
      result = `${name} ${(error as NodeJS.ErrnoException).code}`;
    }
    results.set(result, (results.get(result) ?? 0) + 1);
    await new Promise((resolve) => setTimeout(resolve, 20));
    return etag;
  };
  const newKey = () => ({ "idempotency-key": randomUUID() });
  const read = async () => {
    while (!isOver) await send("GET", "");
  };
  const write = async (petId: number) => {
    for (let i = 0; !isOver; i++) await send("PATCH", `/${petId}`, { method: "PATCH", body: `{"quantity":${i}}` });
  };
  const writeOnce = async (petId: number) => {
    for (let i = 0; !isOver; i++) {
      const [quantity, method] = [i + petId, "PATCH"] as const;
      await send("keyed", `/${petId}`, { method, headers: newKey(), body: `{"quantity":${quantity}}` });
      const body = JSON.stringify([1, 2].map((id) => ({ petId: id, quantity })));
      await send("bulk", "/updates", { method: "POST", headers: newKey(), body });
    }
  };
  const follow = async (prefer: string) => {
    let since = await send("GET", "");
    while (!isOver) {
      const path = `/changes?since=${encodeURIComponent(String(since))}`;
      since = (await send("changes", path, { headers: { prefer } })) ?? since;
    }
  };
  /** Waits for a change that never comes. */
  const wait = async () => {
    const headers = { "if-none-match": "*", prefer: "wait=10" };
    while (!isOver) await send("entry", `/${pets + 1}`, { headers });
  };
  const running = Promise.all([
    ...Array.from({ length: 8 }, () => read()),
    ...Array.from({ length: pets }, (_, i) => write(i + 1)),
    ...[1, 2].map(writeOnce),
    ...["wait=10", "wait=0"].map(follow),
    ...Array.from({ length: 8 }, () => wait()),
  ]);
  return {
    /** @returns how many requests had which result */
    stop: async () => {
      isOver = true;
      await running;
      await pool.destroy();
      return Object.fromEntries(results);
    },
  };
}
