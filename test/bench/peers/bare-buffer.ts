// The least that node:http costs: it reads the request's body and writes one Buffer. No Express, no keys, no limits.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const body = readFileSync(process.env.BODY_FILE!);
const headers = { "Content-Type": "application/json", "Content-Length": body.length };

const server = createServer((request, response) => {
  const answer = () => response.writeHead(200, headers).end(body);
  if (request.method === "GET") answer();
  else request.resume().once("end", answer);
});
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ msg: "ready", listen: `127.0.0.1:${port}`, admin: "" }));
});
