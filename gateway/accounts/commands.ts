#!/usr/bin/env node
import { once } from "node:events";
import { Command, CommanderError, Option } from "commander";
import { openDatabase } from "../../runtime/database/open.ts";
import { migrate } from "../../runtime/migrations.ts";
import { exitWith, loadEnvFile } from "../../runtime/process.ts";
import { describeSettings, readSettings } from "../../runtime/settings.ts";
import { createKey, hashKey } from "../auth/key-format.ts";
import { readPepper } from "../auth/pepper.ts";
import { type AccountLimits, type PlanName, planNames, type Scope, scopes } from "../auth/principal.ts";
import { gatewaySettings, keySettings } from "../config.ts";
import { parsePlans } from "../limits/plans.ts";
import { connectRedis } from "../redis/connection.ts";
import { KeyNotices } from "../redis/key-changes.ts";
import { describePlan } from "./account-store.ts";
import { parseCount, parseDuration, parseFutureTime, parseScopes } from "./arguments.ts";
import { createKeyAdmin, type KeyAdmin } from "./key-admin.ts";
import { keyMigrations } from "./migrations.ts";
import {
  banCells,
  banJson,
  isoTime,
  keyCells,
  keyJson,
  rehearsalJson,
  rehearsalText,
  shownTime,
  table,
  usageCells,
  usageJson,
} from "./output.ts";
import { KeyStoreError } from "./refusal.ts";

/** The operators' command line: `npm run keys -- …`. Exit codes: 0 done, 1 refused, 64 wrong usage, 78 configuration. */

const exitRefused = 1;
/** sysexits.h EX_USAGE. */
const exitUsage = 64;

const rehearsalSettings = { ...keySettings, PLAN_LIMITS: gatewaySettings.PLAN_LIMITS };

interface Output {
  json?: boolean;
}

interface LimitOptions {
  plan?: PlanName;
  perMinute?: number;
  perDay?: number;
}

const program = new Command("keys")
  .description("Accounts and API keys of the petstore inventory API.")
  .exitOverride()
  .addHelpText("after", `\nSettings, from the environment or a .env file:\n${describeSettings(rehearsalSettings)}`);

interface IssueOptions extends Output, LimitOptions {
  account: string;
  scopes?: Scope[];
  expires?: number;
}

command("issue", "makes a key, and its account where needed; shows the key once")
  .requiredOption("--account <name>", "account of the key")
  .addOption(planOption("plan of a new account (default: free)"))
  .option("--per-minute <n>", "enterprise: requests per minute", parseCount)
  .option("--per-day <n>", "enterprise: requests per day", parseCount)
  .option("--scopes <list>", `what the key may do (default: ${scopes.join(",")})`, parseScopes)
  .option("--expires <time>", "end of the key in ISO 8601 (default: never)", parseFutureTime)
  .action(async (options: IssueOptions, self: Command) => {
    const limits = readLimits(options, self);
    const { key, newKey } = makeKey();
    const { expires: expiresAtMs, ...request } = options;
    const issued = await withAdmin((admin) => admin.issue({ ...newKey, ...request, limits, expiresAtMs }));
    const { keyId, account, plan } = issued;
    const what = `A key for account '${account}', plan ${describePlan(issued)}`;
    const text = `${what}, expires ${shownTime(issued.expiresAtMs, "never")}:${showOnce(keyId, key)}`;
    print(options, { keyId, key, account, plan }, text);
  });

command("list", "shows keys, never their secrets")
  .option("--account <name>", "only this account's")
  .action(async (options: Output & { account?: string }) => {
    const keys = await withAdmin((admin) => admin.list(options.account));
    const nowMs = Date.now();
    const cells = keys.map((key) => keyCells(key, nowMs));
    const json = keys.map((key) => keyJson(key, nowMs));
    print(options, json, table(cells, "There are no keys; 'issue' makes one."));
  });

command("rotate", "puts a new key in the place of one that works")
  .argument("<KEY_ID>", "id of the old key")
  .addOption(
    new Option("--grace <duration>", "how long the old key works on, never past its own end: 30m, 24h, 7d")
      .argParser(parseDuration)
      .default(parseDuration("24h"), "24h"),
  )
  .action(async (oldId: string, options: Output & { grace: number }) => {
    const { key, newKey } = makeKey();
    const { keyId, account, plan, oldExpiresAtMs } = await withAdmin(
      (admin) => admin.rotate(oldId, options.grace, newKey),
      () => oldId,
    );
    const what = `A new key for account '${account}'; ${oldId} works until ${shownTime(oldExpiresAtMs, "-")}`;
    const json = { keyId, key, account, plan, oldKeyExpiresAt: isoTime(oldExpiresAtMs) };
    print(options, json, `${what}:${showOnce(keyId, key)}`);
  });

command("revoke", "ends a key at once (within 10 s at every gateway)")
  .argument("<KEY_ID>", "id of the key")
  .action(async (keyId: string, options: Output) => {
    const { account, revokedAtMs } = await withAdmin(
      (admin) => admin.revoke(keyId),
      () => keyId,
    );
    const json = { keyId, account, revokedAt: isoTime(revokedAtMs) };
    print(options, json, `Key ${keyId} of account '${account}' is revoked since ${shownTime(revokedAtMs, "-")}.`);
  });

command("bans", "shows the bans that run").action(async (options: Output) => {
  const keys = await withAdmin((admin) => admin.bans());
  print(options, keys.map(banJson), table(keys.map(banCells), "No key is banned."));
});

command("unban", "lifts a ban and forgets those before it")
  .argument("<KEY_ID>", "id of the key")
  .action(async (keyId: string, options: Output) => {
    const { key, lifted } = await withAdmin(
      (admin) => admin.unban(keyId),
      () => keyId,
    );
    const done = lifted ? "is no longer banned" : "was not banned";
    print(options, { keyId, account: key.account, lifted }, `Key ${keyId} of account '${key.account}' ${done}.`);
  });

