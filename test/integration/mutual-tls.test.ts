import { readFileSync } from "node:fs";
import { ChannelCredentials, type ServiceError, status } from "@grpc/grpc-js";
import { protoPath } from "grpc-health-check";
import { createInventoryClient } from "../../client/index.ts";
import { readGatewayConfig } from "../../gateway/config.ts";
import { leastRoles, roles } from "../../inventory-svc/access/roles.ts";
import { readInventoryConfig } from "../../inventory-svc/config.ts";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { SettingsError } from "../../runtime/settings.ts";
import type { TlsFiles } from "../../runtime/tls-files.ts";
import { expectError } from "../support/answers.ts";
import { type Authority, createAuthority } from "../support/certificates.ts";
import { connectInventory, connectService, refusalOf, statusOf } from "../support/grpc.ts";
import { request } from "../support/http.ts";
import { freePort } from "../support/ports.ts";
import { runScript, startScript } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const identities = {
  reader: "dns:reports.internal",
  writer: "spiffe://petstore/gateway",
  admin: "spiffe://petstore/back-office",
} as const;

/** The same identities as names of a certificate. */
const names = { reader: "DNS:Reports.internal", writer: `URI:${identities.writer}`, admin: `URI:${identities.admin}` };

function credentials({ cert, key, ca }: TlsFiles): ChannelCredentials {
  return ChannelCredentials.createSsl(readFileSync(ca), readFileSync(key), readFileSync(cert));
}

const asIs = (bytes: Buffer) => bytes;

const inventoryTls = ({ cert, key, ca }: TlsFiles) => ({
  INVENTORY_TLS_CERT: cert,
  INVENTORY_TLS_KEY: key,
  INVENTORY_TLS_CLIENT_CA: ca,
  INVENTORY_TLS_ROLES: roles.map((role) => `${identities[role]}=${role}`).join(","),
});

const gatewayTls = ({ cert, key, ca }: TlsFiles) => ({
  GATEWAY_INVENTORY_TLS_CERT: cert,
  GATEWAY_INVENTORY_TLS_KEY: key,
  GATEWAY_INVENTORY_TLS_CA: ca,
  GATEWAY_INVENTORY_TLS_SERVER_NAME: "inventory.internal",
});

describe("settings for TLS", () => {
  const stack = suiteStack();
  const noDatabase = { INVENTORY_DATABASE_URL: "sqlite::memory:" };
  let files: TlsFiles;
  let other: TlsFiles;

  beforeAll(async () => {
    const authority = await createAuthority(stack);
    files = await authority.issue({ names: ["DNS:inventory.internal"] });
    other = await authority.issue({ names: ["DNS:other.internal"], days: -1 });
  });

  const faultsOf = (read: () => unknown): readonly string[] => {
    try {
      read();
      return [];
    } catch (error) {
      return (error as SettingsError).faults;
    }
  };
  const inventory = (env: Record<string, string>) => faultsOf(() => readInventoryConfig({ ...noDatabase, ...env }));

  test("allow the service to listen beyond loopback", () => {
    expect(inventory({ ...inventoryTls(files), INVENTORY_LISTEN: "0.0.0.0:50051" })).toEqual([]);
  });

  test("wrong settings for TLS are refused with every fault named and exit code 78", async () => {
    const all = inventoryTls(files);
    expect(inventory({ ...all, INVENTORY_TLS_KEY: "", INVENTORY_LISTEN: "0.0.0.0:0" })).toEqual([
      expect.stringMatching(/^INVENTORY_TLS_KEY: must be set too/),
      expect.stringMatching(/^INVENTORY_LISTEN: without TLS it must be a loopback address/),
    ]);
    expect(inventory({ ...all, INVENTORY_TLS_CERT: "/nowhere/tls.crt", INVENTORY_TLS_CLIENT_CA: files.key })).toEqual([
      "INVENTORY_TLS_CERT: cannot be read (ENOENT)",
      "INVENTORY_TLS_CLIENT_CA: must hold certificates in PEM",
    ]);
    expect(inventory({ ...all, INVENTORY_TLS_KEY: other.key })).toEqual([
      "INVENTORY_TLS_KEY: must hold the key of the certificate",
    ]);
    expect(inventory({ ...all, INVENTORY_TLS_CERT: other.cert, INVENTORY_TLS_KEY: files.cert })).toEqual([
      "INVENTORY_TLS_CERT: holds a certificate that has expired",
      "INVENTORY_TLS_KEY: must hold a private key in PEM, without a passphrase",
    ]);
    const pepper = { KEY_PEPPER: "a-pepper-that-only-the-tests-know" };
    const gateway = { ...pepper, ...gatewayTls({ ...files, ca: "/nowhere" }), GATEWAY_INVENTORY_TLS_CERT: "" };
    expect(faultsOf(() => readGatewayConfig(gateway))).toEqual([
      expect.stringMatching(/^GATEWAY_INVENTORY_TLS_CERT: must be set too/),
    ]);
    expect(faultsOf(() => readGatewayConfig({ ...gateway, ...gatewayTls({ ...files, ca: "/nowhere" }) }))).toEqual([
      "GATEWAY_INVENTORY_TLS_CA: cannot be read (ENOENT)",
    ]);
    const env = { ...noDatabase, ...all, INVENTORY_TLS_KEY: other.key };
    expect(await runScript({ script: "inventory-svc/main.ts", env })).toEqual({
      code: 78,
      stdout: "",
      stderr: "The configuration has a fault:\n  INVENTORY_TLS_KEY: must hold the key of the certificate\n",
    });
  });

  test.each([
    ["", /must be set with INVENTORY_TLS_CERT/],
    ["spiffe://petstore/gateway=owner", /entry 1/],
    ["dns:reports.internal=reader,reports.internal=reader", /entry 2/],
    ["dns:*.internal=reader", /entry 1/],
    ["dns:a.internal=reader,dns:a.internal=admin", /entry 2 names an identity again/],
    ["dns:a.internal=reader,", /entry 2/],
  ])("refuse the role table %j", (text, fault) => {
    const faults = inventory({ ...inventoryTls(files), INVENTORY_TLS_ROLES: text });
    expect(faults).toEqual([expect.stringMatching(fault)]);
    expect(faults[0]).toMatch(/^INVENTORY_TLS_ROLES: /);
  });

  test("refuse roles without TLS, because they would have no effect", () => {
    expect(inventory({ INVENTORY_TLS_ROLES: "dns:a.internal=reader" })).toHaveLength(1);
  });
});

