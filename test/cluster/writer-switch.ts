/** Starts HAProxy in front of a database cluster, which leads every connection to the node that takes the writes. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { startHaproxy } from "../support/haproxy.ts";
import { freePort } from "../support/ports.ts";
import { until } from "../support/until.ts";
import type { ClusterNode, DatabaseCluster, Role } from "./database-cluster.ts";

export interface WriterSwitch {
  /** `mysql://user:password@host:port/` of whichever node takes the writes. */
  readonly serverUrl: string;
  /** Waits until connections lead to this node, or by default to any, and returns it. */
  writer(expected?: ClusterNode): Promise<ClusterNode>;
}

const statuses: Record<Role, number> = { writer: 200, standby: 404, out: 503 };

/**
 * Starts the switch. Each quarter of a second it asks about each node. One failure takes a node out and ends its
 * connections. One success brings it in. A standby only gets no new connections: the services leave it by themselves,
 * and a commit under way still gets its answer.
 */
export async function startWriterSwitch(
  stack: AsyncDisposableStack,
  { nodes, roleOf }: DatabaseCluster,
): Promise<WriterSwitch> {
  const servers: string[] = [];
  for (const node of nodes) {
    const healthPort = await answerFor(stack, async () => statuses[await roleOf(node)]);
    servers.push(`  server ${nameOf(node)} ${new URL(node.url("")).host} check addr 127.0.0.1 port ${healthPort}`);
  }
  const url = new URL(nodes[0]!.url(""));
  url.hostname = "127.0.0.1";
  url.port = `${await freePort()}`;
  const haproxy = await startHaproxy(`
defaults
  mode tcp
  timeout connect 1s
  timeout client 1h
  timeout server 1h
  timeout check 2s
frontend writer
  bind ${url.host}
  default_backend nodes
backend nodes
  balance first
  option httpchk GET /
  http-check disable-on-404
  default-server inter 250ms fall 1 rise 1 on-marked-down shutdown-sessions
${servers.join("\n")}
`);
  stack.defer(() => haproxy.stop());
  const writer = async (expected?: ClusterNode) => {
    let found: ClusterNode | undefined;
    await until(
      async () => {
        for (const node of expected ? [expected] : nodes) {
          // HAProxy counts on a server until its next check.
          if ((await haproxy.uses(nameOf(node))) && (await roleOf(node).catch(() => "out")) === "writer")
            found ??= node;
        }
        return found !== undefined;
      },
      { withinMs: 60_000, everyMs: 50 },
    );
    return found!;
  };
  await writer();
  return { serverUrl: url.href, writer };
}

const nameOf = ({ name }: ClusterNode) => name.replace(" ", "-");

/** Answers HTTP requests with the status of a check, and with 503 when it fails. @returns the port */
async function answerFor(stack: AsyncDisposableStack, check: () => Promise<number>): Promise<number> {
  const server = createServer(async (_request, response) => {
    response.writeHead(await check().catch(() => 503)).end();
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  stack.defer(async () => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}
