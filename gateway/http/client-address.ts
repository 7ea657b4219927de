import type { IncomingMessage } from "node:http";
import { isIPv6 } from "node:net";
import ipaddr from "ipaddr.js";
import proxyaddr from "proxy-addr";

/**
 * Makes a function that tells the address of a request's client: the peer, or what trusted proxies say in
 * `X-Forwarded-For`. It does not look at the `trust proxy` setting of the Express app around it.
 *
 * @param trustedProxies addresses or CIDRs
 */
export function clientAddressOf(trustedProxies: readonly string[]): (request: IncomingMessage) => string {
  if (trustedProxies.length === 0) return peerAddress;
  const trust = proxyaddr.compile([...trustedProxies]);
  return (request) => plain(proxyaddr(request, trust));
}

function peerAddress(request: IncomingMessage): string {
  return plain(request.socket.remoteAddress ?? "unknown");
}

/** An IPv4 client of a dual-stack socket is the same client. */
function plain(address: string): string {
  return address.startsWith("::ffff:") ? address.slice("::ffff:".length) : address;
}

/** Who counts as one caller without a key: an IPv4 address, or the /64 that one IPv6 site gets as a whole. */
export function addressBlock(address: string): string {
  if (!isIPv6(address)) return address;
  const { parts } = ipaddr.IPv6.parse(address);
  return `${parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(":")}::/64`;
}
