// npm run bench: measures what a request costs here, beside a plain gateway and a constant Buffer, in one run.
import { writeFile } from "node:fs/promises";
import { Option } from "commander";
import { count, createTool } from "../support/tools.ts";
import { benchBulk } from "./bulk.ts";
import { benchChecks } from "./check-streams.ts";
import { benchGrpc } from "./internal-calls.ts";
import { benchLedger } from "./ledger.ts";
import { benchLimits } from "./limits.ts";
import { benchList } from "./list.ts";
import { benchClient } from "./load-client.ts";
import { benchOverload } from "./overloaded-list.ts";
import { benchPeers } from "./peer-gateways.ts";
import { plot } from "./plot.ts";
import { benchPublic } from "./public.ts";
import { benchSizes } from "./stock-sizes.ts";
import { startServers } from "./systems.ts";
import { benchUpdates } from "./update-rate.ts";

const parts = [
  "list",
  "checks",
  "updates",
  "grpc",
  "limits",
  "overload",
  "public",
  "ledger",
  "sizes",
  "client",
  "peers",
] as const;

interface Options {
  only?: (typeof parts)[number];
  sizes: readonly number[];
  rounds: number;
  seconds: number;
  json?: true;
  plot?: string;
}

const options = createTool(
  "bench",
  "Measures what a request costs here, beside a plain gateway and a constant Buffer, in one run.",
)
  .addOption(new Option("--only <part>", "measure only this part").choices(parts))
  .option(
    "--sizes <list>",
    "comma-separated numbers of entries for the list",
    (text) => text.split(",").map(count),
    [10, 1_000, 10_000, 100_000],
  )
  .option("--rounds <n>", "number of runs of each load", count, 3)
  .option("--seconds <n>", "length of a run in seconds", count, 2)
  .option("--json", "print the results as JSON")
  .option("--plot <file>", "write an SVG of cost against size")
  .parse()
  .opts<Options>();
const plan = {
  sizes: options.sizes,
  rounds: options.rounds,
  seconds: options.seconds,
  say: (text: string) => void (options.json ? process.stderr : process.stdout).write(`${text}\n`),
};
const wants = (part: Options["only"]) => options.only === undefined || options.only === part;

await using stack = new AsyncDisposableStack();
const servers = await startServers(stack);
const results = {
  list: wants("list") ? await benchList(servers, plan) : [],
  checks: wants("checks") ? await benchChecks(servers, plan) : [],
  updates: wants("updates") ? await benchUpdates(servers, plan) : [],
  grpc: wants("grpc") ? await benchGrpc(servers, plan) : [],
  limits: wants("limits") ? await benchLimits(servers, plan) : [],
  overload: wants("overload") ? await benchOverload(servers, plan) : [],
  public: wants("public") ? [...(await benchPublic(servers, plan)), ...(await benchBulk(servers, plan))] : [],
  ledger: wants("ledger") ? await benchLedger(servers, plan) : [],
  sizes: wants("sizes") ? await benchSizes(servers, plan) : [],
  client: wants("client") ? benchClient(plan) : [],
  peers: wants("peers") ? await benchPeers(servers, plan) : [],
};
if (options.json) console.log(JSON.stringify(results, null, 2));
if (options.plot) await writeFile(options.plot, plot(results.list));
