/** Runs deploy/compose as it stands, with the commands of its document. */
import { execFile } from "node:child_process";
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Agent, fetch, type RequestInit, type Response } from "undici";
import { startStandIn } from "../../deploy/local/stand-in.ts";
import { createAuthority } from "../support/certificates.ts";
import { freePort } from "../support/ports.ts";
import { temporaryFolder } from "../support/stack.ts";
import { makeBaseImages } from "./base-images.ts";
import { type Engine, openEngine } from "./container-engine.ts";
import { buildImages, imageName, projectRoot, targets } from "./product-images.ts";

/** The names of production and staging. */
const projects = ["petstore-tests", "petstore-staging"] as const;

/** What an inspection of a container tells. */
export interface Container {
  readonly Id: string;
  readonly Name: string;
  readonly Image: string;
  readonly State: { readonly Status: string; readonly Pid: number };
  readonly Config: { readonly Labels: Readonly<Record<string, string>> };
  readonly HostConfig: {
    readonly ReadonlyRootfs: boolean;
    readonly PortBindings: Readonly<Record<string, readonly { HostIp: string; HostPort: string }[] | null>>;
  };
}

export interface ComposeProject {
  readonly engine: Engine;
  readonly ports: { readonly https: number; readonly prometheus: number; readonly grafana: number };
  readonly secrets: Readonly<Record<string, string>>;
  /** What the first commands printed. */
  readonly started: string;
  /** Runs commands of the document. @returns what they printed @throws Error when one of them fails */
  shell(text: string): Promise<string>;
  /** Containers of a service, or of all services. */
  containers(service?: string): Promise<Container[]>;
  /** Connections of their own, from outside. */
  newAgent(): Agent;
  /** Sends a request from outside, to the load balancer. */
  ask(path: string, options?: RequestInit): Promise<Response>;
}

/** The blocks of commands below a heading of docs/operations/compose.md. */
export async function documentedCommands(heading: string): Promise<string[]> {
  const text = await readFile(join(projectRoot, "docs/operations/compose.md"), "utf8");
  const section = text.split(/^#+ /m).find((part) => part.startsWith(`${heading}\n`));
  return [...section!.matchAll(/^```sh\n(.*?)^```/gms)].map(([, block]) => block!);
}

/**
 * Starts everything as the document says. Of production.env, what a deployment has to choose is changed, and the plan,
 * for the load of the tests.
 */
export async function startComposeProject(stack: AsyncDisposableStack): Promise<ComposeProject> {
  const engine = await openEngine(stack);
  await buildImages(engine);
  for (const name of projects) {
    for (const target of targets) await engine.docker(["tag", imageName(target), imageName(target, name)]);
  }
  await makeBaseImages(engine, ["haproxy", "mysql", "valkey", "prometheus", "grafana"]);
  const folder = await temporaryFolder("compose");
  stack.defer(() => folder.remove());
  const home = join(folder.path, "deploy/compose");
  await mkdir(join(folder.path, "deploy"));
  for (const name of ["chart", "compose", "observability"]) {
    await cp(join(projectRoot, "deploy", name), join(folder.path, "deploy", name), { recursive: true });
  }
  const ports = { https: await freePort(), prometheus: await freePort(), grafana: await freePort() };
  // Gateways reach this machine at the first address of their network, as they would reach other services.
  const subnet = "172.31.249";
  const upstreamPort = await freePort();
  const upstream = await startStandIn({ host: "0.0.0.0", port: upstreamPort });
  stack.defer(() => upstream.close());
  const chosen = {
    COMPOSE_PROJECT_NAME: projects[0],
    GATEWAY_SERVERS: `https://localhost:${ports.https}/v1`,
    HTTPS_PORT: ports.https,
    PUBLIC_SUBNET: `${subnet}.0/24`,
    PUBLIC_RANGE: `${subnet}.128/25`,
    LOAD_BALANCER_ADDRESS: `${subnet}.10`,
    PETS_UPSTREAM_URL: `http://${subnet}.1:${upstreamPort}`,
    ORDERS_UPSTREAM_URL: `http://${subnet}.1:${upstreamPort}`,
    PROMETHEUS_PORT: ports.prometheus,
    GRAFANA_PORT: ports.grafana,
    PLAN_LIMITS: "pro=1000000/100000000",
  };
  const given = await readFile(join(home, "production.env"), "utf8");
  const kept = given.split("\n").filter((line) => !Object.keys(chosen).some((name) => line.startsWith(`${name}=`)));
  const lines = [...kept, ...Object.entries(chosen).map(([name, value]) => `${name}=${value}`), ""];
  await writeFile(join(home, "production.env"), lines.join("\n"));

  const authority = await createAuthority(stack);
  const tls = await authority.issue({ names: ["DNS:localhost"] });
  await cp(tls.cert, join(home, "certificate.pem"));
  await cp(tls.key, join(home, "key.pem"));
  await cp(authority.ca, join(home, "chain.pem"));
  await cp(join(projectRoot, "deploy/local/seed.csv"), join(home, "stock.csv"));

  const shell = (text: string, cwd = home) => runShell(`set -eu\n${text}`, cwd, { ...engine.env, ...composeFiles });
  stack.defer(async () => void (await shell("docker compose down --volumes --timeout 5").catch(console.warn)));
  const [start] = await documentedCommands("Docker Compose, on one machine");
  const started = await shell(start!, folder.path);
  const secretLines = (await readFile(join(home, "secrets.env"), "utf8")).trim().split("\n");

  const ca = await readFile(authority.ca);
  const newAgent = () => {
    const agent = new Agent({ connect: { ca }, allowH2: true });
    stack.defer(() => agent.destroy());
    return agent;
  };
  const agent = newAgent();
  return {
    engine,
    ports,
    secrets: Object.fromEntries(secretLines.map((line) => line.split("=") as [string, string])),
    started,
    shell,
    containers: async (service) => {
      const ids = await shell(`docker compose ps --all --quiet ${service ?? ""}`);
      return JSON.parse(await engine.docker(["container", "inspect", ...ids.trim().split(/\s+/)]));
    },
    newAgent,
    ask: (path, options = {}) => fetch(`https://localhost:${ports.https}${path}`, { dispatcher: agent, ...options }),
  };
}

const composeFiles = { COMPOSE_ENV_FILES: "production.env,secrets.env" };

function runShell(text: string, cwd: string, env: Readonly<Record<string, string>>): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { cwd, env, maxBuffer: 64 * 1024 * 1024 };
    execFile("sh", ["-c", text], options, (error, stdout, stderr) => {
      if (error) reject(new Error(`${text}\n${stdout}${stderr}`));
      else resolve(stdout);
    });
  });
}

/** The service of Compose that a container is of. */
export function serviceOf({ Config }: Container): string {
  return Config.Labels["com.docker.compose.service"]!;
}
