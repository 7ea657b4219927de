import fc from "fast-check";
import { Shares } from "./shares.ts";

test("an owner gets half of the places, and a second one half of the rest", () => {
  const shares = new Shares(100);
  const takeAll = (owner: string) => {
    let count = 0;
    while (shares.take(owner)) count += 1;
    return count;
  };
  expect([takeAll("first"), takeAll("second"), takeAll("third")]).toEqual([50, 25, 13]);
});

test("an owner without a place gets one as long as any is left, and all places can be taken", () => {
  const shares = new Shares(3);
  expect([shares.take("a"), shares.take("a"), shares.take("a")]).toEqual([true, true, false]);
  expect([shares.take("b"), shares.take("c")]).toEqual([true, false]);
  shares.release("a");
  expect(shares.take("c")).toBe(true);
});

test("an owner takes many places at once, up to what is left for it", () => {
  const shares = new Shares(100);
  expect([shares.take("a", 40), shares.take("a", 11), shares.left("a"), shares.left("b")]).toEqual([
    true,
    false,
    10,
    30,
  ]);
  shares.release("a", 40);
  expect(shares.left("b")).toBe(50);
});

test("no order of takes and releases gives more places than there are", () => {
  const steps = fc.array(fc.tuple(fc.constantFrom("a", "b", "c"), fc.boolean()), { maxLength: 200 });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 20 }), steps, (max, all) => {
      const shares = new Shares(max);
      const held: Record<string, number> = { a: 0, b: 0, c: 0 };
      for (const [owner, isTake] of all) {
        if (isTake && shares.take(owner)) held[owner]! += 1;
        if (!isTake && held[owner]! > 0) {
          shares.release(owner);
          held[owner]! -= 1;
        }
        const total = held.a! + held.b! + held.c!;
        expect(total).toBeLessThanOrEqual(max);
      }
    }),
  );
});
