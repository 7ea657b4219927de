import { readFileSync } from "node:fs";
import { copyFile, unlink, writeFile } from "node:fs/promises";
import { connect as connectTls } from "node:tls";
import { ChannelCredentials } from "@grpc/grpc-js";
import { openInventoryChannel } from "../../client/channel.ts";
import { mutualTls } from "../../inventory-svc/access/credentials.ts";
import { parseRoles, type RoleTable } from "../../inventory-svc/access/roles.ts";
import { createRpcServer } from "../../inventory-svc/grpc-server.ts";
import { inventoryHandlers } from "../../inventory-svc/rpc/handlers.ts";
import { ChangeFeed } from "../../inventory-svc/stock/change-feed.ts";
import { GroupCommit } from "../../inventory-svc/stock/group-commit.ts";
import { ListFeed } from "../../inventory-svc/stock/list-feed.ts";
import { StockHistory } from "../../inventory-svc/stock/stock-history.ts";
import type { TlsFiles } from "../../runtime/tls-files.ts";
import { type Authority, createAuthority, mountFiles } from "../support/certificates.ts";
import { createSqliteDatabase, dropDatabase } from "../support/databases.ts";
import { connectInventory, messagesOf, statusOf } from "../support/grpc.ts";
import { request } from "../support/http.ts";
import { migrateStock, type OpenStock, openStock } from "../support/open-stock.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const serviceNames = ["DNS:inventory.internal", "IP:127.0.0.1"];
const roles = "spiffe://petstore/reports=reader,spiffe://petstore/gateway=writer";

