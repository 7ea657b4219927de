import { pino } from "pino";
import { Registry } from "prom-client";
import { until } from "../test/support/until.ts";
import { startAdmin } from "./admin.ts";
import { OperatorError } from "./operator-error.ts";

const listen = { host: "127.0.0.1", port: 0 };

test("a process that was ready logs once why it cannot serve, and once that it can again", async () => {
  const logged: object[] = [];
  const log = pino({ base: null, timestamp: false }, { write: (line: string) => void logged.push(JSON.parse(line)) });
  let fault: Error | undefined = new OperatorError("the database is still starting");
  const checkReady = async () => {
    if (fault) throw fault;
    return [];
  };
  const admin = await startAdmin({ listen, metrics: new Registry(), checkReady, log });
  const ask = async () => (await fetch(`http://${admin.address}/readyz`)).status;
  try {
    expect(await ask()).toBe(503);
    fault = undefined;
    expect(await ask()).toBe(200);
    fault = new OperatorError("no server answers");
    expect([await ask(), await ask()]).toEqual([503, 503]);
    fault = undefined;
    expect([await ask(), await ask()]).toEqual([200, 200]);
    fault = new Error("draining"); // which the stop itself logs
    expect(await ask()).toBe(503);
  } finally {
    await admin.close();
  }
  expect(logged).toEqual([
    { level: 40, reason: "no server answers", msg: "not ready" },
    { level: 30, msg: "ready again" },
  ]);
});

test("process_ready follows /readyz without a probe, and a scrape waits for no answer", async () => {
  let answer: Promise<readonly string[]> = Promise.resolve([]);
  const log = pino({ level: "silent" });
  const admin = await startAdmin({ listen, metrics: new Registry(), checkReady: () => answer, log });
  const shows = async (value: number) =>
    (await (await fetch(`http://${admin.address}/metrics`)).text()).includes(`process_ready ${value}\n`);
  try {
    await until(() => shows(1));
    answer = Promise.reject(new Error("no server answers"));
    answer.catch(() => {});
    await until(() => shows(0));
    answer = Promise.resolve([]);
    await until(() => shows(1));
    const silence = Promise.withResolvers<readonly string[]>();
    answer = silence.promise;
    expect([await shows(1), await shows(1)]).toEqual([true, true]);
    answer = Promise.resolve([]);
    silence.reject(new Error("no answer in time"));
    await until(() => shows(0));
    await until(() => shows(1));
  } finally {
    await admin.close();
  }
});
