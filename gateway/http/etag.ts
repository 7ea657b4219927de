/**
 * Whether `If-None-Match` names one of these tags (RFC 9110 section 13.1.2): weak comparison, and `*` for any.
 *
 * @param etags tags of the representation as it is, with their quotes
 */
export function matchesEtag(ifNoneMatch: string | undefined, ...etags: readonly string[]): boolean {
  if (ifNoneMatch === undefined) return false;
  if (ifNoneMatch.trim() === "*") return true;
  return (ifNoneMatch.match(/"[^"]*"/g) ?? []).some((tag) => etags.includes(tag));
}
