import { engineOf } from "./engine.ts";

const durable = { read_only: "OFF", log_bin: "ON", sync_binlog: "1", innodb_flush_log_at_trx_commit: "1" };
const mysql = { version: "9.7.4", ...durable };
const mariadb = { version: "10.11.19-MariaDB-0+deb12u1", ...durable };

const engine = (variables: Record<string, string>) =>
  engineOf([Object.entries(variables).map(([Variable_name, Value]) => ({ Variable_name, Value })), []]);

test("a durable server by itself has no risks, and its sessions need nothing", () => {
  expect(engine({ ...mysql, server_id: "1" })).toEqual({
    name: "MySQL 9.7.4",
    canPipeline: true,
    isReadOnly: false,
    writer: "server_id 1",
    ownSettings: ["SET @petstore_server = 1"],
    risks: [],
  });
  expect(engine({ ...mariadb, wsrep_on: "OFF", wsrep_sync_wait: "0" })).toMatchObject({
    name: "MariaDB 10.11.19",
    canPipeline: true,
    ownSettings: [],
  });
});

test("a session keeps the id of the server that it was prepared on", () => {
  expect(engine({ ...mysql, server_id: "4294967295" }).ownSettings).toEqual(["SET @petstore_server = 4294967295"]);
});

test("a server that takes no writes is recognized, in all degrees of MariaDB 12 and on Aurora", () => {
  for (const value of ["ON", "1", "NO_LOCK", "NO_LOCK_NO_ADMIN"]) {
    expect(engine({ ...mariadb, read_only: value }).isReadOnly).toBe(true);
  }
  expect(engine({ ...mysql, super_read_only: "ON" }).isReadOnly).toBe(true);
  expect(engine({ ...mysql, innodb_read_only: "ON" }).isReadOnly).toBe(true);
});

test("settings by which a crash can lose a commit are risks", () => {
  const lossy = { innodb_flush_log_at_trx_commit: "2", sync_binlog: "0" };
  expect(engine({ ...mysql, ...lossy }).risks).toEqual([
    expect.stringContaining("innodb_flush_log_at_trx_commit is 2"),
    expect.stringContaining("sync_binlog is 0"),
  ]);
});

test("a server without a binary log is a risk, except in Galera, and its sync_binlog is none", () => {
  const withoutLog = { sync_binlog: "0", log_bin: "OFF" };
  expect(engine({ ...mariadb, ...withoutLog }).risks).toEqual([
    "log_bin is OFF, so readers may see an update that a crash takes back: set log_bin and sync_binlog=1",
  ]);
  expect(engine({ ...mariadb, ...withoutLog, wsrep_on: "ON" }).risks).toEqual([]);
});

test("Galera gets one statement at a time, and its sessions read what other nodes acknowledged", () => {
  const node = { ...mariadb, wsrep_on: "ON", wsrep_dirty_reads: "ON" };
  const { name, canPipeline, ownSettings } = engine({ ...node, wsrep_sync_wait: "8" });
  expect({ name, canPipeline }).toEqual({ name: "MariaDB 10.11.19, Galera", canPipeline: false });
  expect(ownSettings).toEqual(["SET SESSION wsrep_sync_wait = 15", "SET SESSION wsrep_dirty_reads = OFF"]);
  expect(engine({ ...node, wsrep_sync_wait: "15", wsrep_dirty_reads: "OFF" }).ownSettings).toEqual([]);
  const options = "base_port = 4567; pc.ignore_quorum = false; pc.ignore_sb = true";
  expect(engine({ ...node, wsrep_provider_options: options }).risks).toEqual([
    expect.stringContaining("pc.ignore_sb=false"),
  ]);
});

test.each([
  ["one primary", "ON", "EVENTUAL", ["SET SESSION group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'"]],
  ["one primary that makes a new one wait", "ON", "BEFORE_ON_PRIMARY_FAILOVER", []],
  ["several primaries", "OFF", "EVENTUAL", ["SET SESSION group_replication_consistency = 'BEFORE'"]],
  [
    "several primaries whose commits wait",
    "OFF",
    "AFTER",
    ["SET SESSION group_replication_consistency = 'BEFORE_AND_AFTER'"],
  ],
  ["several primaries whose reads wait", "OFF", "BEFORE_AND_AFTER", []],
])(
  "sessions of Group Replication with %s read what other members have acknowledged",
  (_what, single, consistency, sets) => {
    const member = {
      ...mysql,
      group_replication_group_name: "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
      group_replication_single_primary_mode: single,
      group_replication_consistency: consistency,
      group_replication_unreachable_majority_timeout: "5",
    };
    expect(engine(member)).toMatchObject({ name: "MySQL 9.7.4, Group Replication", ownSettings: sets, risks: [] });
  },
);

