/** The plans and what each of them lets an account ask for. A new plan is one more row in `publishedPlans`. */

export interface AccountLimits {
  readonly perMinute: number;
  readonly perDay: number;
}

/** The limits that the specification gives to the plans. Null stands for limits that each account has of its own. */
export const publishedPlans = {
  free: { perMinute: 60, perDay: 1_000 },
  pro: { perMinute: 300, perDay: 10_000 },
  business: { perMinute: 1_000, perDay: 100_000 },
  enterprise: null,
} as const satisfies Record<string, AccountLimits | null>;

export type PlanName = keyof typeof publishedPlans;

export const planNames = Object.keys(publishedPlans) as PlanName[];

/** The limits that a deployment gives to the plans; null where `publishedPlans` has null. */
export type PlanTable = Readonly<Record<PlanName, AccountLimits | null>>;

/** True for a plan whose accounts have limits of their own. */
export function hasOwnLimits(plan: PlanName): boolean {
  return publishedPlans[plan] === null;
}

const plansInTables = planNames.filter((plan) => !hasOwnLimits(plan));

/** A table of plans as people write it: `free=60/1000,pro=300/10000`, requests per minute / per day. */
export function formatPlans(plans: PlanTable): string {
  return plansInTables.map((plan) => `${plan}=${plans[plan]?.perMinute}/${plans[plan]?.perDay}`).join(",");
}

const entry = `\\s*(?:${plansInTables.join("|")})=[1-9]\\d{0,9}/[1-9]\\d{0,9}\\s*`;

/** A pattern of the tables of plans that people may write. */
export const plansPattern = `${entry}(?:,${entry})*`;

/** What is wrong with a text that is not of the form of `plansPattern`: its first entry that is wrong, and the form. */
export function plansFault(text: string): string {
  const isWrong = (each: string) => !new RegExp(`^${entry}$`).test(each);
  const entries = text.split(",");
  const place = entries.findIndex(isWrong);
  const [plan = ""] = entries[place]?.trim().split("=") ?? [];
  const fault = plansInTables.some((known) => known === plan)
    ? `${plan} must have REQUESTS_PER_MINUTE/REQUESTS_PER_DAY, such as ${plan}=60/1000`
    : `entry ${place + 1} names none of the plans ${plansInTables.join(", ")}`;
  return `${fault}; must be like ${formatPlans(publishedPlans)}, and a plan that is left out keeps its limits`;
}

/**
 * Reads a table of plans. A plan that the text does not name has its published limits.
 *
 * @param text of the form of `plansPattern`
 */
export function parsePlans(text: string): PlanTable {
  const entries = text.split(",").map((each) => each.trim().split(/[=/]/));
  const named = entries.map(([plan, perMinute, perDay]) => [
    plan,
    { perMinute: Number(perMinute), perDay: Number(perDay) },
  ]);
  return { ...publishedPlans, ...Object.fromEntries(named) };
}
