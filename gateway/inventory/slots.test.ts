import { maxSlots, Slots } from "./slots.ts";

test("each value in the slots is found once, by its own id, and the ids come in the order of the values", () => {
  const slots = new Slots<string>();
  const [a, b, c] = ["a", "b", "c"].map((value) => slots.add(value)) as [number, number, number];
  expect(slots.take(b)).toBe("b");
  expect(slots.take(b)).toBeUndefined();
  expect([slots.get(a), slots.get(b), slots.get(c)]).toEqual(["a", undefined, "c"]);
  expect([...slots.ids()]).toEqual([a, c]);
  expect(slots.size).toBe(2);
});

test("a waiting value keeps its place while thousands come and go, and the id of a removed value finds no other", () => {
  const slots = new Slots<number>();
  const waiting = slots.add(-1);
  const gone: number[] = [];
  for (let i = 0; i < 100_000; i++) {
    const id = slots.add(i);
    expect(slots.take(id)).toBe(i);
    gone.push(id);
  }
  const last = Array.from({ length: maxSlots - 1 }, (_, i) => slots.add(i));
  expect(gone.some((id) => slots.get(id) !== undefined)).toBe(false);
  expect(slots.get(waiting)).toBe(-1);
  expect([...slots.ids()]).toEqual([waiting, ...last]);
  expect(() => slots.add(0)).toThrow(RangeError);
  for (const id of slots.ids()) slots.take(id);
  expect([...slots.ids()]).toEqual([]);
  expect(slots.size).toBe(0);
});
