/** Says in one line why a channel has no connection. */

/** Why there is no connection. */
export interface ConnectionFault {
  /**
   * `no-service`: nothing answers. `certificate`: that of the service is not trusted. `other-protocol`: the connection
   * ended before gRPC began.
   */
  readonly kind: "no-service" | "certificate" | "other-protocol";
  readonly text: string;
}

/**
 * Finds the fault of the connection in what grpc-js says of a call.
 *
 * @returns undefined for a call that failed otherwise
 */
export function connectionFault(details: string): ConnectionFault | undefined {
  if (details.startsWith("Name resolution failed")) {
    return { kind: "no-service", text: `no service answers (${details})` };
  }
  // grpc-js puts the errors of its layers around the one of the connection. OpenSSL's end with a line break.
  const last = /No connection established.*Last error: (.*?)\.?\s+\.? ?Resolution note:/s.exec(details)?.[1];
  if (last === undefined) return undefined;
  if (/connect E[A-Z]|getaddrinfo|timed? out/i.test(last)) {
    return { kind: "no-service", text: `no service answers (${last})` };
  }
  if (/certificate|altname|\bcert\b/i.test(last)) {
    const text = `the service's certificate cannot be trusted (ca), or is for another name (serverName): ${last}`;
    return { kind: "certificate", text };
  }
  // Where the other side has only closed the connection, grpc-js knows no reason.
  const reason = /^(?:null|Failed to connect.*)$/s.test(last) ? "" : ` (${last})`;
  // A service that refuses a certificate closes the connection, and says nothing.
  const isOnlyClosed = reason === "" || /ECONNRESET|EPIPE|disconnected/.test(last);
  const text = isOnlyClosed
    ? `the connection was closed before gRPC began${reason}: the service has ended, or ${tlsFault}; ${refusedCertificate}`
    : `what answers there is no gRPC of this kind${reason}: the port is another one's, or ${tlsFault}`;
  return { kind: "other-protocol", text };
}

const tlsFault = "only one side uses TLS";

const refusedCertificate =
  "where both do, the service may have refused this client's certificate (authority, dates, clientAuth), or this client does not trust the service's (`ca`)";
