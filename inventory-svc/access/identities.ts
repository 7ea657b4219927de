/** Finds the caller by the names in its certificate. */
import type { Actor } from "../stock/change.ts";
import { type RoleTable, roles } from "./roles.ts";

/** Makes a function that finds the actor for the ledger: of several names the one with the highest role. */
export function actorFinder(table: RoleTable): (certificateNames: string | undefined) => Actor {
  const rankOf = (identity: string) => roles.indexOf(table.get(identity)!);
  return (certificateNames) => {
    const [name] = identitiesOf(certificateNames).sort((a, b) => rankOf(b) - rankOf(a));
    return name === undefined ? { kind: "internal" } : { kind: "internal", role: table.get(name) ?? "none", name };
  };
}

/**
 * Returns the identities in a certificate's subjectAltName: URIs unchanged, and DNS names in lower case after `dns:`.
 *
 * @param subjectAltName as Node gives it, for example `URI:spiffe://petstore/gateway, DNS:reports.internal`
 */
export function identitiesOf(subjectAltName = ""): string[] {
  // Node quotes a name with special characters and escapes its commas (CVE-2021-44532), so one name cannot pass for
  // two.
  return subjectAltName.split(", ").flatMap((name) => {
    if (name.startsWith("DNS:")) return `dns:${name.slice("DNS:".length).toLowerCase()}`;
    // A URI needs an authority, because the URI "dns:gateway" must not pass for a DNS name.
    return /^URI:[^:]+:\/\//.test(name) ? name.slice("URI:".length) : [];
  });
}
