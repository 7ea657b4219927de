import { randomBytes } from "node:crypto";
import type { Knex } from "knex";
import { retried } from "../../runtime/database/open.ts";
import type { AccountLimits, PlanName } from "../auth/principal.ts";
import { type PlanRow, toPlan } from "../auth/rows.ts";
import { KeyStoreError } from "./refusal.ts";

export interface Account {
  readonly accountId: string;
  /** Its name, for people. */
  readonly account: string;
  readonly plan: PlanName;
  /** Set when, and only when, the plan is enterprise. */
  readonly limits: AccountLimits | null;
}

/** What a column of 4 bytes holds; no plan comes near it. */
const largestLimit = 2_147_483_647;

/** @throws KeyStoreError `unknown_account` */
export async function getAccount(db: Knex, name: string): Promise<Account> {
  const account = await findAccount(db, accountName(name));
  if (account === undefined) throw unknownAccount(name);
  return account;
}

/**
 * The account of that name, made when there is none. Several callers at once get the same one.
 *
 * @param plan the plan of a new account, `free` when not given; one that exists must have it already
 * @throws KeyStoreError `invalid_account`, `invalid_limits`, or `plan_differs` for another plan or other limits
 */
export async function ensureAccount(
  db: Knex,
  name: string,
  nowMs: number,
  plan?: PlanName,
  limits?: AccountLimits | null,
): Promise<Account> {
  const exact = accountName(name);
  const existing = await findAccount(db, exact);
  if (existing !== undefined) return requireSamePlan(existing, plan, limits);
  const id = `acc_${randomBytes(10).toString("hex")}`;
  const row = { id, name: exact, created_at: nowMs, ...planColumns(plan ?? "free", limits) };
  await retried(db, () => db("accounts").insert(row).onConflict("name").ignore());
  // Read back, because another caller may have made the account in between, with a plan of its own.
  return requireSamePlan(await getAccount(db, exact), plan, limits);
}

/**
 * Changes the plan of an account, which all its keys share.
 *
 * @param limits required for enterprise, refused for the other plans
 * @throws KeyStoreError `invalid_limits` or `unknown_account`
 */
export async function changePlan(db: Knex, name: string, plan: PlanName, limits?: AccountLimits | null) {
  const exact = accountName(name);
  const columns = planColumns(plan, limits);
  await retried(db, () => db("accounts").where("name", exact).update(columns));
  return getAccount(db, exact);
}

/**
 * Account names are 1 to 128 printable characters. Outer spaces and the two ways to write an `é` make no difference;
 * upper and lower case do.
 *
 * @throws KeyStoreError `invalid_account`
 */
function accountName(text: string): string {
  const name = text.normalize("NFC").trim();
  if (name === "" || [...name].length > 128 || /[\p{C}\p{Zl}\p{Zp}]/u.test(name)) {
    throw new KeyStoreError("invalid_account", "The name of an account is 1 to 128 printable characters.");
  }
  return name;
}

async function findAccount(db: Knex, name: string): Promise<Account | undefined> {
  const row: (PlanRow & { id: string; name: string }) | undefined = await db("accounts")
    .where({ name })
    .first("id", "name", "plan", "per_minute", "per_day");
  return row && { accountId: row.id, account: row.name, ...toPlan(row) };
}

function unknownAccount(name: string): KeyStoreError {
  return new KeyStoreError("unknown_account", `There is no account '${name}'.`);
}

function requireSamePlan(account: Account, plan?: PlanName, limits?: AccountLimits | null): Account {
  const otherPlan = plan !== undefined && plan !== account.plan;
  const otherLimits =
    limits && (limits.perMinute !== account.limits?.perMinute || limits.perDay !== account.limits.perDay);
  if (!otherPlan && !otherLimits) return account;
  throw new KeyStoreError(
    "plan_differs",
    `Account '${account.account}' is on the plan ${describePlan(account)}; change it with 'keys plan' first.`,
  );
}

/** As `pro`, or `enterprise (600/min, 100000/day)`. */
export function describePlan({ plan, limits }: Pick<Account, "plan" | "limits">): string {
  return limits ? `${plan} (${limits.perMinute}/min, ${limits.perDay}/day)` : plan;
}

function planColumns(plan: PlanName, limits?: AccountLimits | null) {
  if (plan !== "enterprise" && limits) {
    throw new KeyStoreError("invalid_limits", `Limits of an account's own are for the plan enterprise, not ${plan}.`);
  }
  if (plan === "enterprise" && !limits) {
    throw new KeyStoreError("invalid_limits", "The plan enterprise needs its limits per minute and per day.");
  }
  const columns = { plan, per_minute: limits?.perMinute ?? null, per_day: limits?.perDay ?? null };
  for (const limit of [columns.per_minute, columns.per_day]) {
    if (limit !== null && !(Number.isInteger(limit) && limit >= 1 && limit <= largestLimit)) {
      throw new KeyStoreError("invalid_limits", `A limit is a whole number from 1 to ${largestLimit}.`);
    }
  }
  return columns;
}