interface PlanOptions extends Output, LimitOptions {
  account?: string;
  rehearse?: string;
  all?: boolean;
}

command("plan", "changes the plan of an account, or shows what other limits would have done")
  .option("--account <name>", "account that gets the plan")
  .addOption(planOption("its new plan"))
  .option("--per-minute <n>", "enterprise: requests per minute", parseCount)
  .option("--per-day <n>", "enterprise: requests per day", parseCount)
  .addOption(
    new Option(
      "--rehearse <plans>",
      "changes nothing: shows which accounts these limits would have refused, by their traffic of the last 7 days, as free=30/500,pro=300/10000 (requests per minute / per day; other plans as in PLAN_LIMITS)",
    ).conflicts(["account", "plan", "perMinute", "perDay"]),
  )
  .option("--all", "with --rehearse: also the accounts that they would not have refused")
  .action(async (options: PlanOptions, self: Command) => {
    if (options.rehearse !== undefined) return await rehearse(options, options.rehearse, self);
    const { account, plan } = options;
    if (account === undefined || plan === undefined) {
      return self.error("error: --account and --plan are needed, or --rehearse", { exitCode: exitUsage });
    }
    const limits = readLimits(options, self);
    const changed = await withAdmin(
      (admin) => admin.setPlan(account, plan, limits),
      ({ accountId }) => accountId,
    );
    const json = { account: changed.account, plan: changed.plan, limits: changed.limits };
    print(options, json, `Account '${changed.account}' is on the plan ${describePlan(changed)}.`);
  });

command("usage", "shows keys, last use and use of deprecated routes per account").action(async (options: Output) => {
  const accounts = await withAdmin((admin) => admin.usage());
  print(options, accounts.map(usageJson), table(accounts.map(usageCells), "There are no accounts."));
});

loadEnvFile();
try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = fail(error);
}

function command(name: string, description: string): Command {
  return program.command(name).description(description).option("--json", "for machines");
}

async function rehearse(options: PlanOptions, text: string, self: Command): Promise<void> {
  const { PLAN_LIMITS: plansNow } = readSettings(rehearsalSettings, process.env);
  const plansThen = parsePlans(text, plansNow);
  if (plansThen === undefined) {
    return self.error("error: give --rehearse as in free=30/500,pro=300/10000", { exitCode: exitUsage });
  }
  const rehearsal = await withAdmin((admin) => admin.rehearse(plansNow, plansThen));
  const shown = rehearsal.accounts.filter(({ refusedThen }) => options.all || refusedThen.requests > 0);
  print(options, { plans: plansThen, ...rehearsalJson(rehearsal, shown) }, rehearsalText(rehearsal, shown));
}

function planOption(description: string): Option {
  return new Option("--plan <plan>", description).choices(planNames);
}

function readLimits({ perMinute, perDay }: LimitOptions, self: Command): AccountLimits | null {
  if (perMinute === undefined && perDay === undefined) return null;
  if (perMinute === undefined || perDay === undefined) {
    return self.error("error: --per-minute and --per-day go together", { exitCode: exitUsage });
  }
  return { perMinute, perDay };
}

/** Comes before the database is touched, so that a missing pepper leaves nothing behind. */
function makeKey() {
  const settings = readSettings(keySettings, process.env);
  const key = createKey(settings.GATEWAY_KEY_ENV);
  return { key, newKey: { keyHash: hashKey(key, readPepper(settings)), env: settings.GATEWAY_KEY_ENV } };
}

/**
 * Opens the database, brings its schema up to date, and closes it again so that the process can end.
 *
 * @param changedId the key or account that gateways have to look up again at once
 */
async function withAdmin<T>(work: (admin: KeyAdmin) => Promise<T>, changedId?: (done: T) => string): Promise<T> {
  const settings = readSettings(keySettings, process.env);
  const db = openDatabase(settings.GATEWAY_DATABASE_URL);
  try {
    await migrate(db, "gateway", keyMigrations, "up");
    const done = await work(createKeyAdmin(db, Date.now));
    if (changedId && settings.REDIS_URL !== undefined) await tellGateways(settings.REDIS_URL, changedId(done));
    return done;
  } finally {
    await db.destroy();
  }
}

/** What is done is done: gateways that hear nothing find out by themselves within 10 s. */
async function tellGateways(redisUrl: string, id: string): Promise<void> {
  const redis = connectRedis(redisUrl);
  redis.on("error", () => {}); // the failed notice says enough
  try {
    await once(redis, "ready", { signal: AbortSignal.timeout(2_000) });
    await new KeyNotices(redis).publish(id);
  } catch {
    process.stderr.write("Redis cannot be reached: the gateways take up to 10 s to notice.\n");
  } finally {
    redis.disconnect();
  }
}

function showOnce(keyId: string, key: string): string {
  return `\n\n  ${key}\n\nKeep it safe: it is not shown again. Its id, for the other commands, is ${keyId}.`;
}

function print({ json }: Output, value: unknown, text: string): void {
  process.stdout.write(`${json ? JSON.stringify(value) : text}\n`);
}

/** Says what went wrong, unless commander did. @returns the exit code */
function fail(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitUsage;
  if (error instanceof KeyStoreError) {
    process.stderr.write(`${error.message}\n`);
    return exitRefused;
  }
  // Faults of a database or a file have a code and a message that says enough; anything else is a bug, with its stack.
  const { code, message } = error as NodeJS.ErrnoException;
  if (typeof code !== "string") exitWith(error);
  process.stderr.write(`${message || code}\n`);
  return exitRefused;
}
