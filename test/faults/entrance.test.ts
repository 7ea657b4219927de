import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { request } from "../support/http.ts";
import { type MemoryProbe, memoryProbe } from "../support/memory.ts";
import { startProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

/** `npm run test:faults` runs the long version. */
const isLong = process.env.FAULTS === "long";
const count = isLong ? 10_000 : 2_000;

const stack = suiteStack();
let probe: MemoryProbe;
let system: System;

beforeAll(async () => {
  probe = await memoryProbe(stack);
  system = await startSystem({
    seed: [{ petId: 1n, quantity: 1, status: "available" }],
    gatewayEnv: {
      ...probe.env,
      NODE_OPTIONS: `${probe.env.NODE_OPTIONS} --max-old-space-size=512 --max-semi-space-size=32`,
      LOG_LEVEL: "fatal",
      ADDRESS_GUARD_PER_MINUTE: "1000000",
      TRUSTED_PROXIES: "127.0.0.1", // whose connections are not shared out
    },
  });
  stack.defer(() => system.close());
});

/** Header lines of the largest head that the gateway takes, beside 500 bytes of others. */
const lines = Array.from({ length: 95 }, (_, i) => `X-Header-${i}: ${"v".repeat(145)}\r\n`).join("");
const get = `GET /v1/inventory HTTP/1.1\r\nHost: g\r\n`;

/** Opens connections that send these bytes, and keeps them open. @returns them, and how many have been answered */
async function openAll(address: string, number: number, bytes: string) {
  const { hostname, port } = new URL(`http://${address}`);
  const sockets: Socket[] = [];
  let answered = 0;
  for (let i = 0; i < number; i++) {
    const socket = connect(Number(port), hostname).on("error", () => {});
    stack.defer(() => void socket.destroy());
    socket.once("data", () => void answered++);
    socket.write(bytes);
    sockets.push(socket);
    if (i % 100 === 99) await once(socket, "connect");
  }
  return { sockets, answered: () => answered };
}

async function closeAll(sockets: readonly Socket[]): Promise<void> {
  await Promise.all(sockets.map((socket) => !socket.destroyed && once(socket.destroy(), "close")));
}

/**
 * Bytes that each of a thousand idle connections takes after its answer: the median of five rounds, as what else
 * happens in a process (a table that grows, what earlier connections left) can move one round by a megabyte.
 */
async function bytesOfEach(server: { readonly pid: number; readonly listen: string }, bytes: string): Promise<number> {
  const rounds: number[] = [];
  while (rounds.length < 5) {
    const before = await probe.usedBytes(server.pid);
    const { sockets, answered } = await openAll(server.listen, 1_000, bytes);
    await until(() => answered() === 1_000, { withinMs: 60_000 });
    rounds.push(((await probe.usedBytes(server.pid)) - before) / 1_000);
    await closeAll(sockets);
  }
  return rounds.sort((a, b) => a - b)[2]!;
}

test("an idle connection takes at most twice what it takes at a bare Node server", async () => {
  const bare = await startProcess({ name: "bare", script: "test/support/bare-server.ts", env: probe.env });
  stack.defer(async () => void (await bare.stop()));
  const most = 2 * (await bytesOfEach(bare, `${get}\r\n`));
  const gateway = system.gateways[0]!;
  expect(await bytesOfEach(gateway, `${get}\r\n`)).toBeLessThan(most);
  expect(await bytesOfEach(gateway, `${get}${lines}\r\n`)).toBeLessThan(most);
  const post = get.replace("GET", "POST");
  expect(await bytesOfEach(gateway, `${post}Content-Length: 5000\r\n\r\n${"x".repeat(5_000)}`)).toBeLessThan(most);
}, 120_000);

describe("requests that are held", () => {
  let since: string;
  const held = async () => {
    const { text } = await request(system.gateways[0]!.admin, { path: "/metrics" });
    return Number(/^gateway_held_requests (\d+)$/m.exec(text)![1]);
  };

  beforeAll(async () => {
    const headers = { authorization: `Bearer ${system.keys.enterprise}` };
    since = String((await request(system.address, { path: "/v1/inventory", headers })).headers.etag).slice(1, -1);
  });

  test.each([
    ["the largest head", () => `${lines}\r\n`],
    ["a query of 4 KB", () => "\r\n"],
    ["a bearer token in 10 KB of spaces", () => "\r\n"],
    ["further requests", () => `\r\n${"GET / HTTP/1.1\r\n\r\n".repeat(200)}`],
  ])(
    "a request that is held takes at most 25 KB, also with %s",
    async (what, rest) => {
      const spaces = what.includes("spaces") ? 10_000 : 1;
      const number = 500;
      const query = what.includes("query") ? "&".repeat(4_000) : "";
      const head = `GET /v1/inventory/changes?since=${since}${query} HTTP/1.1\r\nHost: g\r\nPrefer: wait=90\r\n`;
      const before = await probe.usedBytes(system.gateways[0]!.pid);
      const token = `Authorization: Bearer${" ".repeat(spaces)}${system.keys.enterprise}\r\n`;
      const { sockets } = await openAll(system.address, number, head + token + rest());
      await until(async () => (await held()) === number, { withinMs: 30_000 });
      const after = await probe.usedBytes(system.gateways[0]!.pid);
      expect((after - before) / number).toBeLessThan(25 * 1024);
      await closeAll(sockets);
      await until(async () => (await held()) === 0, { withinMs: 60_000 });
    },
    120_000,
  );
});

test(`${count} connections with the largest heads stay within a heap of 512 MiB`, async () => {
  const gateway = system.gateways[0]!;
  const served = async () => {
    const headers = { authorization: `Bearer ${system.keys.enterprise}` };
    expect(await request(system.address, { path: "/v1/inventory", headers })).toMatchObject({ status: 200 });
  };
  // A head that never ends is what the gateway has to keep. Until the rest is collected, V8 may fill its heap.
  const { sockets } = await openAll(system.address, count, `${get}${lines}X-Last: ${"v".repeat(300)}`);
  await served();
  expect(await probe.usedBytes(gateway.pid)).toBeLessThan(512 * 1024 * 1024);
  await closeAll(sockets);
  const whole = await openAll(system.address, count, `${get}${lines}\r\n`);
  await until(() => whole.answered() === count, { withinMs: 60_000 });
  await served();
  expect(await probe.usedBytes(gateway.pid)).toBeLessThan(512 * 1024 * 1024);
  await closeAll(whole.sockets);
}, 180_000);
