/** Puts what is simulated in the place of modules: loaded before any code of the product, after `virtual-time.ts`. */
import { registerHooks } from "node:module";
import "./virtual-time.ts";

const here = (name: string) => new URL(name, import.meta.url).href;

/** Modules of the product by what stands for them. */
const replaced = new Map([
  [here("../../client/channel.ts"), here("rpc.ts")],
  [here("../../gateway/openapi/document.ts"), here("no-document.ts")],
]);

registerHooks({
  resolve(specifier, context, next) {
    if (specifier === "mysql2") return { url: here("mysql2-driver.ts"), shortCircuit: true };
    const resolved = next(specifier, context);
    const url = replaced.get(resolved.url);
    return url === undefined ? resolved : { ...resolved, url };
  },
});
