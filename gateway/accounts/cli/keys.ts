#!/usr/bin/env node
/** The operators' command line, `npm run keys --`. Exit codes: 0 done, 1 refused, 64 wrong usage, 78 configuration. */
import "../../../runtime/node-version.ts";
import { type Command, Option } from "commander";
import { createCommand, exitUsage, runCommand, table } from "../../../runtime/command-line.ts";
import { blamingDatabase } from "../../../runtime/database/faults.ts";
import { updateSchema } from "../../../runtime/database/migrations.ts";
import { openDatabase } from "../../../runtime/database/open.ts";
import { readSettings } from "../../../runtime/settings.ts";
import { keyDatabaseSetting, keySettings } from "../../config.ts";
import { createKey, type StoredKey, storedKey } from "../keys/key-format.ts";
import { createKeyStore } from "../keys/key-store.ts";
import { checkPeppers, type Peppers, readPeppers } from "../keys/pepper.ts";
import { type AccountLimits, hasOwnLimits, type PlanName, planNames } from "../keys/plans.ts";
import { defaultScopes, type Scope } from "../keys/principal.ts";
import { gatewayMigrations } from "./account-migrations.ts";
import { describePlan } from "./account-store.ts";
import { createKeyAdmin, type KeyAdmin } from "./key-admin.ts";
import { parseDurationMs, parseFutureTimeMs, parseLimit, parseScopes, parseUsagePeriodMs } from "./key-arguments.ts";
import { notifyGateways } from "./notify-gateways.ts";
import { banCells, banJson, isoTime, keyCells, keyJson, shownTime, usageCells, usageJson } from "./output.ts";

const program = createCommand("keys", "Accounts and API keys of the petstore inventory API.", keySettings);

const day = parseDurationMs("24h");

interface Output {
  json?: boolean;
}

interface PlanOptions extends Output {
  account: string;
  perMinute?: number;
  perDay?: number;
}

interface IssueOptions extends PlanOptions {
  plan?: PlanName;
  scopes?: Scope[];
  expires?: number;
}

command("issue", "makes a key, and its account if there is none; shows the key once")
  .requiredOption("--account <name>", "account of the key")
  .addOption(planOption("plan of a new account (default: free)"))
  .addOption(limitOption("--per-minute <n>", "requests per minute"))
  .addOption(limitOption("--per-day <n>", "requests per day"))
  .option("--scopes <list>", `what the key may do (default: ${defaultScopes.join(",")})`, parseScopes)
  .option("--expires <time>", "end of the key in ISO 8601 (default: never)", parseFutureTimeMs)
  .action(async (options: IssueOptions, self: Command) => {
    const limits = readLimits(options, self);
    const { expires: expiresAtMs, ...request } = options;
    const { key, done: issued } = await withNewKey((admin, newKey) =>
      admin.issue({ ...newKey, ...request, limits, expiresAtMs }),
    );
    const { keyId, account, plan } = issued;
    const what = `A key for account '${account}', plan ${describePlan(issued)}`;
    const text = `${what}, expires ${shownTime(issued.expiresAtMs, "never")}:${showOnce(keyId, key)}`;
    print(options, { keyId, key, account, plan }, text);
  });

command("list", "shows keys, never their secrets")
  .option("--account <name>", "only the keys of this account")
  .action(async (options: Output & { account?: string }) => {
    const keys = await withAdmin((admin) => admin.list(options.account));
    const nowMs = Date.now();
    const cells = keys.map((key) => keyCells(key, nowMs));
    const json = keys.map((key) => keyJson(key, nowMs));
    print(options, json, table(cells, "There are no keys; 'issue' makes one."));
  });

command("rotate", "replaces a working key with a new one; shows the new key once")
  .argument("<KEY_ID>", "id of the old key")
  .addOption(
    new Option("--grace <duration>", "how long the old key still works, never past its own end: 30m, 24h, 7d")
      .argParser(parseDurationMs)
      .default(parseDurationMs("24h"), "24h"),
  )
  .action(async (oldId: string, options: Output & { grace: number }) => {
    const { key, done: rotated } = await withNewKey((admin, newKey) => admin.rotate(oldId, options.grace, newKey));
    await notifyGateways(settings().REDIS_URL, rotated.familyId);
    const { keyId, account, plan, oldExpiresAtMs } = rotated;
    const what = `A new key for account '${account}'; ${oldId} works until ${shownTime(oldExpiresAtMs, "-")}`;
    const json = { keyId, key, account, plan, oldKeyExpiresAt: isoTime(oldExpiresAtMs) };
    print(options, json, `${what}:${showOnce(keyId, key)}`);
  });

command("revoke", "ends keys, or all keys of an account, at once (within 10 s at every gateway)")
  .argument("[KEY_ID...]", "ids of the keys; those before an unknown one are ended")
  .option("--account <name>", "ends every key of this account")
  .action(async (keyIds: string[], options: Output & { account?: string }, self: Command) => {
    const { account: name } = options;
    if (keyIds.length > 0 && name === undefined) await revokeKeys(keyIds, options);
    else if (keyIds.length === 0 && name !== undefined) await revokeAccount(name, options);
    else self.error("error: give either KEY_IDs or --account", { exitCode: exitUsage });
  });

command("bans", "shows the running bans").action(async (options: Output) => {
  const keys = await withAdmin((admin) => admin.bans());
  print(options, keys.map(banJson), table(keys.map(banCells), "No key is banned."));
});

