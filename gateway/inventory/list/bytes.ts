/**
 * Joins parts in memory of their own. What `Buffer.concat`, `Buffer.from` and zlib give is mostly a view of a larger
 * block, which lives as long as any view of it: a list keeps its bytes for hours, and would keep several times as much.
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
