import { untilNextDayMs } from "./accounts.ts";
import type { Answer } from "./answers.ts";
import { callApi } from "./api.ts";
import { startLocalGateway, TestClock } from "./local-gateway.ts";
import type { Stack } from "./stack.ts";
import type { Env, KeyOptions, System } from "./system.ts";

/** Moves `Date.now` with the clock of a test, because the limit of an address uses it. */
export function onTestClock(clock: TestClock): void {
  import.meta.jest.spyOn(Date, "now").mockImplementation(clock.now);
}

export interface Opened {
  readonly address: string;
  readonly clock: TestClock;
  readonly key: string;
  readonly keyId: string;
  readonly account: string;
  readonly accountId: string;
  /** Reads the list with this key or another token, or with no token when it is empty. */
  use(token?: string): Promise<Answer>;
}

/** Starts a gateway with its own counts and clock, and issues a key, by default for a new account. */
export async function openAccount(
  stack: Stack,
  system: System,
  env: Env,
  keyOptions: KeyOptions = {},
): Promise<Opened> {
  const clock = new TestClock();
  const gateway = await startLocalGateway({ ...system.gatewayEnv, ...env }, clock.now);
  stack.defer(() => gateway.close());
  const { key, keyId, account, accountId } = await system.issueKey(keyOptions);
  return {
    address: gateway.address,
    clock,
    key,
    keyId,
    account,
    accountId,
    use: (token = key) => {
      const headers: Record<string, string> = token === "" ? {} : { authorization: `Bearer ${token}` };
      return callApi(gateway.address, { path: "/v1/inventory", headers });
    },
  };
}

/** The same, at the begin of a day of the account. */
export async function openToday(...args: Parameters<typeof openAccount>): Promise<Opened> {
  const opened = await openAccount(...args);
  opened.clock.advance(untilNextDayMs(opened.accountId, opened.clock.now()));
  return opened;
}
