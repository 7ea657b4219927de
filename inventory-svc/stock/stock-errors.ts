/** The failures of the stock's database, by what the caller may conclude. */

/** The stock cannot be read or written now. Of a change that a caller asked for, nothing has happened. */
export class StockUnavailableError extends Error {
  constructor(cause: unknown) {
    super("the stock database is not available", { cause });
    this.name = "StockUnavailableError";
  }
}

/** The commit of a write was sent, and nothing proves that it did not happen: the write may or may not be there. */
export class OutcomeUnknownError extends Error {
  constructor(cause: unknown) {
    super("the stock database did not say whether the change was written", { cause });
    this.name = "OutcomeUnknownError";
  }
}

/** @throws StockUnavailableError in place of whatever a query throws */
export async function orUnavailable<T>(query: PromiseLike<T>): Promise<T> {
  try {
    return await query;
  } catch (error) {
    throw new StockUnavailableError(error);
  }
}

/** The service already serves its maximum of streams or reads of this kind. */
export class TooManyAtOnceError extends Error {
  constructor(kind: string) {
    super(`too many ${kind} are open`);
    this.name = "TooManyAtOnceError";
  }
}
