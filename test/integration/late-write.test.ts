import type { Change } from "../../inventory-svc/stock/change.ts";
import { OutcomeUnknownError } from "../../inventory-svc/stock/stock-errors.ts";
import { databaseDefaults } from "../../runtime/database/open.ts";
import { createMysqlDatabase, dropDatabase } from "../support/databases.ts";
import { startLink } from "../support/link.ts";
import { migrateStock, openStock } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

const silenceTimeoutMs = 1_000;
const lateMs = 6_000;
const set = (quantity: number): Change => ({ kind: "put", petId: 1n, quantity, status: "available" });

describe("a write that is late on its way to the database (MySQL/MariaDB)", () => {
  const stack = suiteStack();

  test("a write that reaches the database 6 s late never undoes a newer one that was acknowledged", async () => {
    const url = await createMysqlDatabase();
    stack.defer(() => dropDatabase(url));
    await migrateStock(url);
    const direct = openStock(url);
    stack.defer(() => direct.close());
    const link = await startLink(stack, Number(new URL(url).port));
    const detour = new URL(url);
    detour.port = String(link.port);
    const slow = openStock(detour.href, { ...databaseDefaults, silenceTimeoutMs });
    stack.defer(() => slow.close());
    for (const quantity of [1, 2, 3, 4, 5]) await slow.store.write([set(quantity)]);

    // The packet that ends with COMMIT leaves the service, and the service gives up waiting for its answer.
    const delayCommit = ({ sql }: { sql: string }) => {
      if (sql.endsWith("COMMIT")) link.delayMs = lateMs;
    };
    slow.db.on("query", delayCommit);
    const sentMs = Date.now();
    await expect(slow.store.write([set(50)])).rejects.toBeInstanceOf(OutcomeUnknownError);
    slow.db.off("query", delayCommit);
    link.delayMs = 0;

    // The caller makes sure of the old quantity, over the other service.
    expect(await direct.store.write([set(5)])).toMatchObject([{ kind: "done", item: { quantity: 5 } }]);
    await until(() => Date.now() > sentMs + lateMs + 1_000, { withinMs: 2 * lateMs });
    expect(await direct.store.get(1n)).toMatchObject({ quantity: 5, revision: 5n });
    expect(await slow.store.write([set(6)])).toMatchObject([{ kind: "done", item: { revision: 6n } }]);
  });
});
