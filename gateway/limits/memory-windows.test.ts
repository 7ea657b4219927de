import { MemoryWindows } from "./memory-windows.ts";
import type { Window } from "./windows.ts";

const minute: Window = { name: "minute", seconds: 60, limit: 10 };

/** Windows of one caller, and a clock of the test's own. */
function setUp() {
  const clock = { nowMs: 1_000_000 };
  const memory = new MemoryWindows({ maxCallers: 2, replicas: 1, now: () => clock.nowMs });
  const use = async (times: number, id = "caller") => {
    let last: number | undefined;
    for (let i = 0; i < times; i++) last = (await memory.decide(id, [minute])).windows[0]!.remaining;
    return last;
  };
  const left = (id = "caller") => memory.currentLimits(id, [minute]).windows[0]!.remaining;
  return { clock, memory, use, left };
}

describe("counts on their way to Redis", () => {
  test("counts on their way to Redis count for the replica until Redis has answered", async () => {
    const { memory, use, left } = setUp();
    await use(3);
    const taken = memory.takeUnsent("caller");
    expect(left()).toBe(7);
    memory.restoreUnsent("caller", taken);
    expect(left()).toBe(7);
  });

  test("counts on their way to Redis are not sent by another call", async () => {
    const { memory, use, left } = setUp();
    await use(3);
    const first = memory.takeUnsent("caller");
    const second = memory.takeUnsent("caller");
    expect(second).toMatchObject([{ unsent: 0 }]);
    const { resetAtMs } = first[0]!;
    memory.update("caller", [minute], [{ used: 1, resetAtMs }], second); // one of another replica
    expect(left()).toBe(6);
    memory.restoreUnsent("caller", second);
    expect(memory.takeUnsent("caller")).toMatchObject([{ unsent: 0 }]);
    memory.update("caller", [minute], [{ used: 4, resetAtMs }], first);
    expect(left()).toBe(6);
  });

  test("what a replica admits while its counts are on their way to Redis is kept when Redis does not receive them", async () => {
    const { memory, use, left } = setUp();
    await use(3);
    const taken = memory.takeUnsent("caller");
    await use(2);
    memory.restoreUnsent("caller", taken);
    expect(left()).toBe(5);
    expect(memory.takeUnsent("caller")).toMatchObject([{ unsent: 5 }]);
  });

  test("what a replica admits while its counts are on their way to Redis is kept when Redis answers", async () => {
    const { memory, use, left } = setUp();
    await use(3);
    const taken = memory.takeUnsent("caller");
    await use(2);
    memory.update("caller", [minute], [{ used: 4, resetAtMs: taken[0]!.resetAtMs }], taken); // one of another replica
    expect(left()).toBe(4);
    expect(memory.takeUnsent("caller")).toMatchObject([{ used: 4, unsent: 2 }]);
  });

  test("what a replica admits while its counts are on their way belongs to its own window, not to the one that Redis has begun since", async () => {
    const { memory, use, left, clock } = setUp();
    await use(3);
    const taken = memory.takeUnsent("caller");
    await use(2);
    clock.nowMs += 30_000;
    memory.update("caller", [minute], [{ used: 1, resetAtMs: clock.nowMs + 60_000 }], taken);
    expect(left()).toBe(9);
  });
});

test("the callers with a window that runs are listed, the one that was quiet the longest first, but after those with unsent requests", async () => {
  const clock = { nowMs: 1_000_000 };
  const memory = new MemoryWindows({ maxCallers: 10, replicas: 1, now: () => clock.nowMs });
  const update = (id: string, endsInMs: readonly number[]) => {
    const windows = [minute, { ...minute, seconds: 120 }];
    const totals = endsInMs.map((ms) => ({ used: 1, resetAtMs: clock.nowMs + ms }));
    memory.update(id, windows, totals);
  };
  update("over", [-1, 0]);
  update("first", [-1, 120_000]);
  update("second", [60_000, 120_000]);
  await memory.decide("alone", [minute]);
  update("third", [60_000, 120_000]);
  const ids = () => memory.running().map(({ id }) => id);
  expect(ids()).toEqual(["alone", "first", "second", "third"]);
  expect(memory.running()[0]).toEqual({ id: "alone", windows: [minute] });
  const taken = memory.takeUnsent("alone");
  memory.update("alone", [minute], [{ used: 1, resetAtMs: taken[0]!.resetAtMs }], taken);
  update("first", [-1, 120_000]);
  expect(ids()).toEqual(["second", "third", "alone", "first"]);
  clock.nowMs += 60_000;
  expect(ids()).toEqual(["second", "third", "first"]);
});

test("the caller that was quiet the longest is forgotten first", async () => {
  const { memory, use, left } = setUp();
  await use(3, "first");
  await use(3, "second");
  await use(1, "first");
  await use(3, "third");
  expect([left("first"), left("second"), left("third")]).toEqual([6, 10, 7]);
  expect(memory.decided).toBe(10);
});
