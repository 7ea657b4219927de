import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startChild } from "./children.ts";
import { temporaryFolder } from "./cleanup.ts";
import { request } from "./http.ts";
import { freePort } from "./ports.ts";
import { serverProgram } from "./server-programs.ts";
import { until } from "./until.ts";

/** The ports on 127.0.0.1 that are reserved for one replica at a time. */
export interface Slot {
  readonly listenPort: number;
  readonly adminPort: number;
}

export interface Balancer {
  /** Public address, `host:port`. */
  readonly address: string;
  /** Whether it sends requests to the replica in a slot. */
  uses(slot: Slot): Promise<boolean>;
  stop(): Promise<void>;
}

/**
 * Starts HAProxy in front of gateways. Like Kubernetes it follows their readiness: it asks every 200 ms, and takes a
 * replica out after two failures. It hides no fault: it retries nothing, and sends any request over a used connection.
 */
export async function startBalancer(slots: readonly Slot[]): Promise<Balancer> {
  const program = await serverProgram("balancer");
  const folder = await temporaryFolder("balancer");
  const [port, statsPort] = [await freePort(), await freePort()];
  const name = ({ listenPort }: Slot) => `gateway-${listenPort}`;
  const config = `
global
  maxconn 1000
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  retries 0
frontend public
  bind 127.0.0.1:${port}
  default_backend gateways
frontend statistics
  bind 127.0.0.1:${statsPort}
  stats enable
  stats uri /
backend gateways
  balance roundrobin
  http-reuse always
  option httpchk GET /readyz
  default-server check inter 200ms fall 2 rise 1
${slots.map((slot) => `  server ${name(slot)} 127.0.0.1:${slot.listenPort} port ${slot.adminPort}`).join("\n")}
`;
  const file = join(folder.path, "haproxy.cfg");
  await writeFile(file, config);
  const child = startChild(program, ["-db", "-f", file], { name: "HAProxy", cwd: folder.path, env: process.env });
  const readStatus = async () => {
    const { text } = await request(`127.0.0.1:${statsPort}`, { path: "/;csv" });
    const [heading = [], ...lines] = text.split("\n").map((line) => line.split(","));
    return new Map(lines.map((fields) => [fields[1], fields[heading.indexOf("status")]]));
  };
  const stop = async () => {
    await child.stop(5_000);
    await folder.remove();
  };
  try {
    await until(() => readStatus().then(Boolean, () => false));
  } catch (cause) {
    await stop();
    throw new Error(`HAProxy does not answer. Its output:\n${child.output()}`, { cause });
  }
  return {
    address: `127.0.0.1:${port}`,
    uses: async (slot) => (await readStatus()).get(name(slot)) === "UP",
    stop,
  };
}
