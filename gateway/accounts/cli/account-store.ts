/** Accounts: their names, plans and limits. */
import { randomBytes } from "node:crypto";
import type { Knex } from "knex";
import { retried } from "../../../runtime/database/statements.ts";
import { type PlanRow, toPlan } from "../keys/key-rows.ts";
import { type AccountLimits, hasOwnLimits, type PlanName } from "../keys/plans.ts";
import { AccountError } from "./account-error.ts";

export interface Account {
  readonly accountId: string;
  /** Its name, for people. */
  readonly account: string;
  readonly plan: PlanName;
  /** Null exactly when the plan has the same limits for all its accounts. */
  readonly limits: AccountLimits | null;
}

export type AccountIdentity = Pick<Account, "accountId" | "account">;

/** Finds an account by its name. @throws AccountError `invalid_account`, `unknown_account` */
export async function getAccount(db: Knex, name: string): Promise<Account> {
  const account = await findAccount(db, accountName(name));
  if (account === undefined) throw unknownAccount(name);
  return account;
}

/**
 * Finds an account whatever its plan, even one that only a later version knows.
 *
 * @throws AccountError, as `getAccount`
 */
export async function identifyAccount(db: Knex, name: string): Promise<AccountIdentity> {
  const row = await findRow(db, accountName(name));
  if (row === undefined) throw unknownAccount(name);
  return { accountId: row.id, account: row.name };
}

function unknownAccount(name: string): AccountError {
  return new AccountError("unknown_account", `There is no account '${name}'.`);
}

/** Every account, by name. */
export async function readAccounts(db: Knex): Promise<Account[]> {
  const rows: AccountRow[] = await selectAccounts(db).orderBy("name");
  return rows.map(toAccount);
}

/**
 * Finds the account of that name, or makes it. Several callers at once get the same one.
 *
 * @param plan of a new account, default `free`; an account that exists must be on it already
 * @param limits the account's own limits, as in `changePlan`
 * @throws AccountError `invalid_account`, `invalid_limits`, or `plan_differs` for another plan or other limits
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
  await retried(() => db("accounts").insert(row).onConflict("name").ignore());
  // Read back, because another caller may have made the account in between, with a plan of its own.
  return requireSamePlan(await getAccount(db, exact), plan, limits);
}

/**
 * Changes the plan of an account, which all its keys share.
 *
 * @param limits the account's own limits: required for a plan whose accounts have such, else refused
 * @throws AccountError `invalid_account`, `invalid_limits`, `unknown_account`
 */
export async function changePlan(
  db: Knex,
  name: string,
  plan: PlanName,
  limits?: AccountLimits | null,
): Promise<Account> {
  const exact = accountName(name);
  const columns = planColumns(plan, limits);
  await retried(() => db("accounts").where("name", exact).update(columns));
  return await getAccount(db, exact);
}

/** As `pro`, or `enterprise (600/min, 100000/day)`. */
export function describePlan({ plan, limits }: Pick<Account, "plan" | "limits">): string {
  return limits ? `${plan} (${limits.perMinute}/min, ${limits.perDay}/day)` : plan;
}

interface AccountRow extends PlanRow {
  id: string;
  name: string;
}

async function findAccount(db: Knex, name: string): Promise<Account | undefined> {
  const row = await findRow(db, name);
  return row && toAccount(row);
}

async function findRow(db: Knex, name: string): Promise<AccountRow | undefined> {
  return await selectAccounts(db).where({ name }).first();
}

function selectAccounts(db: Knex): Knex.QueryBuilder {
  return db("accounts").select("id", "name", "plan", "per_minute", "per_day");
}

function toAccount(row: AccountRow): Account {
  return { accountId: row.id, account: row.name, ...toPlan(row) };
}

/**
 * The exact name of an account: 1 to 128 printable characters. Outer spaces and the two ways to write an `é` make no
 * difference; upper and lower case do.
 *
 * @throws AccountError `invalid_account`
 */
function accountName(text: string): string {
  const name = text.normalize("NFC").trim();
  if (name === "" || [...name].length > 128 || /[\p{C}\p{Zl}\p{Zp}]/u.test(name)) {
    throw new AccountError("invalid_account", "The name of an account is 1 to 128 printable characters.");
  }
  return name;
}

function requireSamePlan(account: Account, plan?: PlanName, limits?: AccountLimits | null): Account {
  const otherPlan = plan !== undefined && plan !== account.plan;
  const otherLimits =
    limits && (limits.perMinute !== account.limits?.perMinute || limits.perDay !== account.limits.perDay);
  if (!otherPlan && !otherLimits) return account;
  throw new AccountError(
    "plan_differs",
    `Account '${account.account}' is on the plan ${describePlan(account)}; change it with 'keys plan' first.`,
  );
}

/** The most that a column of 4 bytes holds. */
const largestLimit = 2_147_483_647;

function planColumns(plan: PlanName, limits?: AccountLimits | null) {
  if (limits && !hasOwnLimits(plan)) {
    throw new AccountError("invalid_limits", `The plan ${plan} has the same limits for all its accounts.`);
  }
  if (!limits && hasOwnLimits(plan)) {
    throw new AccountError(
      "invalid_limits",
      `An account on the plan ${plan} needs limits of its own: --per-minute and --per-day.`,
    );
  }
  const columns = { plan, per_minute: limits?.perMinute ?? null, per_day: limits?.perDay ?? null };
  for (const limit of [columns.per_minute, columns.per_day]) {
    if (limit !== null && !(Number.isInteger(limit) && limit >= 1 && limit <= largestLimit)) {
      throw new AccountError("invalid_limits", `A limit is a whole number from 1 to ${largestLimit}.`);
    }
  }
  return columns;
}
