import { MemoryWindows } from "../limits/memory-windows.ts";
import { accountWindows } from "../limits/windows.ts";
import { localState } from "./shared-state.ts";

test("gateways that share nothing admit their shares: together the whole of each limit", async () => {
  const gatewayCount = 3;
  const now = () => 1_700_000_000_000;
  const states = Array.from({ length: gatewayCount }, () => {
    const memory = new MemoryWindows({ maxAccounts: 10, gatewayCount, now });
    return localState({ memory, gatewayCount, keyedUpdatesPerDay: 9, onThrottled: () => {} });
  });
  const admitted = { windows: 0, ownAccount: 0, rotations: 0, keyedUpdates: 0 };
  const windows = accountWindows({ perMinute: 9, perDay: 90 });
  for (const { limiter, guards } of states) {
    for (let i = 0; i < 200; i++) {
      admitted.windows += Number((await limiter.charge("a", windows)).admitted);
      for (const name of ["ownAccount", "rotations", "keyedUpdates"] as const) {
        const decision = await guards[name].charge("a");
        expect(decision.states[0]!.limit).toBe({ ownAccount: 60, rotations: 100, keyedUpdates: 9 }[name]);
        admitted[name] += Number(decision.admitted);
      }
    }
  }
  expect(admitted).toEqual({ windows: 9, ownAccount: 60, rotations: 102, keyedUpdates: 9 }); // shares are rounded up
});
