import { formatPlans, parsePlans, plansFault, plansPattern, publishedPlans } from "./plans.ts";

test("a table of plans changes the plans that it names and no others", () => {
  const free = { perMinute: 30, perDay: 500 };
  expect(parsePlans("free=30/500")).toEqual({ ...publishedPlans, free });
  const business = { perMinute: 1, perDay: 9_999_999_999 };
  expect(parsePlans(" free=30/500 , business=1/9999999999")).toEqual({ ...publishedPlans, free, business });
});

test("the contract's table of plans reads back as it is written", () => {
  expect(formatPlans(publishedPlans)).toBe("free=60/1000,pro=300/10000,business=1000/100000");
  expect(parsePlans(formatPlans(publishedPlans))).toEqual(publishedPlans);
});

test.each([
  "",
  "free",
  "free=30",
  "free=0/5",
  "free=30/-5",
  "gold=1/2",
  "constructor=1/2",
  "enterprise=1/2",
  "free=1/2,",
  "free=1/2 pro=1/2",
])("%j is not accepted as a table of plans", (text) => {
  expect(text).not.toMatch(new RegExp(`^(?:${plansPattern})$`));
});

test.each([
  ["free=60/1000,pro=300", /^pro must have REQUESTS_PER_MINUTE\/REQUESTS_PER_DAY, such as pro=60\/1000;/],
  ["pro", /^pro must have REQUESTS/],
  ["free=60/1000, gold=1/2", /^entry 2 names none of the plans free, pro, business;/],
  ["enterprise=1/2", /^entry 1 names none of the plans/],
  ["nonsense", /^entry 1 names none .*; must be like free=60\/1000,.* a plan that is left out keeps its limits$/],
])("what is wrong with the table of plans %j is said of the plan, with the form", (text, fault) => {
  expect(plansFault(text)).toMatch(fault);
});
