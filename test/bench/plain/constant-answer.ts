// The cheapest Express app: it writes one Buffer, without keys, limits or another service.
import { readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import express from "express";

const body = readFileSync(process.env.BODY_FILE!);

const app = express().disable("x-powered-by").disable("etag").set("query parser", false);
app.get("/v1/inventory", (_request, response) => {
  response.setHeader("Content-Type", "application/json");
  response.setHeader("Content-Length", body.length);
  response.end(body);
});
const server = app.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ msg: "ready", listen: `127.0.0.1:${port}`, admin: "" }));
});