describe("new TLS files", () => {
  const stack = suiteStack();
  let authority: Authority;
  let next: Authority;
  let stock: OpenStock;

  beforeAll(async () => {
    [authority, next] = [await createAuthority(stack), await createAuthority(stack)];
    const url = await createSqliteDatabase();
    stack.defer(() => dropDatabase(url));
    await migrateStock(url);
    stock = openStock(url);
    stack.defer(() => stock.close());
    await stock.store.write([{ kind: "create", petId: 7n, quantity: 1, status: "available" }]);
  });

  /** Starts a service in this process, with connections that live for `ageMs`. */
  async function serve(files: TlsFiles, ageMs = 60_000) {
    const lines: string[] = [];
    const note = (fields: object, text: string) => void lines.push(`${text} ${JSON.stringify(fields)}`);
    const commits = new GroupCommit({
      store: stock.store,
      maxBatch: 100,
      maxQueued: 100,
      onDequeued: () => {},
      onWritten: () => {},
    });
    const feed = new ChangeFeed((from) => stock.store.changesAfter(from, 100));
    const lists = new ListFeed(stock.store, 100);
    const draining = new AbortController().signal;
    const server = createRpcServer({
      handlers: inventoryHandlers({
        ...{ store: stock.store, commits, feed, lists, draining },
        history: new StockHistory(stock.db),
        keepsHistory: true,
        actorOf: () => ({ kind: "internal" }),
        onCall: () => {},
      }),
      credentials: mutualTls({
        files,
        roles: parseRoles(roles) as RoleTable,
        onDenied: () => {},
        log: { info: note, error: note },
      }),
      maxConnectionAgeMs: ageMs,
      connectionGraceMs: 100,
    });
    stack.defer(() => server.close(0));
    return { address: await server.listen({ host: "127.0.0.1", port: 0 }), lines };
  }

  function connect(address: string, { cert, key, ca }: TlsFiles) {
    const from = ChannelCredentials.createSsl(readFileSync(ca), readFileSync(key), readFileSync(cert));
    const inventory = connectInventory(address, from);
    stack.defer(() => inventory.close());
    return inventory;
  }

  /** Resolves to the serial number of the service's certificate on a new connection. */
  function serialAt(address: string, { cert, key, ca }: TlsFiles): Promise<string> {
    const [host, port] = address.split(":") as [string, string];
    const files = { cert: readFileSync(cert), key: readFileSync(key), ca: readFileSync(ca) };
    return new Promise((resolve, reject) => {
      const socket = connectTls({ host, port: Number(port), ...files, ALPNProtocols: ["h2"] }, () => {
        resolve(socket.getPeerCertificate().serialNumber);
        socket.destroy();
      }).on("error", reject);
    });
  }

  test("of a service give new connections the new certificate, and a running call goes on", async () => {
    const files = await mountFiles(stack, await authority.issue({ names: serviceNames }));
    const { address, lines } = await serve(files);
    const own = await authority.issue({ names: ["URI:spiffe://petstore/gateway"] });
    const inventory = connect(address, own);
    const watch = inventory.client.watchInventory(await stock.store.position());
    const following = messagesOf(watch);
    await following();
    const serial = await serialAt(address, own);

    await files.swap(await authority.issue({ names: serviceNames }));
    await until(async () => (await serialAt(address, own)) !== serial);
    expect(lines.join("\n")).toContain(await serialAt(address, own));
    await inventory.update({ petId: 7n, quantity: 2 });
    expect(await following()).toMatchObject({ items: [{ petId: 7n, quantity: 2 }] });
    watch.cancel();
  });

  test("invalid TLS files are logged, and the previous ones stay in use until valid ones arrive", async () => {
    const folder = await temporaryFolder("tls");
    stack.defer(() => folder.remove());
    const files = { cert: `${folder.path}/cert`, key: `${folder.path}/key`, ca: `${folder.path}/ca` };
    const [first, second] = [
      await authority.issue({ names: serviceNames }),
      await authority.issue({ names: serviceNames }),
    ];
    for (const kind of ["cert", "key", "ca"] as const) await copyFile(first[kind], files[kind]);
    const { address, lines } = await serve(files);
    const serial = await serialAt(address, first);

    const breaks: [() => Promise<void>, string][] = [
      [() => copyFile(second.cert, files.cert), '"key":"must hold the key of the certificate"'],
      [() => writeFile(files.cert, "half a certi"), '"cert":"must hold a certificate in PEM"'],
      [() => unlink(files.cert), '"cert":"cannot be read (ENOENT)"'],
      [() => writeFile(files.ca, ""), '"ca":"must hold certificates in PEM"'],
    ];
    for (const [doBreak, fault] of breaks) {
      await doBreak();
      await until(() => lines.some((line) => line.includes(fault)));
      expect(await serialAt(address, first)).toBe(serial);
    }
    expect(lines).toHaveLength(breaks.length);

    for (const kind of ["cert", "key", "ca"] as const) await copyFile(second[kind], files[kind]);
    await until(async () => (await serialAt(address, first)) !== serial);
    expect(lines.join("\n")).not.toMatch(/BEGIN|PRIVATE/);
  });

  test("a change of the client authority ends old connections at their age and refuses new ones", async () => {
    const own = await authority.issue({ names: serviceNames });
    const files = await mountFiles(stack, own);
    const { address } = await serve(files, 700);
    const [old, young] = [
      await authority.issue({ names: ["URI:spiffe://petstore/reports"] }),
      { ...(await next.issue({ names: ["URI:spiffe://petstore/reports"] })), ca: authority.ca },
    ];
    const isServed = async (caller: TlsFiles) => {
      const name = await statusOf(connect(address, caller).get({ petId: 7n }));
      expect(name).toMatch(/^(OK|UNAVAILABLE)$/);
      return name === "OK";
    };
    expect(await isServed(young)).toBe(false);
    await files.swap(own, [authority, next]);
    await until(() => isServed(young));
    expect(await isServed(old)).toBe(true);

    const veteran = connect(address, old);
    await veteran.get({ petId: 7n });
    await files.swap(own, [next]);
    await until(async () => !(await isServed(old)));
    await until(async () => (await statusOf(veteran.get({ petId: 7n }))) === "UNAVAILABLE");
    expect(await isServed(young)).toBe(true);
  });

  test("of a caller give its next connection the new certificate and the new trusted authorities", async () => {
    const serviceFiles = await mountFiles(stack, await authority.issue({ names: serviceNames }));
    const { address } = await serve(serviceFiles, 700);
    const files = await mountFiles(stack, await authority.issue({ names: ["URI:spiffe://petstore/reports"] }));
    const { cert, key, ca } = files;
    const client = openInventoryChannel({ address, tls: { cert, key, ca, serverName: "inventory.internal" } });
    stack.defer(() => client.close());
    const update = () =>
      new Promise((resolve) => client.updateInventory({ petId: 7n, quantity: 3, expectedRevisions: [] }, resolve));
    expect(await update()).toMatchObject({ details: expect.stringContaining("spiffe://petstore/reports") });
    await files.swap(await authority.issue({ names: ["URI:spiffe://petstore/gateway"] }));
    await until(async () => (await update()) === null);

    // Now the next authority has issued the service's certificate, and this caller does not trust it yet.
    await serviceFiles.swap(await next.issue({ names: serviceNames }), [authority]);
    await until(async () => ((await update()) as { code?: number } | null)?.code === 14);
    await files.swap(await authority.issue({ names: ["URI:spiffe://petstore/gateway"] }), [next]);
    await until(async () => (await update()) === null);
  });
});

