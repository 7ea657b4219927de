import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type ServiceError, status } from "@grpc/grpc-js";
import type { ListInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { request } from "../support/http.ts";
import { runScript } from "../support/processes.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const count = 100_000;
const statuses = ["available", "pending", "sold"];
const sha = (text: string) => createHash("sha256").update(text).digest("hex");

/** Entries over the whole range of int64, in order. */
const lines = Array.from({ length: count }, (_, i) => {
  const petId = -(2n ** 63n) + BigInt(i) * ((2n ** 64n - 1n) / BigInt(count - 1));
  return [i === count - 1 ? 2n ** 63n - 1n : petId, (i * 7_919) % 2_147_483_648, statuses[i % 3]] as const;
});
const csv = `petId,quantity,status\n${lines.map((line) => `${line.join(",")}\n`).join("")}`;
const json = `[${lines.map(([petId, quantity, name]) => `{"petId":${petId},"quantity":${quantity},"status":"${name}"}`).join(",")}]`;

describe.each(["sqlite", "mysql"] as const)("a store of 100,000 entries on %s", (database) => {
  const stack = suiteStack();
  let system: System;
  let folder: string;

  beforeAll(async () => {
    system = await startSystem({ database, gatewayEnv: { LOG_LEVEL: "warn" }, inventoryEnv: { LOG_LEVEL: "warn" } });
    stack.defer(() => system.close());
    const temporary = await temporaryFolder("whole-store");
    stack.defer(() => temporary.remove());
    folder = temporary.path;
    await writeFile(join(folder, "in.csv"), csv);
  });

  const stock = (...args: string[]) =>
    runScript({
      script: "inventory-svc/cli/stock.ts",
      args,
      env: { INVENTORY_DATABASE_URL: system.databaseUrls.inventory },
      cwd: folder,
    });
  const list = (headers: Record<string, string> = {}) =>
    request(system.address, {
      path: "/v1/inventory",
      headers: { authorization: `Bearer ${system.keys.enterprise}`, ...headers },
    });

  test("is imported while it is served, listed complete and in order, and exported byte for byte", async () => {
    expect((await list()).text).toBe("[]");
    expect((await stock("import", "in.csv")).code).toBe(0);
    const answer = await list();
    expect(answer.status).toBe(200);
    expect(sha(answer.text)).toBe(sha(json));
    expect((await stock("export", "out.csv")).code).toBe(0);
    expect(sha(await readFile(join(folder, "out.csv"), "utf8"))).toBe(sha(csv));
  });

  test("is the same over REST and gRPC, after changes through either", async () => {
    const petId = 2n ** 63n - 1n;
    const patched = await request(system.address, {
      method: "PATCH",
      path: `/v1/inventory/${petId}`,
      headers: { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" },
      body: '{"quantity":5}',
    });
    expect(patched.text).toBe(`{"petId":${petId},"quantity":5,"status":"${statuses[(count - 1) % 3]}"}`);
    await new Promise<void>((resolve, reject) => {
      system.client.createInventoryItem({ petId: 1n, quantity: 3, status: 3 }, (error: ServiceError | null) =>
        error && error.code !== status.ALREADY_EXISTS ? reject(error) : resolve(),
      );
    });
    const overGrpc: string[] = [];
    for await (const { items } of system.client.listInventory({}) as AsyncIterable<ListInventoryResponse>) {
      for (const item of items) {
        overGrpc.push(`{"petId":${item.petId},"quantity":${item.quantity},"status":"${statuses[item.status - 1]}"}`);
      }
    }
    const { text } = await list();
    expect(sha(text)).toBe(sha(`[${overGrpc.join(",")}]`));
    expect(text).toContain('{"petId":1,"quantity":3,"status":"sold"}');
  });
});
