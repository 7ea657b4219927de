// npm run bench: what a request costs here, beside a plain gateway and a constant Buffer, all in one run.
import { writeFile } from "node:fs/promises";
import { Command, Option } from "commander";
import { parseCount } from "../../inventory-svc/cli/arguments.ts";
import { benchGrpc } from "./grpc.ts";
import { benchLimits } from "./limits.ts";
import { benchList } from "./list.ts";
import { benchOverload } from "./overload.ts";
import { plot } from "./plot.ts";
import { startServers } from "./systems.ts";
import { benchUpdates } from "./updates.ts";

const parts = ["list", "updates", "grpc", "limits", "overload"] as const;

interface Options {
  only?: (typeof parts)[number];
  sizes: readonly number[];
  rounds: number;
  seconds: number;
  json?: true;
  plot?: string;
}

const options = new Command("npm run bench --")
  .description("Measures what a request costs here, beside a plain gateway and a constant Buffer, all in one run.")
  .addOption(new Option("--only <part>", "one part").choices(parts))
  .option(
    "--sizes <list>",
    "numbers of entries for the list",
    (text) => text.split(",").map(parseCount),
    [10, 1_000, 10_000, 100_000],
  )
  .option("--rounds <n>", "runs of each load", parseCount, 3)
  .option("--seconds <n>", "length of a run", parseCount, 2)
  .option("--json", "for machines")
  .option("--plot <file>", "an SVG of cost against size")
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
const list = wants("list") ? await benchList(servers, plan) : [];
const updates = wants("updates") ? await benchUpdates(servers, plan) : [];
const grpc = wants("grpc") ? await benchGrpc(servers, plan) : [];
const limits = wants("limits") ? await benchLimits(servers, plan) : [];
const overload = wants("overload") ? await benchOverload(servers, plan) : [];
if (options.json) console.log(JSON.stringify({ list, updates, grpc, limits, overload }, null, 2));
if (options.plot) await writeFile(options.plot, plot(list));
