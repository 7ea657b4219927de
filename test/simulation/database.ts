/**
 * A database server as `mysql2` sees it: sessions, transactions and row locks over an SQLite database in memory.
 *
 * An open transaction keeps its statements and runs them again at COMMIT, so no other session sees what is not
 * committed. A statement that locks, or writes, waits for the lock of its table.
 */
import Sqlite from "better-sqlite3";
import { meet } from "./events.ts";
import type { Random } from "./random.ts";
import type { End, Network } from "./virtual-network.ts";
import { at, Host, note, nowMs, phases } from "./virtual-time.ts";

/** What a client sends: statements, separated by semicolons, with their values. A ping has none. */
export interface Packet {
  readonly sql: string;
  readonly bindings: readonly unknown[];
}

export type Answer = { readonly results: readonly unknown[] } | { readonly error: DriverError };

export interface DriverError {
  readonly code: string;
  readonly message: string;
  readonly sqlState?: string;
  readonly fatal?: boolean;
}

export interface DatabaseFaults {
  /** Probability that COMMIT answers with a deadlock, and has not happened. */
  deadlock: number;
  /** Probability that the session is lost before COMMIT, or after it. */
  lostBefore: number;
  lostAfter: number;
  /**
   * Probability that a session does not wait for a lock, as if it wrote through another server. Then the first of the
   * two that commits a change of the head has the other's transaction undone, which learns of it with its next packet.
   */
  overtaken: number;
}

export interface Statement {
  readonly sql: string;
  readonly bindings: readonly unknown[];
}

interface Prepared {
  readonly statement: Sqlite.Statement;
  /** Of a read: the columns that MySQL answers as numbers. */
  readonly narrow: readonly string[] | undefined;
}

const lockWaitTimeout: DriverError = {
  code: "ER_LOCK_WAIT_TIMEOUT",
  message: "Lock wait timeout exceeded; try restarting transaction",
  sqlState: "HY000",
};
const deadlock: DriverError = { code: "ER_LOCK_DEADLOCK", message: "Deadlock found", sqlState: "40001" };
const readOnly: DriverError = {
  code: "ER_OPTION_PREVENTS_STATEMENT",
  message: "The MySQL server is running with the --read-only option",
  sqlState: "HY000",
};

export class DatabaseServer {
  readonly host: Host;
  readonly sqlite: Sqlite.Database;
  /** Whether another server takes the writes by now. */
  isReadOnly = false;
  readonly faults: DatabaseFaults = { deadlock: 0, lostBefore: 0, lostAfter: 0, overtaken: 0 };
  readonly random: Random;
  /** Called after each commit, before anybody learns of it. */
  onCommit: () => void = () => {};
  /** Gets the rows of each read. */
  onRead: (statement: Statement, rows: readonly Record<string, unknown>[]) => void = () => {};
  readonly #sessions = new Set<Session>();
  readonly #locks = new Map<string, { owner: Session; readonly waiting: ((has: boolean) => void)[] }>();
  /** Sessions that did not wait for the lock on the head, and those that they did not wait for. */
  readonly #overlapping = new Set<Session>();
  readonly #prepared = new Map<string, Prepared>();

  constructor(name: string, network: Network, address: string, image: Buffer, random: Random) {
    this.host = new Host(name);
    this.sqlite = new Sqlite(image);
    this.sqlite.defaultSafeIntegers(true);
    this.sqlite.function("now_ms", () => BigInt(Date.now()));
    this.sqlite.function("is_read_only", () => BigInt(this.isReadOnly));
    this.random = random;
    network.listen<Packet | Answer>(address, this.host, (end) => {
      this.#sessions.add(new Session(this, end as End<Packet & Answer>));
    });
  }

  get sessions(): number {
    return this.#sessions.size;
  }

