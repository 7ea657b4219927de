/**
 * The identities in a certificate's subjectAltName: URIs as they stand, and `dns:` before names, in lower case.
 *
 * @param subjectAltName as Node gives it, `URI:spiffe://petstore/gateway, DNS:reports.internal`
 */
export function identitiesOf(subjectAltName: string | undefined): string[] {
  // Node puts a name with a comma, a quote or anything else that is odd in quotes (CVE-2021-44532). No identity has
  // such a name, so there is no need to tell where it ends.
  if (subjectAltName === undefined || subjectAltName.includes('"')) return [];
  return subjectAltName.split(", ").flatMap((name) => {
    if (name.startsWith("DNS:")) return `dns:${name.slice("DNS:".length).toLowerCase()}`;
    // Only with an authority: the URI "dns:gateway" must not pass for the name.
    return /^URI:[^:]+:\/\//.test(name) ? name.slice("URI:".length) : [];
  });
}
