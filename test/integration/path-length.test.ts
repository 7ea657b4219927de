// How many source files a reader needs for one request: those whose code runs for it, in both tiers together. A file
// that joins the path has to take the place of another one.
import type { RunningProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const stack = suiteStack();

const maxFiles = 50;

/** Requests of one kind. What runs for fewer than half of them, such as a timer, is not on their path. */
const requests = 40;

const project = new URL("../../", import.meta.url).href;
const isSource = (path: string) => /^(gateway|inventory-svc|client|runtime|proto(?!\/gen))\//.test(path);

/** Functions of a script, with how often each was called since they were last taken. */
interface Script {
  readonly url: string;
  readonly functions: readonly { readonly ranges: readonly { readonly count: number }[] }[];
}

/** Counts the calls of functions in a process. @returns what takes, and forgets, the files of those called often */
async function countCalls(process: RunningProcess): Promise<() => Promise<string[]>> {
  const findUrl = () => /Debugger listening on (\S+)/.exec(process.output())?.[1];
  await process.kill("SIGUSR1");
  await until(() => findUrl() !== undefined);
  const socket = new WebSocket(findUrl()!);
  stack.defer(() => socket.close());
  await new Promise((resolve) => socket.addEventListener("open", resolve));
  const call = (method: string, params = {}) =>
    new Promise<{ readonly result: readonly Script[] }>((resolve) => {
      socket.addEventListener("message", ({ data }) => resolve(JSON.parse(String(data)).result), { once: true });
      socket.send(JSON.stringify({ id: 1, method, params }));
    });
  await call("Profiler.enable");
  await call("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  return async () => {
    const { result } = await call("Profiler.takePreciseCoverage");
    const often = result.filter(({ functions }) => functions.some(({ ranges }) => ranges[0]!.count > requests / 2));
    return often.map(({ url }) => url.replace(project, "")).filter(isSource);
  };
}

test.each(["sqlite", "mysql"] as const)(
  "on %s, a GET and a PATCH run code of at most 50 source files",
  async (database) => {
    const env = { NODE_OPTIONS: "--inspect-port=127.0.0.1:0", LOG_LEVEL: "info" };
    const system = await startSystem({
      database,
      seed: [{ petId: 1n, quantity: 0, status: "available" }],
      gatewayEnv: env,
      inventoryEnv: env,
    });
    stack.defer(() => system.close());
    const url = `http://${system.address}/v1/inventory`;
    const headers = { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" };
    const get = () => fetch(url, { headers });
    const patch = (quantity: number) =>
      fetch(`${url}/1`, { method: "PATCH", headers, body: JSON.stringify({ quantity }) });
    const counts = [await countCalls(system.gateways[0]!), await countCalls(system.inventory)];
    const filesOf = async (ask: (i: number) => Promise<Response>) => {
      for (let i = 1; i <= requests; i++) {
        const answer = await ask(i);
        await answer.text();
        expect(answer.status).toBe(200);
      }
      const files = await Promise.all(counts.map((take) => take()));
      return [...new Set(files.flat())].sort();
    };
    const found = { get: await filesOf(get), patch: await filesOf(patch) };
    for (const files of Object.values(found)) {
      expect(files).toEqual(expect.arrayContaining(["gateway/router.ts", "inventory-svc/stock/stock-store.ts"]));
      expect(files.length > maxFiles ? files : []).toEqual([]);
    }
  },
);
