/** Sends what nobody should send to everything that takes input: `npm run hostile -- --inputs 1000000`. */
import { mkdirSync, writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { migrateDatabase } from "../../runtime/database/migrations.ts";
import { request } from "../support/http.ts";
import { LoopClock } from "../support/loop-clock.ts";
import { memoryProbe } from "../support/memory.ts";
import type { RunningProcess } from "../support/processes.ts";
import { temporaryFolder } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";
import { count, createTool } from "../support/tools.ts";
import { grpcClient } from "./grpc-inputs.ts";
import { exchange } from "./http-exchange.ts";
import { httpInput } from "./http-grammar.ts";
import { importInput, linesOfFile } from "./import-inputs.ts";

/** What has failed. It belongs into `test/hostile/kept` once it is understood. */
const failedFolder = ".data/hostile";

/** Garbage that is left after a collection, and tables that grow up to their bounds. */
const growthMiB = 32;

const parts = ["http", "grpc", "import"] as const;
const tool = createTool("hostile", "Sends hostile bytes to a gateway, to an inventory service, and to stock import.")
  .option("--inputs <count>", "inputs of each kind", count, 10_000)
  .option("--seed <seed>", "of the first input", count, 1)
  .option("--only <kind>", `one of ${parts.join(", ")}`);
tool.parse();
const options = tool.opts<{ inputs: number; seed: number; only?: string }>();

await using stack = new AsyncDisposableStack();
const probe = await memoryProbe(stack);
const env = { ...probe.env, LOG_LEVEL: "fatal" };
const system = await startSystem({
  seed: Array.from({ length: 100 }, (_, i) => ({ petId: BigInt(i + 1), quantity: 100, status: "available" })),
  inventoryEnv: env,
  gatewayEnv: { ...env, ADDRESS_GUARD_PER_MINUTE: "1000000", TRUSTED_PROXIES: "127.0.0.0/8" },
});
stack.defer(() => system.close());
const gateway = system.gateways[0]!;
const key = system.keys.enterprise;
const failures: string[] = [];
const outcomes = new Map<string, number>();

const is = (part: (typeof parts)[number]) => options.only === undefined || options.only === part;
if (is("http")) await run("http", gateway, 96, sendHttp);
if (is("grpc")) {
  const clients = Array.from({ length: 8 }, () => grpcClient(system.inventory.listen));
  await run("grpc", system.inventory, 64, async (seed) => {
    const { outcome, ...sent } = await clients[seed % clients.length]!.send(seed);
    return { ...sent, outcomes: [outcome] };
  });
  for (const client of clients) client.close();
}
if (is("import")) await importAll();
console.log(failures.length === 0 ? "nothing was found" : `${failures.length} failures`);
process.exitCode = failures.length === 0 ? 0 : 1;

function fail(what: string): void {
  failures.push(what);
  if (failures.length <= 20) console.log(what);
}

async function sendHttp(seed: number) {
  const bytes = httpInput(seed, key);
  const { statuses, fault } = await exchange(gateway.listen, bytes, `127.0.${seed % 200}.1`);
  if (fault) {
    mkdirSync(failedFolder, { recursive: true });
    const text = bytes.toString("latin1").replaceAll(key, "KEY");
    writeFileSync(join(failedFolder, `${seed}.json`), `${JSON.stringify({ what: fault, bytes: text, statuses })}\n`);
  }
  return { outcomes: statuses, fault, bytes: bytes.length };
}

interface Sent {
  readonly outcomes: readonly (string | number)[];
  readonly fault: string | undefined;
  readonly bytes: number;
}

/** Sends all inputs to a process, so many at once, beside a good request that has to be answered all along. */
async function run(part: string, target: RunningProcess, atOnce: number, send: (seed: number) => Promise<Sent>) {
  using clock = new LoopClock();
  const startedMs = performance.now();
  let [next, bytes, slowestMs, good] = [0, 0, 0, 0];
  let hasEnded = false;
  void target.exited.then(() => {
    if (!hasEnded) fail(`${part}: the process has ended:\n${target.output().slice(-3_000)}`);
    hasEnded = true;
  });
  const sendUntil = async (end: number) => {
    const work = async () => {
      while (next < end && !hasEnded) {
        const seed = options.seed + next++;
        const sent = await send(seed);
        bytes += sent.bytes;
        if (sent.fault) fail(`${part} ${seed}: ${sent.fault}`);
        for (const outcome of sent.outcomes) {
          outcomes.set(`${part} ${outcome}`, (outcomes.get(`${part} ${outcome}`) ?? 0) + 1);
        }
        if (seed % 50_000 === 0) console.log(`${part}: at seed ${seed}, ${failures.length} failures`);
      }
    };
    await Promise.all(Array.from({ length: atOnce }, work));
  };
  const isGood = async () => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    while (!hasEnded) {
      const sentMs = clock.nowMs;
      const write = await request(system.address, {
        method: "PATCH",
        path: "/v1/inventory/77",
        headers,
        body: `{"quantity":${good}}`,
      });
      const read = await request(system.address, { path: "/v1/inventory/77", headers });
      if (write.status !== 200 || read.status !== 200) fail(`good: ${write.status} ${read.status} ${read.text}`);
      slowestMs = Math.max(slowestMs, clock.nowMs - sentMs);
      good += 1;
      await delay(100);
    }
  };
  const goodOnes = isGood();
  await sendUntil(Math.ceil(options.inputs / 4)); // by then everything that is kept for long is there
  const before = await probe.usedBytes(target.pid);
  await sendUntil(options.inputs);
  const grown = ((await probe.usedBytes(target.pid)) - before) / 2 ** 20;
  hasEnded = true;
  await goodOnes;
  if (grown > growthMiB) fail(`${part}: ${grown.toFixed(1)} MiB more than after a quarter of the inputs`);
  if (slowestMs > 10_000) fail(`${part}: a good request took ${slowestMs.toFixed(0)} ms`);
  const counts = [...outcomes].filter(([name]) => name.startsWith(part)).map(([name, many]) => `${name}: ${many}`);
  console.log(counts.sort().join(", "));
  console.log(
    `${part}: ${next} inputs, ${(bytes / 1e6).toFixed(0)} MB in ${((performance.now() - startedMs) / 1_000).toFixed(0)} s; ` +
      `memory ${grown.toFixed(1)} MiB; ${good} good requests, the slowest ${slowestMs.toFixed(0)} ms`,
  );
}

async function importAll(): Promise<void> {
  const folder = await temporaryFolder("hostile");
  stack.defer(() => folder.remove());
  const empty = join(folder.path, "empty.db");
  await writeFile(empty, "");
  await migrateDatabase(`sqlite:${empty}`, "inventory", stockMigrations, "up");
  const files = Math.max(4, Math.ceil(options.inputs / linesOfFile)); // with damaged ones and others
  for (let seed = options.seed; seed < options.seed + files; seed++) {
    const fault = await importInput(seed, folder.path, empty);
    if (fault) fail(`import ${seed}: ${fault}`);
  }
  console.log(`import: ${files * linesOfFile} lines in ${files} files`);
}