command("unban", "lifts a ban and resets its ladder: the next ban is as short as a first one")
  .argument("<KEY_ID>", "id of the key")
  .action(async (keyId: string, options: Output) => {
    const { key, lifted } = await withAdmin((admin) => admin.unban(keyId));
    await notifyGateways(settings().REDIS_URL, key.familyId);
    const done = lifted ? "is no longer banned" : "was not banned";
    print(options, { keyId, account: key.account, lifted }, `Key ${keyId} of account '${key.account}' ${done}.`);
  });

command("plan", "changes the plan of an account")
  .requiredOption("--account <name>", "account that gets the plan")
  .addOption(planOption("its new plan").makeOptionMandatory())
  .addOption(limitOption("--per-minute <n>", "requests per minute"))
  .addOption(limitOption("--per-day <n>", "requests per day"))
  .action(async (options: PlanOptions & { plan: PlanName }, self: Command) => {
    const limits = readLimits(options, self);
    const changed = await withAdmin((admin) => admin.changePlan(options.account, options.plan, limits));
    await notifyGateways(settings().REDIS_URL, changed.accountId);
    const json = { account: changed.account, plan: changed.plan, limits: changed.limits };
    print(options, json, `Account '${changed.account}' is on the plan ${describePlan(changed)}.`);
  });

command("usage", "shows keys, last use, requests served and refused (429), and deprecated requests by account")
  .option(
    "--last <duration>",
    "time whose requests are counted, as 30m, 24h or 7d; kept for 8 days",
    parseUsagePeriodMs,
    day,
  )
  .action(async (options: Output & { last: number }) => {
    const accounts = await withAdmin((admin) => admin.usage(Date.now() - options.last));
    print(options, accounts.map(usageJson), table(accounts.map(usageCells), "There are no accounts."));
  });

await runCommand(program);

function command(name: string, description: string): Command {
  return program.command(name).description(description).option("--json", "prints JSON");
}

function planOption(description: string): Option {
  return new Option("--plan <plan>", description).choices(planNames);
}

function limitOption(flags: string, description: string): Option {
  const plans = planNames.filter(hasOwnLimits).join(", ");
  return new Option(flags, `${description}, for the plan ${plans}`).argParser(parseLimit);
}

/** Reads an account's own limits: both or neither are given. */
function readLimits({ perMinute, perDay }: PlanOptions, self: Command): AccountLimits | null {
  if (perMinute === undefined && perDay === undefined) return null;
  if (perMinute === undefined || perDay === undefined) {
    return self.error("error: --per-minute and --per-day go together", { exitCode: exitUsage });
  }
  return { perMinute, perDay };
}

function settings() {
  return readSettings(keySettings, process.env);
}

async function revokeKeys(keyIds: readonly string[], options: Output): Promise<void> {
  const ended: string[] = [];
  try {
    await withAdmin(async (admin) => {
      for (const keyId of keyIds) {
        const { account, revokedAtMs } = await admin.revoke(keyId);
        ended.push(keyId);
        const json = { keyId, account, revokedAt: isoTime(revokedAtMs) };
        print(options, json, `Key ${keyId} of account '${account}' is revoked since ${shownTime(revokedAtMs, "-")}.`);
      }
    });
  } finally {
    if (ended.length > 0) await notifyGateways(settings().REDIS_URL, ...ended); // also of those before an unknown one
  }
}

async function revokeAccount(name: string, options: Output): Promise<void> {
  const { account, keyIds, revokedAtMs } = await withAdmin((admin) => admin.revokeAll(name));
  await notifyGateways(settings().REDIS_URL, account.accountId);
  const ended = keyIds.length === 1 ? "1 key is revoked" : `${keyIds.length} keys are revoked`;
  const json = { account: account.account, keyIds, revokedAt: isoTime(revokedAtMs) };
  print(options, json, `Account '${account.account}': ${keyIds.length === 0 ? "no key worked any more" : ended}.`);
}

/**
 * Makes a key and does the work with it. The pepper is read before the database is opened: a missing one leaves nothing
 * behind.
 */
async function withNewKey<T>(
  work: (admin: KeyAdmin, newKey: StoredKey) => Promise<T>,
): Promise<{ key: string; done: T }> {
  const peppers = readPeppers(settings());
  const key = createKey(settings().GATEWAY_KEY_ENV, peppers[0]);
  const done = await withAdmin((admin) => work(admin, storedKey(key, peppers[0])), peppers);
  return { key, done };
}

/**
 * Opens the database, brings its schema up to date, and closes it after the work.
 *
 * @param peppers for work that makes a key
 */
async function withAdmin<T>(work: (admin: KeyAdmin) => Promise<T>, peppers?: Peppers): Promise<T> {
  const { GATEWAY_DATABASE_URL } = settings();
  return await blamingDatabase(keyDatabaseSetting, async () => {
    await updateSchema(GATEWAY_DATABASE_URL, "gateway", gatewayMigrations);
    const db = openDatabase(GATEWAY_DATABASE_URL);
    try {
      if (peppers) await checkPeppers(peppers, createKeyStore(db));
      return await work(createKeyAdmin(db, Date.now));
    } finally {
      await db.destroy();
    }
  });
}

function showOnce(keyId: string, key: string): string {
  return `\n\n  ${key}\n\nKeep it safe: it is not shown again. Its id, for the other commands, is ${keyId}.`;
}

function print({ json }: Output, value: unknown, text: string): void {
  process.stdout.write(`${json ? JSON.stringify(value) : text}\n`);
}
