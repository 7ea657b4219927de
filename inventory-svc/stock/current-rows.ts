/** Reads rows from the server that takes the writes. */
import type { Knex } from "knex";
import { readCurrent, type ServerRow, serverColumns } from "../../runtime/database/old-primary.ts";
import { orUnavailable } from "./stock-errors.ts";

/**
 * Reads the rows of a query. Where an old primary has answered, the query is sent again over another connection.
 *
 * @param columns those that the query selects
 * @param key the column by which the rows are ordered, which is never NULL
 * @throws StockUnavailableError
 */
export async function readCurrentRows<R>(
  db: Knex,
  query: Knex.QueryBuilder,
  columns: readonly string[],
  key: keyof R & string,
): Promise<R[]> {
  const read = (query: Knex.QueryBuilder, names = columns): Promise<readonly (R & ServerRow)[]> => {
    const first = () => query.clone().clearSelect().select(serverColumns(db));
    return orUnavailable(readCurrent<R & ServerRow>(db, () => first().select(names)));
  };
  const rows = await read(query);
  if (rows.length > 0) return [...rows];
  // An empty answer does not name its server: the query is sent again, joined to a row that is always there.
  const withHead = db("stock_head")
    .where("stock_head.id", 1)
    .leftJoin(query.as("chosen"), db.raw("1 = 1") as never)
    .orderBy(`chosen.${key}`);
  const chosen = columns.map((name) => `chosen.${name}`);
  return (await read(withHead, chosen)).filter((row) => row[key] !== null);
}
