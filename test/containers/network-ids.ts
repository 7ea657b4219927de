/** Corrects what Podman 4 tells Compose: the name of a network where its id belongs. */
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { connect } from "node:net";
import { askPodman } from "./podman-api.ts";

/**
 * Listens in front of Podman's API. Otherwise Compose believes that each container is in a wrong network, and replaces
 * it with every command.
 */
export async function correctNetworkIds(stack: AsyncDisposableStack, podman: string, socket: string): Promise<void> {
  const correct = async (text: string) => {
    const networks: { name: string; id: string }[] = JSON.parse(await askPodman(podman, "networks/json"));
    const ids = new Map(networks.map(({ name, id }) => [name, id]));
    return text.replace(/"NetworkID":"([^"]*)"/g, (_all, name) => `"NetworkID":"${ids.get(name) ?? name}"`);
  };
  const forward = (asked: IncomingMessage, response: ServerResponse) => {
    const { method, url, headers } = asked;
    const onward = request({ socketPath: podman, method, path: url, headers }, async (answer) => {
      const isAboutNetworks = /^\/v[\d.]+\/containers\/([^/]+\/)?json/.test(url!);
      if (!isAboutNetworks) {
        response.writeHead(answer.statusCode!, answer.headers);
        response.flushHeaders();
        return void answer.pipe(response);
      }
      const text = await correct(Buffer.concat(await answer.toArray()).toString());
      const { "content-length": _, "transfer-encoding": __, ...rest } = answer.headers;
      response.writeHead(answer.statusCode!, rest).end(text);
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    asked.pipe(onward);
  };
  const server = createServer(forward);
  // Compose attaches to a container over a connection that is no HTTP any more.
  server.on("upgrade", ({ method, url, rawHeaders }, client, head) => {
    const onward = connect(podman, () => {
      const lines = rawHeaders.flatMap((name, i) => (i % 2 === 0 ? [`${name}: ${rawHeaders[i + 1]}`] : []));
      onward.write(`${method} ${url} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`);
      onward.write(head);
      onward.pipe(client).pipe(onward);
    });
    for (const end of [onward, client]) {
      end.on("error", () => {
        onward.destroy();
        client.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  stack.defer(() => {
    server.close();
    server.closeAllConnections();
  });
}
