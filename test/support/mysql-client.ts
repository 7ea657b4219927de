import { randomBytes } from "node:crypto";
import { type Connection, createConnection } from "mysql2/promise";

const ownPrefix = "petstore_test_";

/** Opens a connection that is independent of the code under test. */
export async function connectMysql(url: string): Promise<Connection> {
  const { hostname, port, username, password, pathname, searchParams } = new URL(url);
  return await createConnection({
    host: hostname.replace(/^\[|\]$/g, ""),
    port: Number(port || 3306),
    user: decodeURIComponent(username),
    password: decodeURIComponent(password),
    database: decodeURIComponent(pathname.slice(1)),
    charset: "utf8mb4",
    connectTimeout: 5_000,
    ...(searchParams.get("ssl") === "true" && { ssl: { rejectUnauthorized: true, verifyIdentity: true } }),
  });
}

/** Returns the URL of another database on the same server. */
export function withDatabase(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  return url.href;
}

/** @returns the URL of a new empty database with a name of its own */
export async function createDatabaseOn(serverUrl: string): Promise<string> {
  const name = `${ownPrefix}${randomBytes(8).toString("hex")}`;
  await execute(withDatabase(serverUrl, ""), `CREATE DATABASE ${name} CHARACTER SET utf8mb4`);
  return withDatabase(serverUrl, name);
}

/** Drops a database that `createDatabaseOn` made, and refuses any other, as the server may hold other data. */
export async function dropMysqlDatabase(url: string): Promise<void> {
  const name = new URL(url).pathname.slice(1);
  if (!/^petstore_test_[0-9a-f]{16}$/.test(name)) throw new Error(`${name} is not a database of the tests`);
  await execute(withDatabase(url, ""), `DROP DATABASE IF EXISTS ${name}`);
}

async function execute(url: string, statement: string): Promise<void> {
  const connection = await connectMysql(url);
  try {
    await connection.query(statement);
  } finally {
    await connection.end();
  }
}
