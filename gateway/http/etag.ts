/**
 * Whether `If-None-Match` names one of these tags (RFC 9110 section 13.1.2): weak comparison, and `*` for any.
 *
 * @param etags tags of the representation as it is, with their quotes
 */
export function matchesEtag(ifNoneMatch: string | undefined, ...etags: readonly string[]): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch
    .split(",")
    .map((tag) => tag.trim().replace(/^W\//, ""))
    .some((tag) => tag === "*" || etags.includes(tag));
}
