// npm run bench: what a request costs here, beside a plain gateway and a constant Buffer, all in one run.
//   --only list|updates|grpc|limits|overload   one part
//   --sizes 10,1000              numbers of entries for the list
//   --rounds N --seconds N       runs of each load, and their length
//   --json                       for machines      --plot FILE   an SVG of cost against size
import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { benchGrpc } from "./grpc.ts";
import { benchLimits } from "./limits.ts";
import { benchList } from "./list.ts";
import { benchOverload } from "./overload.ts";
import { plot } from "./plot.ts";
import { startServers } from "./systems.ts";
import { benchUpdates } from "./updates.ts";

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    sizes: { type: "string", default: "10,1000,10000,100000" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "2" },
    json: { type: "boolean", default: false },
    plot: { type: "string" },
  },
});
const plan = {
  sizes: values.sizes.split(",").map(Number),
  rounds: Number(values.rounds),
  seconds: Number(values.seconds),
  say: (text: string) => void (values.json ? process.stderr : process.stdout).write(`${text}\n`),
};
const wants = (part: string) => values.only === undefined || values.only === part;

await using stack = new AsyncDisposableStack();
const servers = await startServers(stack);
const list = wants("list") ? await benchList(servers, plan) : [];
const updates = wants("updates") ? await benchUpdates(servers, plan) : [];
const grpc = wants("grpc") ? await benchGrpc(servers, plan) : [];
const limits = wants("limits") ? await benchLimits(servers, plan) : [];
const overload = wants("overload") ? await benchOverload(servers, plan) : [];
if (values.json) console.log(JSON.stringify({ list, updates, grpc, limits, overload }, null, 2));
if (values.plot) await writeFile(values.plot, plot(list));
