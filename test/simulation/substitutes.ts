/** Puts what is simulated in the place of modules: loaded before any code of the product, after `virtual-time.ts`. */
import { registerHooks } from "node:module";
import { PerformanceObserver } from "node:perf_hooks";
import "./virtual-time.ts";

const here = (name: string) => new URL(name, import.meta.url).href;

/** Modules of the product by what stands for them. */
const modules = new Map([
  [here("../../client/channel.ts"), here("rpc-client.ts")],
  [here("../../gateway/openapi/document.ts"), here("no-pages.ts")],
  [here("../../gateway/pages/docs-page.ts"), here("no-pages.ts")],
  [here("../../gateway/pages/account-page.ts"), here("no-pages.ts")],
]);

/** The modules that import them: others get what they ask for. */
const importers = [here("../../gateway/gateway.ts"), here("../../client/client.ts")];

/** Packages by what stands for them. */
const packages = new Map([
  ["mysql2", here("mysql2-driver.ts")],
  ["ioredis", here("redis-model.ts")],
  ["lru-cache", here("small-caches.ts")],
]);

/**
 * Texts of the product by what stands for them. Sizes that no run reaches: lists have several chunks, in several
 * segments, and go out piece by piece; checks that find many changes are cut off, and differences are long. Gateways of
 * different runs would share the threads that deflate.
 */
const texts = new Map<string, readonly (readonly [text: string, stand: string])[]>([
  [here("../../gateway/inventory/list/chunks.ts"), [["chunkSize = 256;", "chunkSize = 2;"]]],
  [
    here("../../gateway/inventory/list/snapshot.ts"),
    [
      ["chunksPerSegment = 8;", "chunksPerSegment = 2;"],
      ["segmentsBelow = 8 * 1024 * 1024;", "segmentsBelow = 600;"],
      ["coalesceBelow = 512 * 1024;", "coalesceBelow = 500;"],
      ["textBelow = 8 * 1024;", "textBelow = 400;"],
    ],
  ],
  [
    here("../../gateway/inventory/reads/send-body.ts"),
    [["socketBufferBytes = 64 * 1024;", "socketBufferBytes = 200;"]],
  ],
  [
    here("../../gateway/inventory/list/difference.ts"),
    [
      ["alwaysAnsweredChanges = 1_000;", "alwaysAnsweredChanges = 3;"],
      ["idsAtOnce = 1_000;", "idsAtOnce = 2;"],
    ],
  ],
  [here("../../gateway/inventory/stock-client.ts"), [["maxChanges = 10_000;", "maxChanges = 3;"]]],
  [here("../../gateway/inventory/list/gzip.ts"), [["before = lanes[lane]!;", "before = Promise.resolve();"]]],
]);

// `prom-client` observes the garbage collector for as long as the process lives, and would keep each run that is over.
PerformanceObserver.prototype.observe = () => {};

registerHooks({
  resolve(specifier, context, next) {
    const substitute = packages.get(specifier);
    if (substitute !== undefined && context.parentURL !== substitute) return { url: substitute, shortCircuit: true };
    const resolved = next(specifier, context);
    const module = importers.includes(context.parentURL ?? "") ? modules.get(resolved.url) : undefined;
    return { ...resolved, url: module ?? resolved.url };
  },
  load(url, context, next) {
    const loaded = next(url, context);
    const replacements = texts.get(url);
    if (!replacements) return loaded;
    let source = String(loaded.source);
    for (const [text, stand] of replacements) {
      if (!source.includes(text)) throw new Error(`${url} has no ${text}`);
      source = source.replace(text, stand);
    }
    return { ...loaded, source };
  },
});