describe("mutual TLS", () => {
  const stack = suiteStack();
  let authority: Authority;
  let stranger: Authority;
  let system: System;

  beforeAll(async () => {
    authority = await createAuthority(stack);
    stranger = await createAuthority(stack);
    system = await startSystem({
      seed: [{ petId: 7n, quantity: 1, status: "available" }],
      inventoryEnv: inventoryTls(await authority.issue({ names: ["DNS:inventory.internal", "IP:127.0.0.1"] })),
      gatewayEnv: gatewayTls(await authority.issue({ names: [names.writer] })),
      clientCredentials: credentials(await authority.issue({ names: [names.admin] })),
    });
    stack.defer(() => system.close());
  });

  function connect(from: ChannelCredentials) {
    const inventory = connectInventory(system.inventory.listen, from);
    stack.defer(() => inventory.close());
    return inventory;
  }
  const connectWith = async (...own: string[]) => connect(credentials(await authority.issue({ names: own })));
  const headers = () => ({ authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" });

  test("refuses a caller without a certificate, with one of another authority or an expired one", async () => {
    const ca = readFileSync(authority.ca);
    const foreign = await stranger.issue({ names: [names.admin] });
    const expired = await authority.issue({ names: [names.admin], days: -1 });
    for (const from of [
      ChannelCredentials.createInsecure(),
      ChannelCredentials.createSsl(ca),
      credentials({ ...foreign, ca: authority.ca }),
      credentials(expired),
    ]) {
      expect(await statusOf(connect(from).get({ petId: 7n }))).toBe("UNAVAILABLE");
    }
  });

  test("allows each role its own calls and refuses all others, for every call of the contract", async () => {
    for (const [index, role] of roles.entries()) {
      const { client } = await connectWith(names[role]);
      for (const [name, { path, requestStream }] of Object.entries(InventoryServiceService)) {
        // A bidirectional stream can make every kind of call: only the number of messages differs.
        const options = { deadline: Date.now() + 20_000 };
        const call = client.makeBidiStreamRequest(path, asIs, asIs, options);
        if (!requestStream) call.write(Buffer.alloc(0));
        call.on("data", () => {}).end();
        const { code } = await new Promise<{ code: number }>((resolve) => {
          call.on("status", resolve).on("error", () => {});
        });
        const isAllowed = index >= roles.indexOf(leastRoles[name as keyof typeof leastRoles]);
        expect([role, name, code === status.PERMISSION_DENIED]).toEqual([role, name, !isAllowed]);
        expect(status[code]).toMatch(/^(OK|NOT_FOUND|INVALID_ARGUMENT|PERMISSION_DENIED)$/);
      }
    }
  });

  test("names a refused caller's identity and the role it lacks, in the answer and in the log", async () => {
    const create = { petId: 8n, quantity: 1, status: 1 } as const;
    const detailsOf = (call: Promise<unknown>) => call.catch(({ details }: ServiceError) => details);
    const writer = await connectWith(names.writer);
    const seen = `${identities.writer} has the role writer: this call needs admin`;
    expect(await detailsOf(writer.create(create))).toBe(seen);
    const refusal = await refusalOf(writer.create(create));
    expect(refusal).toMatchObject({ reason: "ROLE_REQUIRED", metadata: { role: "admin" }, retryDelayMs: undefined });
    const unknown = await connectWith("URI:spiffe://petstore/games", "DNS:games.internal", "email:a@b.example");
    expect(await detailsOf(unknown.get({ petId: 7n }))).toBe(
      "spiffe://petstore/games, dns:games.internal has no role: this call needs reader",
    );
    expect(await detailsOf((await connectWith("email:a@b.example")).list())).toBe(
      "a certificate without a URI or DNS name has no role: this call needs reader",
    );
    expect(await system.stored(8n)).toBeUndefined();
    await until(() => system.inventory.output().includes(`"message":"${seen}"`));
    const metrics = await request(system.inventory.admin, { path: "/metrics" });
    expect(metrics.text).toMatch(/rpc_duration_seconds_count\{method="CreateInventoryItem",code="7"\} [1-9]/);
  });

  test("gives a certificate with several names the strongest of their roles", async () => {
    const both = await connectWith(names.reader, names.writer);
    expect(await statusOf(both.update({ petId: 7n, quantity: 2 }))).toBe("OK");
  });

  test("the ledger has the role and name of a caller's certificate, and the account of a gateway's", async () => {
    const admin = await connectWith("URI:spiffe://petstore/games", names.admin);
    const changes: (() => Promise<unknown>)[] = [
      () => admin.create({ petId: 9n, quantity: 0, status: 1 }),
      async () => (await connectWith(names.reader, names.writer)).update({ petId: 9n, quantity: 1 }),
      async () =>
        (await connectWith(names.writer)).batchAdjust({ adjustments: [{ petId: 9n, delta: 5 }], requestId: "a" }),
      async () => {
        const tls = { ...(await authority.issue({ names: [names.writer] })), serverName: "inventory.internal" };
        const client = createInventoryClient({ address: system.inventory.listen, tls });
        await client.adjustMany({ adjustments: [{ petId: 9n, delta: 1 }], requestId: "b" });
        client.close();
      },
      async () => {
        const all = { ...headers(), "x-request-id": "public-1" };
        await request(system.address, {
          method: "PATCH",
          path: "/v1/inventory/9",
          headers: all,
          body: '{"quantity":8}',
        });
      },
    ];
    for (const change of changes) await change();
    const reader = await connectWith(names.reader);
    const found = (await reader.listChanges({ petId: 9n })).changes.toReversed();
    const internal = (role: string, name: string) => ({ $case: "internal", value: { role, name } });
    const account = { account: expect.stringMatching(/^\w+$/), keyId: expect.stringMatching(/^key_/) };
    expect(found.map(({ actor, originRequestId }) => [actor, originRequestId])).toEqual([
      [internal("admin", identities.admin), undefined],
      [internal("writer", identities.writer), undefined],
      [internal("writer", identities.writer), undefined],
      [internal("writer", identities.writer), undefined],
      [{ $case: "account", value: account }, "public-1"],
    ]);
    await admin.remove({ petId: 9n });
  });

  test.each([
    ["other names inside a URI", `URI:spiffe://petstore/games, DNS:reports.internal, URI:${identities.admin}`],
    ["a URI with the scheme dns", `URI:${identities.reader}`],
    ["the URI of an identity in capitals", `URI:${identities.admin.toUpperCase()}`],
    ["a URI that continues that of an identity", `URI:${identities.admin}/intern`],
    ["a wildcard that covers an identity", "DNS:*.internal"],
  ])("a service with mutual TLS gives no role to a certificate with %s", async (_what, name) => {
    expect(await statusOf((await connectWith(name)).list())).toBe("PERMISSION_DENIED");
  });

  test("reports the health of the service to every caller with a certificate, whatever its role", async () => {
    interface Health {
      check(request: object, done: (error: ServiceError | null, answer: { status: string }) => void): void;
    }
    const from = credentials(await authority.issue({ names: ["DNS:probe.internal"] }));
    const health = connectService<Health>(protoPath, "grpc.health.v1.Health", system.inventory.listen, from);
    stack.defer(() => health.close());
    const answer = await new Promise<unknown>((resolve) => health.check({}, (error, value) => resolve(error ?? value)));
    expect(answer).toEqual({ status: "SERVING" });
  });

  test("a service with mutual TLS serves a gateway, and no private key appears in a log", async () => {
    const path = "/v1/inventory";
    const body = '{"quantity":33}';
    expect(
      await request(system.address, { method: "PATCH", path: `${path}/7`, headers: headers(), body }),
    ).toMatchObject({
      status: 200,
    });
    expect((await request(system.address, { path, headers: headers() })).json()).toMatchObject([{ quantity: 33 }]);
    const logs = system.inventory.output() + system.gateways[0]!.output();
    expect(logs).not.toMatch(/BEGIN|PRIVATE/);
  });

  test("a service with mutual TLS serves the client for internal callers within its role", async () => {
    const tls = { ...(await authority.issue({ names: [names.reader] })), serverName: "inventory.internal" };
    const inventory = createInventoryClient({ address: system.inventory.listen, tls });
    stack.defer(() => inventory.close());
    expect(await inventory.get(7n)).toMatchObject({ petId: 7n });
    await expect(inventory.remove(7n)).rejects.toMatchObject({ code: "PERMISSION_DENIED" });
  });

  test("a client is told which of its TLS files cannot be used, by its path", async () => {
    const { cert, key, ca } = await authority.issue({ names: [names.reader] });
    const open = (tls: TlsFiles) => createInventoryClient({ address: "any", tls });
    const expected = { code: "INVALID_ARGUMENT", message: expect.stringContaining("key (/nowhere): cannot be read") };
    expect(() => open({ cert, key: "/nowhere", ca })).toThrow(expect.objectContaining(expected));
    const pasted = readFileSync(key, "utf8");
    expect(() => open({ cert, key: pasted, ca })).toThrow(/: key: cannot be read \(\w+\)$/);
  });

  // The connection was closed, or reset.
  const closedBeforeGrpc =
    /^UNAVAILABLE: the connection was closed before gRPC began(?: \(.*ECONN\w+.*\))?: the service has ended, or only one side uses TLS; where both do, the service may have refused this client's certificate \(authority, dates, clientAuth\), or this client does not trust the service's \(`ca`\)$/;
  // OpenSSL's reason reaches some calls, and others not.
  const notTrusted = new RegExp(`${closedBeforeGrpc.source}|: the service's certificate cannot be trusted`);

  test.each([
    ["no TLS", closedBeforeGrpc],
    ["a certificate of a stranger", closedBeforeGrpc],
    ["the authority of a stranger", notTrusted],
  ])("the error of a client with %s names TLS and the certificate", async (kind, message) => {
    const [own, other] = kind === "the authority of a stranger" ? [authority, stranger] : [stranger, authority];
    const issued = await own.issue({ names: [names.reader] });
    const tls = kind === "no TLS" ? undefined : { ...issued, ca: other.ca, serverName: "inventory.internal" };
    const inventory = createInventoryClient({ address: system.inventory.listen, tls });
    stack.defer(() => inventory.close());
    for (const call of [inventory.get(7n), inventory.update({ petId: 7n, quantity: 1 })]) {
      await expect(call).rejects.toMatchObject({ code: "UNAVAILABLE", message: expect.stringMatching(message) });
    }
  });

  test("keeps a gateway unready whose certificate the service refuses, and it answers 503", async () => {
    const files = await stranger.issue({ names: [names.writer] });
    const [listen, admin] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
    const gateway = await startScript({
      name: "gateway",
      script: "gateway/main.ts",
      env: {
        ...system.gatewayEnv,
        ...gatewayTls({ ...files, ca: authority.ca }),
        GATEWAY_LISTEN: listen,
        GATEWAY_ADMIN_LISTEN: admin,
      },
    });
    stack.defer(() => gateway.kill("SIGKILL"));
    await gateway.waitForLine((line) => line.includes("not ready yet") || undefined, 20_000);
    expect(await request(admin, { path: "/readyz" })).toMatchObject({ status: 503 });
    expectError(await request(listen, { path: "/v1/inventory", headers: headers() }), 503, "service_unavailable");
  });
});
