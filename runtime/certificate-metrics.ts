/** Metrics of the certificate that a process shows between the tiers. */
import { Gauge, type Registry } from "prom-client";
import type { OnCertificate } from "./certificate-files.ts";

/**
 * Adds gauges of the validity of a certificate, for a process with TLS.
 *
 * @returns a function that sets them, for each certificate that is loaded
 */
export function certificateGauges(registry: Registry): OnCertificate {
  const gauge = (name: string, help: string) =>
    new Gauge({ name: `tls_certificate_${name}_timestamp_seconds`, help, registers: [registry] });
  const notBefore = gauge("not_before", "Begin of the validity of the loaded certificate");
  const notAfter = gauge("not_after", "End of the validity of the loaded certificate");
  return ({ validFromDate, validToDate }) => {
    notBefore.set(validFromDate.getTime() / 1_000);
    notAfter.set(validToDate.getTime() / 1_000);
  };
}
