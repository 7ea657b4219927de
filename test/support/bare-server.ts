// A bare Node server that answers as a gateway answers a request without a key, to compare memory with.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const body = '{"code":"missing_api_key","message":"An API key is required.","status":401}';
const server = createServer({ keepAliveTimeout: 75_000 }, (_request, response) => {
  response.writeHead(401, { "Content-Type": "application/json", "Content-Length": body.length }).end(body);
});
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ msg: "ready", listen: `127.0.0.1:${port}`, admin: "" }));
});