test("an authority is replaced under running processes and no request fails", async () => {
  await using stack = new AsyncDisposableStack();
  const [old, next] = [await createAuthority(stack), await createAuthority(stack)];
  const issue = async (from: Authority) => ({
    service: await from.issue({ names: serviceNames }),
    gateway: await from.issue({ names: ["URI:spiffe://petstore/gateway"] }),
  });
  const [before, after] = [await issue(old), await issue(next)];
  const service = await mountFiles(stack, before.service);
  const gateway = await mountFiles(stack, before.gateway);
  const system = await startSystem({
    seed: [{ petId: 7n, quantity: 1, status: "available" }],
    inventoryEnv: {
      INVENTORY_TLS_CERT: service.cert,
      INVENTORY_TLS_KEY: service.key,
      INVENTORY_TLS_CLIENT_CA: service.ca,
      INVENTORY_TLS_ROLES: roles,
      INVENTORY_MAX_CONNECTION_AGE_MS: "1000",
    },
    gatewayEnv: {
      GATEWAY_INVENTORY_TLS_CERT: gateway.cert,
      GATEWAY_INVENTORY_TLS_KEY: gateway.key,
      GATEWAY_INVENTORY_TLS_CA: gateway.ca,
      GATEWAY_INVENTORY_TLS_SERVER_NAME: "inventory.internal",
    },
  });
  stack.defer(() => system.close());
  const headers = { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" };
  const path = "/v1/inventory/7";
  let quantity = 0;
  const patch = async (address = system.address) => {
    quantity += 1;
    const answer = await request(address, { method: "PATCH", path, headers, body: `{"quantity":${quantity}}` });
    expect(answer).toMatchObject({ status: 200 });
  };
  /** Changes the quantity until both processes have logged at least `times` reloads. */
  const workUntilLoaded = (times: number) =>
    until(async () => {
      await patch();
      const logs = [system.inventory.output(), system.gateways[0]!.output()];
      return logs.every((log) => log.split("TLS files loaded again").length > times);
    });
  await patch();
  // Both processes first trust both authorities, then show a certificate of the next one, then trust only that one.
  await service.swap(before.service, [old, next]);
  await gateway.swap(before.gateway, [old, next]);
  await workUntilLoaded(1);
  await service.swap(after.service, [old, next]);
  await gateway.swap(after.gateway, [old, next]);
  await workUntilLoaded(2);
  await service.swap(after.service, [next]);
  await gateway.swap(after.gateway, [next]);
  await workUntilLoaded(3);
  await patch();
  await patch((await system.startGateway()).listen);
});
