/**
 * Joins parts in memory of their own. `Buffer.concat`, `Buffer.from` and zlib mostly return a view of a larger block,
 * which lives as long as any view of it. A list keeps its bytes for hours, and would keep the whole blocks with them.
 */
export function joinBytes(parts: readonly Uint8Array[]): Buffer {
  const bytes = Buffer.allocUnsafeSlow(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
