import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import ipaddr from "ipaddr.js";
import proxyaddr from "proxy-addr";

/**
 * Makes a function that tells the address of a request's client: the peer, or what trusted proxies say in
 * `X-Forwarded-For`. It does not look at the `trust proxy` setting of the Express app around it.
 *
 * @param trustedProxies addresses or CIDRs
 */
export function clientAddressOf(trustedProxies: readonly string[]): (request: IncomingMessage) => string {
  if (trustedProxies.length === 0) return ({ socket }) => peerAddress(socket);
  const isTrusted = proxyaddr.compile([...trustedProxies]);
  const trust = (address: string, hop: number) => isTrusted(withoutPort(address), hop);
  return (request) => {
    const peer = peerAddress(request.socket);
    if (isIP(peer) === 0) return peer; // a Unix socket, or a client that has left: nobody whom a setting could trust
    const address = plain(withoutPort(proxyaddr(request, trust)));
    return isIP(address) === 0 ? peer : address;
  };
}

/** Who is at the other end of a connection. */
export function peerAddress(socket: { readonly remoteAddress?: string | undefined }): string {
  return plain(socket.remoteAddress ?? "unknown");
}

/** Some proxies write `address:port` or `[v6]:port`, and the port is another one for each connection of a client. */
function withoutPort(entry: string): string {
  const [, v6, v4] = /^\[(.*)\](?::\d+)?$|^([\d.]+):\d+$/.exec(entry) ?? [];
  return v6 ?? v4 ?? entry;
}

/** An IPv4 client of a dual-stack socket is the same client. */
function plain(address: string): string {
  return address.startsWith("::ffff:") ? address.slice("::ffff:".length) : address;
}

/** Who counts as one caller without a key: an IPv4 address, or the /64 that one IPv6 site gets as a whole. */
export function addressBlock(address: string): string {
  const withoutZone = address.replace(/%.*/, ""); // fe80::1%br-0: the parser takes few names of interfaces
  if (!ipaddr.IPv6.isValid(withoutZone)) return address;
  const { parts } = ipaddr.IPv6.parse(withoutZone);
  return `${parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(":")}::/64`;
}
