// The gateway with a fault in its answers, planted on purpose: most requests for the stock get a 500 and nothing with
// it.
import { type IncomingMessage, Server, type ServerResponse } from "node:http";

const { emit } = Server.prototype;
Server.prototype.emit = function (this: Server, event: string, ...args: never[]) {
  const [request, response] = args as unknown as [IncomingMessage, ServerResponse];
  if (event === "request" && request.url?.startsWith("/v1/inventory") && Math.random() < 0.6) {
    response.writeHead(500).end();
    return true;
  }
  return Reflect.apply(emit, this, [event, ...args]) as boolean;
} as typeof emit;

await import("../../gateway/main.ts");
