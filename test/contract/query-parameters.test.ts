import { expectError } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

describe("unknown query parameters", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({
      seed: [{ petId: 1n, quantity: 5, status: "available" }],
      gatewayEnv: { KEY_ROTATION: "1" },
    });
    stack.defer(() => system.close());
  });

  const send = (method: string, path: string, body?: string) => {
    const authorization = `Bearer ${system.keys.enterprise}`;
    return callApi(system.address, {
      method,
      path: `/v1${path}`,
      headers: { authorization, ...(body !== undefined && { "content-type": "application/json" }) },
      body,
    });
  };

  test.each([
    ["GET", "/inventory/changes?since=4f2c9a01-1&status=sold", "status: the operation takes since"],
    ["GET", "/inventory/1?fields=quantity", "fields: the operation takes none"],
    ["HEAD", "/inventory/1?fields=quantity", ""],
    ["GET", "/inventory/1/history?limit=1&order=asc", "order: the operation takes limit and before"],
    ["POST", "/inventory/updates?dry_run=1", "dry_run: the operation takes none"],
    ["POST", "/inventory/adjustments?dry_run=1", "dry_run: the operation takes none"],
    ["GET", "/rate_limit?window=day", "window: the operation takes none"],
    ["GET", "/usage?hour=1", "hour: the operation takes hours"],
    ["GET", "/usage?hours=1&Hours=2", "Hours: the operation takes hours"],
    ["GET", "/usage?%68our=1", "hour: the operation takes hours"],
  ])("%s %s is 400 that names the parameter", async (method, path, message) => {
    const answer = await send(method, path, method === "POST" ? '[{"petId":1,"quantity":9}]' : undefined);
    if (method === "HEAD") expect(answer).toMatchObject({ status: 400, text: "" });
    else expectError(answer, 400, "invalid_request", new RegExp(`no query parameter ${message}\\.$`));
    expect((await send("GET", "/inventory/1")).text).toContain('"quantity":5');
  });

  test("a name that is long, or may be a key, is refused without being repeated", async () => {
    for (const name of ["x".repeat(65), system.keys.enterprise, "%0a"]) {
      const answer = await send("GET", `/usage?${name}=1`);
      expectError(answer, 400, "invalid_request", /no such query parameter: the operation takes hours\.$/);
    }
  });

  test("a query of more than 4,096 characters is 400, whatever is in it", async () => {
    for (const path of ["/inventory", "/inventory/changes", "/inventory/1", "/usage"]) {
      const answer = await send("GET", `${path}?${"a".repeat(4_097)}`);
      expectError(answer, 400, "invalid_request", /^The query may have at most 4096 characters\.$/);
    }
    expect((await send("GET", `/inventory?${"a".repeat(4_096)}`)).status).toBe(200);
  });

  test("an empty query, and a parameter that the operation has, are no fault", async () => {
    for (const path of ["/inventory/1?", "/usage?", "/usage?&hours=1", "/usage?h%6furs=1"]) {
      expect(await send("GET", path)).toMatchObject({ status: 200 });
    }
  });

  test.each([
    ["GET", "/inventory?status=sold&page=2", undefined],
    ["GET", "/inventory?limit=1&page=2", undefined],
    ["PATCH", "/inventory/1?dry_run=1", '{"quantity":5}'],
    ["GET", "/pets/1?fields=name", undefined],
    ["GET", "/store/orders?status=placed", undefined],
  ])(
    "%s %s, an operation of the specification, ignores or passes on what it does not know",
    async (method, path, body) => {
      expect((await send(method, path, body)).status).not.toBe(400);
    },
  );
});
