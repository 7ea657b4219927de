import { randomUUID } from "node:crypto";
import { callApi } from "../support/api.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

interface Parameter {
  readonly key: string;
  readonly value: string;
  readonly disabled?: boolean;
}

interface Item {
  readonly name: string;
  readonly event?: readonly { readonly script: { readonly exec: readonly string[] } }[];
  readonly request: {
    readonly auth?: { readonly bearer: readonly Parameter[] };
    readonly method: string;
    readonly url: { readonly raw: string; readonly variable: readonly Parameter[] };
    readonly header: readonly Parameter[];
    readonly body?: { readonly raw: string };
  };
}

interface Collection {
  readonly variable: readonly Parameter[];
  readonly info: { readonly schema: string };
  readonly item: readonly { readonly item: readonly Item[] }[];
}

describe("the Postman collection", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    const seed = [1001n, 1002n].map((petId) => ({ petId, quantity: 5, status: "available" }) as const);
    system = await startSystem({ seed, gatewayEnv: { KEY_ROTATION: "1" } });
    stack.defer(() => system.close());
  });

  test("every request of the collection is answered as it is imported, with the key alone", async () => {
    const { info, item } = (await callApi(system.address, { path: "/postman.json" })).json<Collection>();
    expect(info.schema).toMatch(/collection\/v2\.1\.0/);
    const requests = item.flatMap((folder) => folder.item);
    const paths = (await callApi(system.address, { path: "/openapi.json" })).json<{ paths: Record<string, object> }>();
    expect(requests).toHaveLength(Object.values(paths.paths).flatMap((methods) => Object.keys(methods)).length);

    let listTag = "";
    for (const { name, event, request } of requests) {
      if (request.auth) continue; // it has a key of its own
      const values = { baseUrl: "/v1", listTag };
      const path = request.url.variable.reduce(
        (raw, { key, value }) => raw.replace(`:${key}`, value),
        request.url.raw.replace(/\{\{(\w+)\}\}/g, (_, variable: keyof typeof values) => values[variable]),
      );
      const given = request.header.filter(({ disabled }) => !disabled);
      const headers = Object.fromEntries(
        given.map(({ key, value }) => [key, value.replace("{{$guid}}", randomUUID())]),
      );
      const answer = await callApi(system.address, {
        method: request.method,
        path,
        headers: { ...headers, authorization: `Bearer ${system.keys.pro}` },
        body: request.body?.raw,
      });
      expect([name, path, answer.status]).toEqual([name, path, 200]);
      for (const { script } of event ?? []) listTag = run(script.exec, answer.headers.etag as string);
    }
    expect(listTag).not.toBe("");
  });

  test("a run of all requests rotates no key, unless a variable names it", async () => {
    const { item, variable } = (await callApi(system.address, { path: "/postman.json" })).json<Collection>();
    const requests = item.flatMap((folder) => folder.item).filter(({ request }) => request.auth);
    expect(requests.map(({ request }) => [request.url.raw, request.auth!.bearer[0]!.value])).toEqual([
      ["{{baseUrl}}/keys/rotate", "{{keyToRotate}}"],
    ]);
    expect(variable.find(({ key }) => key === "keyToRotate")!.value).toBe("");
    const headers = { authorization: "Bearer " };
    expect(await callApi(system.address, { method: "POST", path: "/v1/keys/rotate", headers })).toMatchObject({
      status: 401,
    });
  });

  test("a list that is refused, and so has no tag, lets the run go on", async () => {
    const { item } = (await callApi(system.address, { path: "/postman.json" })).json<Collection>();
    const [{ script }] = item[0]!.item[0]!.event as [NonNullable<Item["event"]>[0]];
    expect(run(script.exec, undefined)).toBe("");
  });
});

/** Runs a script of the collection after an answer. @returns the tag that it keeps */
function run(lines: readonly string[], etag: string | undefined): string {
  let kept = "";
  const pm = {
    response: { headers: { get: () => etag } },
    collectionVariables: { set: (_name: string, value: string) => (kept = value) },
  };
  new Function("pm", lines.join("\n"))(pm);
  return kept;
}
