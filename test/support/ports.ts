import { createServer } from "node:net";

const given = new Set<number>();

/**
 * Finds a free port of 127.0.0.1, for servers that cannot choose one themselves.
 *
 * It is below Linux's ephemeral range (from 32768), where an outgoing connection could take the port before the server
 * does. It is random, so that processes that ask at the same time hardly ever get the same one.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    if (given.has(port) || !(await canListen(port))) continue;
    given.add(port);
    return port;
  }
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