test("nodes of one Galera cluster, or primaries of one group, count as one writer", () => {
  const writer = (variables: Record<string, string>) => engine({ ...mysql, ...variables }).writer;
  const group = { group_replication_group_name: "g", group_replication_single_primary_mode: "OFF" };
  expect(writer({ wsrep_on: "ON", wsrep_cluster_name: "stock", server_id: "1" })).toBe("Galera stock");
  expect(writer({ ...group, server_id: "1" })).toBe("group g");
  expect(writer({ ...group, group_replication_single_primary_mode: "ON", server_id: "1" })).toBe("server_id 1");
  expect(writer({ server_id: "2" })).toBe("server_id 2");
});

test("a primary that would never notice that it is cut off from its group is a risk", () => {
  const member = {
    ...mysql,
    group_replication_group_name: "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
    group_replication_single_primary_mode: "ON",
    group_replication_consistency: "BEFORE_ON_PRIMARY_FAILOVER",
    group_replication_unreachable_majority_timeout: "0",
  };
  expect(engine(member).risks).toEqual([expect.stringContaining("set it to 5")]);
  expect(engine({ ...member, group_replication_consistency: "BEFORE" }).risks).toEqual([]);
});

test("Vitess is recognized, and its sessions take no transaction in several shards", () => {
  const waits = { rpl_semi_sync_source_enabled: "ON", rpl_semi_sync_source_timeout: "1000000000000000000" };
  const primary = { ...mysql, ...waits, version: "8.4.6-Vitess" };
  expect(engine(primary)).toMatchObject({
    name: "MySQL 8.4.6, Vitess",
    canPipeline: true,
    ownSettings: ["SET SESSION sql_select_limit = DEFAULT", "SET SESSION transaction_mode = 'SINGLE'"],
    risks: [],
  });
});

test("a primary of Vitess that waits for no replica, or not for long, is a risk", () => {
  const primary = { ...mysql, version: "8.4.6-Vitess" };
  const waits = { rpl_semi_sync_source_enabled: "ON", rpl_semi_sync_source_timeout: "10000" };
  expect(engine(primary).risks).toEqual([expect.stringContaining("durability policy")]);
  expect(engine({ ...primary, ...waits }).risks).toEqual([expect.stringContaining("after 10000 ms")]);
});

test("semi-synchronous replication that may lose writes is a risk under both of its names", () => {
  const source = { rpl_semi_sync_source_enabled: "ON", rpl_semi_sync_source_wait_point: "AFTER_SYNC" };
  expect(engine({ ...mysql, ...source, rpl_semi_sync_source_timeout: "4294967295" }).risks).toEqual([]);
  expect(engine({ ...mysql, ...source, rpl_semi_sync_source_timeout: "10000" }).risks).toEqual([
    expect.stringContaining("after 10000 ms"),
  ]);
  const forever = { rpl_semi_sync_source_timeout: "4294967295", rpl_semi_sync_source_wait_no_replica: "OFF" };
  expect(engine({ ...mysql, ...source, ...forever }).risks).toEqual([
    expect.stringContaining("rpl_semi_sync_source_wait_no_replica"),
  ]);
  const master = { rpl_semi_sync_master_enabled: "ON", rpl_semi_sync_master_wait_point: "AFTER_COMMIT" };
  expect(engine({ ...mariadb, ...master, rpl_semi_sync_master_timeout: "4294967295" }).risks).toEqual([
    expect.stringContaining("AFTER_COMMIT"),
  ]);
});

test("TiDB locks what it writes and reads from leaders, and what a session cannot set is a risk", () => {
  const tidb = {
    version: "8.0.11-TiDB-v8.5.0",
    read_only: "0",
    log_bin: "0",
    sync_binlog: "0",
    tidb_txn_mode: "",
    tidb_replica_read: "closest-replicas",
    tidb_load_based_replica_read_threshold: "1s",
    tidb_guarantee_linearizability: "ON",
  };
  expect(engine(tidb)).toMatchObject({
    name: "TiDB 8.0.11",
    ownSettings: [
      "SET SESSION tidb_txn_mode = 'pessimistic'",
      "SET SESSION tidb_replica_read = 'leader'",
      "SET SESSION tidb_load_based_replica_read_threshold = '0s'",
    ],
    risks: [],
  });
  expect(engine({ ...tidb, tidb_rc_read_check_ts: "ON" }).risks).toEqual([
    expect.stringContaining("SET GLOBAL tidb_rc_read_check_ts = OFF"),
  ]);
});
