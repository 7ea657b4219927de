import { keyedUpdateLimit, ownAccountLimit, rotationLimit } from "./account-guard.ts";

test("each guard of accounts counts in Redis under a name of its own below petstore:", () => {
  const prefixes = [ownAccountLimit, rotationLimit, keyedUpdateLimit(1)].map(({ keyPrefix }) => keyPrefix);
  for (const prefix of prefixes) expect(prefix).toMatch(/^petstore:/);
  expect(new Set(prefixes).size).toBe(prefixes.length);
});
