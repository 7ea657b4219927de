import { UnwrittenMinutes } from "./unwritten-minutes.ts";

test("a minute that is lost and begun again while it is written keeps what is counted since", () => {
  const minutes = new UnwrittenMinutes();
  for (let i = 0; i < 300_000; i++) for (let times = 0; times < 2; times++) minutes.count(`${i}`, 0, false);
  const parts = minutes.parts(100);
  expect(parts.next().value).toHaveLength(100);
  minutes.count("one too many", 0, false); // the minute is lost, and begins again
  minutes.count("0", 0, false);
  parts.next();
  expect(minutes.of("0")).toEqual([{ accountId: "0", minuteStartMs: 0, requests: 1, refused: 0 }]);
});
