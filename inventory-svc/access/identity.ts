/**
 * The identities in a certificate's subjectAltName: URIs as they stand, and `dns:` before names, in lower case.
 *
 * @param subjectAltName as Node gives it, `URI:spiffe://petstore/gateway, DNS:reports.internal`
 */
export function identitiesOf(subjectAltName = ""): string[] {
  // Node quotes a name with odd letters and escapes its commas (CVE-2021-44532), so no name can pass for two.
  return subjectAltName.split(", ").flatMap((name) => {
    if (name.startsWith("DNS:")) return `dns:${name.slice("DNS:".length).toLowerCase()}`;
    // Only with an authority: the URI "dns:gateway" must not pass for the name.
    return /^URI:[^:]+:\/\//.test(name) ? name.slice("URI:".length) : [];
  });
}
