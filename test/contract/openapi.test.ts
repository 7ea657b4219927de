import { header } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

describe("the served OpenAPI document", () => {
  const stack = suiteStack();
  let system: System;
  let paths: Readonly<Record<string, Readonly<Record<string, object>>>>;
  beforeAll(async () => {
    system = await startSystem({ seed: [{ petId: 1n, quantity: 100, status: "available" }] });
    stack.defer(() => system.close());
    const answer = await callApi(system.address, { path: "/openapi.json" });
    ({ paths } = answer.json<{ paths: typeof paths }>());
  });

  const send = async (method: string, path: string) => {
    const headers = {
      authorization: `Bearer ${system.keys.enterprise}`,
      "content-type": "application/json",
      "idempotency-key": `${method} ${path}`.replace(/[^\w]+/g, "-"),
    };
    const body = { PATCH: '{"quantity":100}', POST: '[{"petId":1,"quantity":100,"delta":1}]' }[method];
    const list = await callApi(system.address, { path: "/v1/inventory", headers });
    const query = path.endsWith("/changes") ? `?since=${encodeURIComponent(header(list, "ETag"))}` : "";
    return await callApi(system.address, { method, path: `/v1${path.replace("{petId}", "1")}${query}`, headers, body });
  };

  test("has only operations that the gateway serves", async () => {
    for (const [path, methods] of Object.entries(paths)) {
      for (const method of Object.keys(methods)) {
        const { status } = await send(method.toUpperCase(), path);
        expect({ method, path, status }).toEqual({ method, path, status: 200 });
      }
    }
  });

  test("has every method that the gateway allows on its paths", async () => {
    for (const [path, methods] of Object.entries(paths)) {
      const allowed = header(await send("DELETE", path), "Allow").split(", ");
      const documented = Object.keys(methods).map((method) => method.toUpperCase());
      if (documented.includes("GET")) documented.push("HEAD");
      expect({ path, allowed: allowed.toSorted() }).toEqual({ path, allowed: documented.toSorted() });
    }
  });
});
