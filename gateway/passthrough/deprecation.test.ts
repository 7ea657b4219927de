import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import express, { type ErrorRequestHandler } from "express";
import { ApiError, type ErrorCode, toApiError } from "../http/errors.ts";
import { type DeprecationOptions, deprecation } from "./deprecation.ts";

const announced = {
  deprecatedAt: new Date("2026-01-01T00:00:00.900Z"),
  sunsetAt: new Date("2026-07-01T12:00:00.000Z"),
  goneAfterSunset: false,
};
const servers: Server[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  }
});

test("tells the dates and where to read about them, each in the form of its RFC", async () => {
  const { ask } = await start({ ...announced, documentationUrl: "https://docs.example/pets#end" });
  expect(await ask()).toMatchObject({
    status: 200,
    deprecation: "@1767225600",
    sunset: "Wed, 01 Jul 2026 12:00:00 GMT",
    link: '<https://docs.example/pets#end>; rel="deprecation", <https://docs.example/pets#end>; rel="sunset"',
  });
});

test.each<ErrorCode>(["missing_api_key", "rate_limit_exceeded", "not_found", "upstream_timeout", "internal_error"])(
  "is in the error %s too",
  async (code) => {
    const { ask } = await start(announced, code);
    expect(await ask()).toMatchObject({
      code,
      deprecation: "@1767225600",
      sunset: expect.any(String),
      link: '</docs>; rel="deprecation", </docs>; rel="sunset"',
    });
  },
);

test("says nothing of a date that is not set", async () => {
  const undated = await start({ ...announced, deprecatedAt: null, sunsetAt: null, goneAfterSunset: true });
  expect(await undated.ask()).toMatchObject({ status: 200, deprecation: null, sunset: null, link: null });
  const deprecatedOnly = await start({ ...announced, sunsetAt: null });
  expect(await deprecatedOnly.ask()).toMatchObject({ sunset: null, link: '</docs>; rel="deprecation"' });
  const sunsetOnly = await start({ ...announced, deprecatedAt: null });
  expect(await sunsetOnly.ask()).toMatchObject({ deprecation: null, link: '</docs>; rel="sunset"' });
});

test.each([
  ["before the sunset", true, announced.sunsetAt.getTime() - 1, 200],
  ["from the sunset on", true, announced.sunsetAt.getTime(), 410],
  ["long after the sunset, when it is to stay", false, announced.sunsetAt.getTime() + 1e12, 200],
])("answers %s", async (_when, goneAfterSunset, nowMs, status) => {
  const { ask } = await start({ ...announced, goneAfterSunset, now: () => nowMs });
  const response = await ask();
  expect(response).toMatchObject({ status, sunset: expect.any(String) });
  if (status === 410) expect(response).toMatchObject({ code: "not_found", bodyStatus: 410 });
});

test("counts every request of a known account once, and none of an unknown one", async () => {
  const uses: string[] = [];
  const onUse = (accountId: string) => uses.push(accountId);
  const { ask } = await start({ ...announced, onUse });
  await ask();
  await ask();
  await (await start({ ...announced, onUse }, "not_found")).ask();
  await (await start({ ...announced, onUse }, "missing_api_key")).ask();
  expect(uses).toEqual(["account-1", "account-1", "account-1"]);
});

/** A route that announces, authenticates and then answers, or fails with an error on the way. */
async function start(options: DeprecationOptions, failure?: ErrorCode) {
  const { announce, retire } = deprecation(options);
  const writeError: ErrorRequestHandler = (thrown, _req, res, _next) => {
    const error = toApiError(thrown);
    res.status(error.status).end(error.body);
  };
  const app = express()
    .use("/pets/:petId", (req, res, next) => {
      announce(req, res);
      next();
    })
    .use((_req, res, next) => {
      if (failure === "missing_api_key") return next(new ApiError(failure));
      res.locals.principal = { accountId: "account-1" };
      next();
    })
    .get("/pets/:petId", retire, (_req, res) => {
      if (failure !== undefined) throw new ApiError(failure);
      res.end("{}");
    })
    .use(writeError);
  const server = createServer(app);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  servers.push(server);
  const ask = async () => {
    const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/pets/7`);
    const { code, status: bodyStatus } = (await response.json()) as { code?: string; status?: number };
    const header = (name: string) => response.headers.get(name);
    const headers = { deprecation: header("deprecation"), sunset: header("sunset"), link: header("link") };
    return { status: response.status, code, bodyStatus, ...headers };
  };
  return { ask };
}