  /** Takes no writes any more. Its sessions go on, with answers that get old. */
  demote(): void {
    this.isReadOnly = true;
    for (const session of [...this.#sessions]) if (session.isOpen) session.kill();
  }

  leave(session: Session): void {
    this.#sessions.delete(session);
    this.#overlapping.delete(session);
    for (const [table, lock] of [...this.#locks]) if (lock.owner === session) this.#pass(table);
  }

  unlock(session: Session): void {
    this.#overlapping.delete(session);
    for (const [table, lock] of [...this.#locks]) if (lock.owner === session) this.#pass(table);
  }

  /** @returns whether the session has the lock of a table; false after the time-out */
  lock(table: string, session: Session, timeoutMs: number): Promise<boolean> | true {
    const lock = this.#locks.get(table);
    if (!lock) {
      this.#locks.set(table, { owner: session, waiting: [] });
      return true;
    }
    if (lock.owner === session || this.#overlapping.has(session)) return true;
    if (table === "stock_head" && session.isOpen && lock.owner.isOpen && this.random.chance(this.faults.overtaken)) {
      meet("a lock on one of several servers");
      this.#overlapping.add(lock.owner).add(session);
      return true;
    }
    meet("a wait for a lock");
    return new Promise((resolve) => {
      const take = (has: boolean) => {
        cancel();
        if (has) lock.owner = session;
        resolve(has);
      };
      const cancel = at(this.host, nowMs() + timeoutMs, () => {
        lock.waiting.splice(lock.waiting.indexOf(take), 1);
        meet("a wait for a lock that took too long");
        resolve(false);
      });
      // InnoDB does not always grant locks in the order in which they were asked for.
      if (lock.waiting.length > 0 && this.random.chance(0.2)) {
        meet("a lock out of order");
        lock.waiting.unshift(take);
      } else lock.waiting.push(take);
    });
  }

  /** Runs the statements of a transaction, and undoes those that overlap with a change of the head. */
  commit(session: Session, written: readonly Statement[]): void {
    const head = () => this.read<object>("select * from stock_head").flatMap(Object.values).join();
    const { owner } = this.#locks.get("stock_head") ?? {};
    const overlapping = [...new Set([...this.#overlapping, ...(owner ? [owner] : [])])].filter(
      (one) => one !== session,
    );
    const before = overlapping.length > 0 && head();
    this.sqlite.exec("BEGIN");
    for (const statement of written) this.execute(statement);
    this.sqlite.exec("COMMIT");
    if (overlapping.length > 0 && head() !== before) for (const other of overlapping) other.undo();
  }

  #pass(table: string): void {
    const lock = this.#locks.get(table)!;
    const next = lock.waiting.shift();
    if (next) next(true);
    else this.#locks.delete(table);
  }

  /** Runs a statement now. @returns rows, or the header of a result */
  execute({ sql, bindings }: Statement): unknown {
    const prepared = this.#prepared.get(sql) ?? this.#prepare(sql);
    this.#prepared.set(sql, prepared);
    const { statement, narrow } = prepared;
    const values = bindings.map((value) => (typeof value === "boolean" ? Number(value) : (value ?? null)));
    if (narrow === undefined) {
      const { changes } = statement.run(...values);
      return { affectedRows: changes, insertId: 0 };
    }
    const rows = statement.all(...values) as Record<string, unknown>[];
    if (rows.length > 0 && this.isReadOnly) meet("a read of an old primary");
    for (const row of rows) {
      for (const name of narrow) if (typeof row[name] === "bigint") row[name] = Number(row[name]);
    }
    this.onRead({ sql, bindings }, rows);
    return rows;
  }

  /** Reads for the simulation itself. */
  read<Row>(sql: string, ...bindings: readonly bigint[]): Row[] {
    return this.execute({ sql, bindings }) as Row[];
  }

  #prepare(sql: string): Prepared {
    const statement = this.sqlite.prepare(toSqlite(sql));
    if (!statement.reader) return { statement, narrow: undefined };
    const narrow = statement.columns().filter(({ type }) => type !== null && /^int/i.test(type));
    return { statement, narrow: narrow.map(({ name }) => name) };
  }
}

/** From the dialect of MySQL to that of SQLite, as far as the product uses it. */
function toSqlite(sql: string): string {
  return sql
    .replace(/cast\(unix_timestamp\(now\(3\)\) \* 1000 as signed\)/g, "now_ms()")
    .replace(/@@read_only[^*]*\*\/|@@read_only/g, "is_read_only()")
    .replace(/@@innodb_read_only/g, "0")
    .replace(/@@server_id <=> @petstore_server/g, "1")
    .replace(/ for update| force index \([^)]*\)/gi, "")
    .replace(/ on duplicate key update (.*)$/i, (_, sets: string) => {
      return ` on conflict do update set ${sets.replace(/values\(([^)]*)\)/gi, "excluded.$1")}`;
    })
    .replace(/^insert ignore /i, "insert or ignore ");
}

/** One connection, at the server. */
class Session {
  readonly #server: DatabaseServer;
  readonly #end: End<Packet & Answer>;
  readonly #packets: Packet[] = [];
  /** The statements of the open transaction that write; undefined outside of one. */
  #written: Statement[] | undefined;
  #isRunning = false;
  #isOver = false;
  /** Whether its transaction was undone, of which it has not heard yet. */
  #isUndone = false;
  #lockTimeoutMs = 3_000;
  #silenceMs = 8 * 3_600_000;
  #stopSilence: () => void = () => {};

  constructor(server: DatabaseServer, end: End<Packet & Answer>) {
    this.#server = server;
    this.#end = end;
    end.onMessage = (packet) => {
      this.#packets.push(packet);
      if (!this.#isRunning) void this.#run();
    };
    end.onClose = () => {
      // The server reads what has arrived before it notices that its client has left.
      if (this.#isRunning) meet("a statement of a client that has left");
      else this.#finish();
    };
  }

  /** Whether a transaction is open. */
  get isOpen(): boolean {
    return this.#written !== undefined;
  }

  /** Ends its transaction without its doing. */
  undo(): void {
    meet("a transaction that another server has undone");
    this.#isUndone = true;
    this.#written = undefined;
    this.#server.unlock(this);
  }

  kill(): void {
    this.#end.close();
    this.#finish();
  }

  #finish(): void {
    this.#isOver = true;
    this.#written = undefined;
    this.#stopSilence();
    this.#server.leave(this);
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    this.#stopSilence();
    for (let packet = this.#packets.shift(); packet && !this.#isOver; packet = this.#packets.shift()) {
      const answer = await this.#answer(packet);
      if (answer && !this.#isOver) this.#end.send(answer as Packet & Answer);
    }
    this.#isRunning = false;
    if (this.#isOver) return;
    if (this.#end.isClosed) return this.#finish();
    // After a freeze a packet that has arrived comes first, as it does for a server that polls its sockets.
    const expire = () => {
      this.#stopSilence = at(this.#server.host, nowMs(), end, phases.immediate);
    };
    const end = () => {
      if (this.isOpen) meet("a transaction that the database ended for its silence");
      this.kill();
    };
    this.#stopSilence = at(this.#server.host, nowMs() + this.#silenceMs, expire, phases.immediate);
  }

  /** @returns undefined when the session is lost instead */
  async #answer({ sql, bindings }: Packet): Promise<Answer | undefined> {
    const results: unknown[] = [];
    let from = 0;
    if (sql === "" && this.#hearsOfUndo()) return { error: deadlock }; // a ping
    for (const text of sql.split(";")) {
      const count = text.split("?").length - 1;
      const statement = { sql: text.trim(), bindings: bindings.slice(from, from + count) };
      from += count;
      if (statement.sql === "") continue;
      await this.#work();
      if (this.#isOver) return undefined;
      try {
        const result = await this.#execute(statement);
        if (this.#isOver) return undefined;
        results.push(result);
      } catch (error) {
        return { error: error as DriverError };
      }
    }
    return { results };
  }

  #hearsOfUndo(): boolean {
    const isUndone = this.#isUndone;
    this.#isUndone = false;
    return isUndone;
  }

  /** Takes some time on the server. */
  #work(): Promise<void> {
    const { host, random } = this.#server;
    return new Promise((resolve) => at(host, nowMs() + random.between(0.02, 0.3), resolve));
  }

  async #execute(statement: Statement): Promise<unknown> {
    const { sql } = statement;
    const server = this.#server;
    if (this.#hearsOfUndo()) throw deadlock;
    if (/^BEGIN|^START TRANSACTION/i.test(sql)) {
      this.#written = [];
      return {};
    }
    if (/^COMMIT/i.test(sql)) return this.#commit();
    if (/^ROLLBACK/i.test(sql)) {
      this.#written = undefined;
      server.unlock(this);
      return {};
    }
    if (/^SET /i.test(sql)) {
      this.#lockTimeoutMs =
        1_000 * Number(/innodb_lock_wait_timeout = (\d+)/.exec(sql)?.[1] ?? this.#lockTimeoutMs / 1_000);
      this.#silenceMs = 1_000 * Number(/[^_]wait_timeout = (\d+)/.exec(sql)?.[1] ?? this.#silenceMs / 1_000);
      return {};
    }
    if (/^SHOW VARIABLES/i.test(sql)) {
      const variables = { version: "8.4.0", server_id: "1", read_only: server.isReadOnly ? "ON" : "OFF" };
      return Object.entries(variables).map(([Variable_name, Value]) => ({ Variable_name, Value }));
    }
    if (/information_schema/i.test(sql)) return [];

    const table = /^(?:update|insert into|insert ignore into|delete from) `?(\w+)/i.exec(sql)?.[1];
    const locked = table ?? (/ for update$/i.test(sql) ? /from `?(\w+)/i.exec(sql)![1]! : undefined);
    if (locked !== undefined) {
      if (server.isReadOnly) meet("a lock on an old primary");
      if (server.isReadOnly && table) throw readOnly;
      if (!(await server.lock(locked, this, this.#lockTimeoutMs))) throw lockWaitTimeout;
      if (this.#isOver || this.#isUndone) server.unlock(this); // it ended, or was undone, while it waited
      if (this.#isOver) return undefined;
      if (this.#hearsOfUndo()) throw deadlock;
      if (server.isReadOnly && table) {
        server.unlock(this);
        throw readOnly; // it was demoted while this session waited
      }
    }
    const replayed = this.#written ?? [];
    if (table !== undefined) note(`${server.host.name} ${sql} ${show(statement.bindings)}`);
    try {
      if (this.#written === undefined) return this.#atOnce(statement, table !== undefined);
      if (replayed.length === 0 && table === undefined) return server.execute(statement);
      server.sqlite.exec("BEGIN");
      // What a write does to one table does not depend on what was written to others.
      const concerned = table === undefined ? replayed : replayed.filter(({ sql: text }) => text.includes(table));
      for (const written of concerned) server.execute(written);
      const result = server.execute(statement);
      if (table !== undefined) this.#written.push(statement);
      return result;
    } catch (error) {
      throw fault(error);
    } finally {
      if (server.sqlite.inTransaction) server.sqlite.exec("ROLLBACK");
    }
  }

  /** Runs a statement that is a transaction of its own. */
  #atOnce(statement: Statement, isWrite: boolean): unknown {
    const result = this.#server.execute(statement);
    this.#server.unlock(this);
    if (isWrite) this.#server.onCommit();
    return result;
  }

  #commit(): unknown {
    const server = this.#server;
    const written = this.#written ?? [];
    const { faults, random } = server;
    if (written.length > 0) {
      if (server.isReadOnly) throw readOnly;
      if (random.chance(faults.deadlock)) {
        meet("a deadlock at COMMIT");
        this.#written = undefined;
        server.unlock(this);
        throw deadlock;
      }
      if (random.chance(faults.lostBefore)) {
        note(`${server.host.name} lost before COMMIT`);
        meet("a session lost before COMMIT");
        this.kill();
        return {};
      }
      server.commit(this, written);
      note(`${server.host.name} COMMIT`);
    }
    this.#written = undefined;
    server.unlock(this);
    if (written.length > 0) server.onCommit();
    if (written.length > 0 && random.chance(faults.lostAfter)) {
      note(`${server.host.name} lost after COMMIT`);
      meet("a session lost after COMMIT");
      this.kill();
    }
    return {};
  }
}

function fault(error: unknown): DriverError {
  const { code = "", message } = error as { code?: string; message: string };
  if (code.startsWith("SQLITE_CONSTRAINT")) return { code: "ER_DUP_ENTRY", message, sqlState: "23000" };
  if (code.startsWith("ER_")) return error as DriverError;
  throw error;
}

function show(values: readonly unknown[]): string {
  return values.map((value) => (Buffer.isBuffer(value) ? value.toString("hex") : String(value))).join(" ");
}
