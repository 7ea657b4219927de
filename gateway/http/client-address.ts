/** Finds the address that a request is counted under: the client's, whether or not proxies stand before the gateway. */
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import ipaddr from "ipaddr.js";
import proxyaddr from "proxy-addr";
import { copyOf } from "./request.ts";

/**
 * Creates a function that says whether an address is that of a trusted proxy.
 *
 * @param trustedProxies addresses or CIDRs
 */
export function proxyTest(trustedProxies: readonly string[]): (address: string) => boolean {
  if (trustedProxies.length === 0) return () => false;
  const isTrusted = proxyaddr.compile([...trustedProxies]);
  return (address) => isIP(address) !== 0 && isTrusted(address, 0);
}

/**
 * Creates a function that finds the address of a request's client: the peer, or what trusted proxies report in
 * `X-Forwarded-For`. The `trust proxy` setting of an Express app around the gateway has no effect on it.
 *
 * @param trustedProxies addresses or CIDRs
 */
export function clientAddressFinder(trustedProxies: readonly string[]): (request: IncomingMessage) => string {
  if (trustedProxies.length === 0) return ({ socket }) => peerAddress(socket);
  const isTrusted = proxyaddr.compile([...trustedProxies]);
  const trust = (address: string, hop: number) => isTrusted(withoutPort(address), hop);
  return (request) => {
    const peer = peerAddress(request.socket);
    if (isIP(peer) === 0) return peer; // a Unix socket or a client that has left: no setting can trust it
    const address = withoutPort(proxyaddr(request, trust));
    // A copy: the counts of addresses keep it, and a part of the header would keep the whole header in memory.
    return isIP(address) === 0 ? peer : copyOf(unmapped(address));
  };
}

/** The address at the other end of a connection; `unknown` when it has none. */
export function peerAddress(socket: { readonly remoteAddress?: string | undefined }): string {
  return plain(socket.remoteAddress ?? "unknown");
}

/**
 * Drops the port from `address:port` or `[v6]:port`, which some proxies write: it differs between a client's
 * connections.
 */
function withoutPort(entry: string): string {
  const [, v6, v4] = /^\[(.*)\](?::\d+)?$|^([\d.]+):\d+$/.exec(entry) ?? [];
  return v6 ?? v4 ?? entry;
}

/** Finds the IPv4 address in any form of an IPv6 one: a proxy may write 192.0.2.1 as `::ffff:c000:201`. */
function unmapped(address: string): string {
  if (!ipaddr.IPv6.isValid(address)) return address;
  const parsed = ipaddr.IPv6.parse(address);
  return parsed.isIPv4MappedAddress() ? parsed.toIPv4Address().toString() : address;
}

/** Drops the prefix that a dual-stack socket gives an IPv4 address. */
function plain(address: string): string {
  return address.startsWith("::ffff:") ? address.slice("::ffff:".length) : address;
}

/** What counts as one caller without a key: an IPv4 address, or the /64 network that an IPv6 site gets as a whole. */
export function addressBlock(address: string): string {
  const withoutZone = address.replace(/%.*/, ""); // as in fe80::1%br-0; the parser accepts few interface names
  if (!ipaddr.IPv6.isValid(withoutZone)) return address;
  const { parts } = ipaddr.IPv6.parse(withoutZone);
  return `${parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(":")}::/64`;
}
