import { pino } from "pino";
import { Registry } from "prom-client";
import { startAdmin } from "./admin.ts";
import { OperatorError } from "./operator-error.ts";

test("a process that was ready logs once why it cannot serve, and once that it can again", async () => {
  const logged: object[] = [];
  const log = pino({ base: null, timestamp: false }, { write: (line: string) => void logged.push(JSON.parse(line)) });
  let fault: Error | undefined = new OperatorError("the database is still starting");
  const ready = async () => {
    if (fault) throw fault;
    return [];
  };
  const admin = await startAdmin({ listen: { host: "127.0.0.1", port: 0 }, metrics: new Registry(), ready, log });
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
