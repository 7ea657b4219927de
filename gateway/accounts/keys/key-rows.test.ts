import { toPlan, UnusablePlanError } from "./key-rows.ts";

test.each([
  ["free", null, null, null],
  ["free", 7n, 70n, null], // left from another plan
  ["enterprise", 7n, 70n, { perMinute: 7, perDay: 70 }],
])(
  "limits in the row hold only where the plan has none: the plan %s with %j and %j gives %j",
  (plan, minute, day, limits) => {
    expect(toPlan({ plan, per_minute: minute, per_day: day })).toEqual({ plan, limits });
  },
);

test.each([
  ["a plan of a later version", "platinum", 7n, 70n],
  ["no limit for a minute", "enterprise", null, 70n],
  ["no limit for a day", "enterprise", 7n, null],
])("an account with %s cannot be used, and its limits are never taken for zero", (_what, plan, minute, day) => {
  const read = () => toPlan({ plan, per_minute: minute, per_day: day });
  expect(read).toThrow(UnusablePlanError);
  expect(read).toThrow(expect.objectContaining({ name: "UnusablePlanError" })); // the type in the log
});
