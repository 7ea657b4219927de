/** Copies a text, so that a short part of a long one can be kept alone. */

/**
 * A Latin-1 text of its own, such as a header's, for what is kept for long: a part of a text keeps the whole of it in
 * memory.
 */
export function copyOf(text: string): string {
  return Buffer.from(text, "latin1").toString("latin1");
}
