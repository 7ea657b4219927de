/** Starts HAProxy with a configuration, and asks it which servers it uses. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startChild } from "./children.ts";
import { request } from "./http.ts";
import { freePort } from "./ports.ts";
import { serverProgram } from "./server-programs.ts";
import { temporaryFolder } from "./stack.ts";
import { until } from "./until.ts";

export interface Haproxy {
  /** Whether it sends requests to the server with this name. */
  uses(server: string): Promise<boolean>;
  stop(): Promise<void>;
}

/**
 * Resolves once each server has been checked: until its first check HAProxy sends connections to a server, and ends
 * them if the check fails.
 *
 * @param config its frontends and backends, and their `defaults`
 */
export async function startHaproxy(config: string): Promise<Haproxy> {
  const program = await serverProgram("balancer");
  const folder = await temporaryFolder("haproxy");
  const port = await freePort();
  const file = join(folder.path, "haproxy.cfg");
  const statistics = `
defaults statistics
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 100s
frontend statistics
  bind 127.0.0.1:${port}
  stats enable
  stats uri /
`;
  await writeFile(file, `global\n  maxconn 1000\n${config}${statistics}`);
  const child = startChild(program, ["-db", "-f", file], { name: "HAProxy", cwd: folder.path, env: process.env });
  /** @param column of HAProxy's statistics. @returns its value for each server, by the server's name */
  const read = async (column: "status" | "check_status") => {
    const { text } = await request(`127.0.0.1:${port}`, { path: "/;csv" });
    const [heading = [], ...lines] = text.split("\n").map((line) => line.split(","));
    return new Map(lines.map((fields) => [fields[1], fields[heading.indexOf(column)]]));
  };
  const isChecked = async () => ![...(await read("check_status")).values()].includes("INI");
  const stop = async () => {
    await child.stop(5_000);
    await folder.remove();
  };
  try {
    await until(() => isChecked().catch(() => false));
  } catch (cause) {
    await stop();
    throw new Error(`HAProxy does not answer, or has not checked its servers. Its output:\n${child.output()}`, {
      cause,
    });
  }
  return { uses: async (server) => (await read("status")).get(server) === "UP", stop };
}
