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
  readonly request: {
    readonly method: string;
    readonly url: { readonly raw: string; readonly variable: readonly Parameter[] };
    readonly header: readonly Parameter[];
    readonly body?: { readonly raw: string };
  };
}

interface Collection {
  readonly info: { readonly schema: string };
  readonly item: readonly { readonly item: readonly Item[] }[];
}

describe("the Postman collection", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    const seed = [1001n, 1002n].map((petId) => ({ petId, quantity: 5, status: "available" }) as const);
    system = await startSystem({ seed });
    stack.defer(() => system.close());
  });

  test("every request of the collection is answered as it is imported, with the key alone", async () => {
    const { info, item } = (await callApi(system.address, { path: "/postman.json" })).json<Collection>();
    expect(info.schema).toMatch(/collection\/v2\.1\.0/);
    const requests = item.flatMap((folder) => folder.item);
    const paths = (await callApi(system.address, { path: "/openapi.json" })).json<{ paths: Record<string, object> }>();
    expect(requests).toHaveLength(Object.values(paths.paths).flatMap((methods) => Object.keys(methods)).length);

    let listTag = "";
    for (const { name, request } of requests) {
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
      if (path === "/v1/inventory") listTag = String(answer.headers.etag).replaceAll('"', ""); // as its script does
    }
  });
});
