import { request } from "../support/http.ts";
import { startLink } from "../support/link.ts";
import { testPepper } from "../support/made-keys.ts";
import { runScript, startScript } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type Env, type System, startSystem } from "../support/system.ts";

const newPepper = "the-pepper-that-comes-after-that-of-the-tests";
const mistyped = `${testPepper}.`;
const refusal =
  /^The configuration has a fault:\n {2}KEY_PEPPER: is not what the keys in the database were made under.*\n$/;

describe("the pepper of the keys", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0, database: "mysql", gatewayEnv: { KEY_ROTATION: "1" } });
    stack.defer(() => system.close());
  });

  const runKeys = (args: string[], env: Env = {}) =>
    runScript({
      script: "gateway/accounts/cli/keys.ts",
      args: [...args, "--json"],
      env: { ...system.gatewayEnv, ...env },
    });
  const send = async (address: string, key: string, method = "GET", path = "/v1/inventory") => {
    const { status, text } = await request(address, { method, path, headers: { authorization: `Bearer ${key}` } });
    return { status, body: JSON.parse(text) };
  };
  const statusOf = async (address: string, key: string) => (await send(address, key)).status;

  test("a mistyped pepper ends a gateway and the commands that make keys with code 78", async () => {
    const env = { ...system.gatewayEnv, KEY_PEPPER: mistyped, LOG_LEVEL: "error" };
    const refused = { code: 78, stdout: "", stderr: expect.stringMatching(refusal) };
    expect(await runScript({ script: "gateway/main.ts", env })).toEqual(refused);
    const [{ keyId }] = JSON.parse((await runKeys(["list"], env)).stdout);
    expect(await runKeys(["issue", "--account", "new"], env)).toEqual(refused);
    expect(await runKeys(["rotate", keyId], env)).toEqual(refused);
    expect((await runKeys(["list", "--account", "new"])).stderr).toMatch(/no account 'new'/);
  });

  test("a gateway that starts before its database ends at a mistyped pepper once it can look", async () => {
    const url = new URL(system.databaseUrls.gateway);
    const link = await startLink(stack, Number(url.port));
    link.cut();
    url.host = `127.0.0.1:${link.port}`;
    const env = { ...system.gatewayEnv, GATEWAY_DATABASE_URL: url.href, KEY_PEPPER: mistyped };
    const gateway = await startScript({ name: "gateway", script: "gateway/main.ts", env });
    stack.defer(() => gateway.kill("SIGKILL"));
    await gateway.waitForLine((line) => line.includes("not ready yet") || undefined, 30_000);
    link.mend();
    expect(await gateway.exited).toBe(78);
    expect(gateway.output()).toMatch(/\n {2}KEY_PEPPER: is not what the keys/);
    expect(gateway.output()).not.toMatch(/"ready"|\n\s+at /);
  });

  test("a change of the pepper ends no key while the old one is given, and rotations use it", async () => {
    const { key: kept } = await system.issueKey();
    const { key: rotated } = await system.issueKey({ scopes: ["inventory:read", "keys:rotate"] });
    const during = { KEY_PEPPER: newPepper, KEY_PEPPER_OLD: testPepper };
    const prepared = await system.startGateway({ KEY_PEPPER_OLD: newPepper });
    const changing = await system.startGateway(during);
    for (const key of [kept, rotated]) expect(await statusOf(changing.listen, key)).toBe(200);
    const { status, body } = await send(changing.listen, rotated, "POST", "/v1/keys/rotate");
    expect(status).toBe(201);
    const issued = JSON.parse((await runKeys(["issue", "--account", "later"], during)).stdout);
    for (const key of [body.key, issued.key, kept]) {
      expect(await statusOf(changing.listen, key)).toBe(200);
      expect(await statusOf(prepared.listen, key)).toBe(200);
    }

    const changed = await system.startGateway({ KEY_PEPPER: newPepper });
    const warning = changed
      .output()
      .split("\n")
      .find((line) => line.includes("valid keys get 401"));
    const all = JSON.parse((await runKeys(["list"])).stdout);
    expect(JSON.parse(warning!)).toMatchObject({ level: "warn", keys: all.length - 2 });
    for (const gateway of [prepared, changing]) expect(gateway.output()).not.toContain("valid keys get 401");
    for (const key of [body.key, issued.key]) expect(await statusOf(changed.listen, key)).toBe(200);
    for (const key of [kept, rotated]) expect(await statusOf(changed.listen, key)).toBe(401);
  });
});

test("a key that was issued under a mistyped new pepper ends no gateway with right peppers", async () => {
  const system = await startSystem({ gateways: 0 });
  await using _ = { [Symbol.asyncDispose]: () => system.close() };
  const env = { ...system.gatewayEnv, KEY_PEPPER: mistyped, KEY_PEPPER_OLD: testPepper };
  const args = ["issue", "--account", "new"];
  expect(await runScript({ script: "gateway/accounts/cli/keys.ts", args, env })).toMatchObject({ code: 0 });
  const gateway = await system.startGateway({ KEY_PEPPER: newPepper, KEY_PEPPER_OLD: testPepper });
  const headers = { authorization: `Bearer ${system.keys.free}` };
  expect((await request(gateway.listen, { path: "/v1/inventory", headers })).status).toBe(200);
});

test("a pepper that was lost is replaced once all keys that were made under it are revoked", async () => {
  const system = await startSystem({ gateways: 0 });
  await using _ = { [Symbol.asyncDispose]: () => system.close() };
  const env = { ...system.gatewayEnv, KEY_PEPPER: newPepper };
  const issue = () => runScript({ script: "gateway/accounts/cli/keys.ts", args: ["issue", "--account", "new"], env });
  expect(await issue()).toMatchObject({ code: 78 });
  for (const { keyId } of JSON.parse((await system.runKeys("list", "--json")).stdout))
    await system.runKeys("revoke", keyId);
  expect(await issue()).toMatchObject({ code: 0 });
});
