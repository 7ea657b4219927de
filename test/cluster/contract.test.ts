import { runContractSuites } from "./contract-suites.ts";
import { startGalera } from "./galera.ts";
import { startGroupReplication } from "./group-replication.ts";
import { startSemiSynchronousPair } from "./semi-synchronous.ts";
import { startWriterSwitch } from "./writer-switch.ts";

test.each([
  ["Group Replication", startGroupReplication],
  ["Galera", startGalera],
  ["a semi-synchronous pair", startSemiSynchronousPair],
])(
  "the contract suite passes on %s",
  async (_what, start) => {
    await using stack = new AsyncDisposableStack();
    const cluster = await start(stack);
    const { serverUrl } = await startWriterSwitch(stack, cluster);
    await runContractSuites(serverUrl);
    const status = cluster.nodes.map((node) =>
      node.query<{ Value: string }>("SHOW GLOBAL STATUS LIKE 'Com_create_db'"),
    );
    const databases = (await Promise.all(status)).map(([row]) => Number(row?.Value));
    expect(Math.max(...databases)).toBeGreaterThan(1); // the suite was there
  },
  600_000,
);
