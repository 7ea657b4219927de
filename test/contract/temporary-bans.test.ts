import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { type Answer, bodyText, expectError, header, readLimits } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { type Opened, openAccount, openToday } from "../support/clocked-gateway.ts";
import { startLocalGateway } from "../support/local-gateway.ts";
import { suiteStack } from "../support/stack.ts";
import { type KeyOptions, type System, startSystem } from "../support/system.ts";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

describe("temporary bans", () => {
  const stack = suiteStack();
  const oneAMinute: KeyOptions = { plan: "enterprise", limits: { perMinute: 1, perDay: 1_000_000 } };
  const env = { BAN_REFUSALS_PER_MINUTE: "5" };
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
  });

  /** Sends requests beyond the limit until the key is banned. @returns the first answer with the ban */
  async function earnBan({ use, clock }: Opened, refusals = 5): Promise<Answer> {
    expect(await use()).toMatchObject({ status: 200 });
    for (let i = 1; i <= refusals; i++) {
      clock.advance(i === 2 ? second : 10); // those within a second of the first do not count
      expectError(await use(), 429, "rate_limit_exceeded");
    }
    // The ban is stored in the background. Until then, further requests get the 429 of the limit.
    for (let i = 0; i < 500; i++) {
      const answer = await use();
      if (codeOf(answer) === "api_key_banned") return answer;
    }
    throw new Error(`no ban after ${refusals} refusals`);
  }

  test("a temporary ban follows 30 refusals within a minute and lasts 5 minutes", async () => {
    const opened = await openAccount(stack, system, {}, oneAMinute);
    const { use, clock } = opened;
    const banned = await earnBan(opened, 30);
    expectError(banned, 429, "api_key_banned");
    expect(header(banned, "Retry-After")).toBe("300");
    const { resetAt, windows } = readLimits(banned, clock.now());
    expect(resetAt).toBe(Math.ceil((clock.now() + 5 * minute) / second));
    expect(windows).toMatchObject({ minute: { remaining: 0, resetSeconds: 300 }, day: { remaining: 0 } });
    // The ban outlasts the window, and further requests neither lengthen nor shorten it.
    for (const left of [239, 178, 117]) {
      clock.advance(61 * second);
      const still = await use();
      expectError(still, 429, "api_key_banned");
      expect(header(still, "Retry-After")).toBe(`${left}`);
      expect(readLimits(still, clock.now())).toMatchObject({ resetAt, remaining: 0 });
    }
    clock.advance(117 * second - 1);
    expectError(await use(), 429, "api_key_banned");
    clock.advance(1);
    expect(await use()).toMatchObject({ status: 200 });
  });

  test("a temporary ban lasts 5, 15, then 60 minutes, and 5 minutes again after a day without one", async () => {
    const opened = await openAccount(stack, system, env, oneAMinute);
    for (const minutes of [5, 15, 60, 60]) {
      expect(header(await earnBan(opened), "Retry-After")).toBe(`${60 * minutes}`);
      opened.clock.advance(minutes * minute + 23 * hour);
    }
    opened.clock.advance(hour);
    expect(header(await earnBan(opened), "Retry-After")).toBe("300");
  });

  test("a temporary ban within an exhausted day announces the end of the day, not that of the ban", async () => {
    const limits = { perMinute: 10, perDay: 1 };
    const opened = await openToday(stack, system, env, { plan: "enterprise", limits });
    const began = opened.clock.now();
    const banned = await earnBan(opened);
    const leftSeconds = Math.ceil((began + 24 * hour - opened.clock.now()) / second);
    expect(header(banned, "Retry-After")).toBe(`${leftSeconds}`);
    expect(readLimits(banned, opened.clock.now())).toMatchObject({ limit: 1, remaining: 0 });
  });

  test("a temporary ban has durations that follow the setting", async () => {
    const opened = await openAccount(stack, system, { ...env, BAN_LADDER_MINUTES: "1,2" }, oneAMinute);
    for (const minutes of [1, 2, 2]) {
      expect(header(await earnBan(opened), "Retry-After")).toBe(`${60 * minutes}`);
      opened.clock.advance(minutes * minute);
    }
  });

  test("a temporary ban does not follow occasional refusals", async () => {
    const limits = { perMinute: 1_000, perDay: 1 };
    const { use, clock, keyId } = await openAccount(stack, system, env, { plan: "enterprise", limits });
    expect(await use()).toMatchObject({ status: 200 });
    for (let i = 0; i < 20; i++) {
      clock.advance(15 * second);
      expectError(await use(), 429, "rate_limit_exceeded");
    }
    expect((await system.runKeys("bans")).stdout).not.toContain(keyId);
  });

  test("a temporary ban does not follow a burst at the end of the wait", async () => {
    const { use, clock, address, key, keyId } = await openAccount(stack, system, env, oneAMinute);
    expect(await use()).toMatchObject({ status: 200 });
    for (const burst of ["at once", "on one connection"]) {
      const told = await use();
      expectError(told, 429, "rate_limit_exceeded");
      clock.advance(Number(header(told, "Retry-After")) * second);
      if (burst === "at once") {
        const answers = await Promise.all(Array.from({ length: 100 }, () => use()));
        const refused = answers.filter(({ status }) => status === 429);
        expect(refused).toHaveLength(99);
        for (const answer of refused) expectError(answer, 429, "rate_limit_exceeded");
      } else {
        const head = `GET /v1/inventory HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer ${key}\r\n`;
        const connection = connect(Number(address.split(":")[1]));
        connection.write(`${`${head}\r\n`.repeat(99)}${head}Connection: close\r\n\r\n`);
        const raw = await text(connection);
        expect(raw.match(/HTTP\/1.1 429/g)).toHaveLength(99);
        expect(raw).not.toContain("api_key_banned");
      }
      expectError(await use(), 429, "rate_limit_exceeded");
    }
    expect((await system.runKeys("bans")).stdout).not.toContain(keyId);
  });

  test("a temporary ban holds for the key, while another key of the account is only limited", async () => {
    const opened = await openAccount(stack, system, env, oneAMinute);
    const { key: second } = await system.issueKey({ account: opened.account });
    await earnBan(opened);
    expectError(await opened.use(second), 429, "rate_limit_exceeded");
    opened.clock.advance(minute);
    expectError(await opened.use(), 429, "api_key_banned");
    expect(await opened.use(second)).toMatchObject({ status: 200 });
  });

  test("a temporary ban holds at every gateway within 10 s, and after a restart", async () => {
    const opened = await openAccount(stack, system, env, oneAMinute);
    const other = await startLocalGateway(system.gatewayEnv, opened.clock.now);
    stack.defer(() => other.close());
    const headers = { authorization: `Bearer ${opened.key}` };
    expect(await callApi(other.address, { path: "/v1/inventory", headers })).toMatchObject({ status: 200 });
    await earnBan(opened);
    opened.clock.advance(10 * second);
    expectError(await callApi(other.address, { path: "/v1/inventory", headers }), 429, "api_key_banned");
    const restarted = await startLocalGateway(system.gatewayEnv, opened.clock.now);
    stack.defer(() => restarted.close());
    expectError(await callApi(restarted.address, { path: "/v1/inventory", headers }), 429, "api_key_banned");
  });

  test("a temporary ban is listed for operators, and ends within 10 s after they lift it", async () => {
    const opened = await openAccount(stack, system, env, oneAMinute);
    const { use, clock, keyId } = opened;
    await earnBan(opened);
    opened.clock.advance(5 * minute);
    const banned = await earnBan(opened); // the second ban, so that there is a step to forget
    expect(header(banned, "Retry-After")).toBe("900");

    expect((await system.runKeys("bans")).stdout).toContain(keyId);
    const listed = JSON.parse((await system.runKeys("bans", "--json")).stdout) as Record<string, unknown>[];
    expect(listed.find((ban) => ban.keyId === keyId)).toMatchObject({ account: opened.account, step: 2 });
    const lifted = await system.runKeys("unban", keyId);
    expect(lifted).toMatchObject({ code: 0, stderr: "" });
    expect((await system.runKeys("bans")).stdout).not.toContain(keyId);

    clock.advance(10 * second);
    expectError(await use(), 429, "rate_limit_exceeded"); // lifting the ban leaves the window as it was
    clock.advance(minute);
    expect(header(await earnBan(opened), "Retry-After")).toBe("300");
  });
});

function codeOf(answer: Answer): string {
  return (JSON.parse(bodyText(answer)) as { code: string }).code;
}
