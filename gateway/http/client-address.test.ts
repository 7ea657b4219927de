import type { IncomingMessage } from "node:http";
import { usedBytes } from "../../test/support/garbage.ts";
import { addressBlock, clientAddressFinder } from "./client-address.ts";

const ask = (peer: string | undefined, forwarded?: string) =>
  ({ socket: { remoteAddress: peer }, headers: { "x-forwarded-for": forwarded } }) as unknown as IncomingMessage;

describe("clients behind a trusted proxy", () => {
  const addressOf = clientAddressFinder(["10.0.0.0/8", "2001:db8:ffff::/48"]);
  const proxy = "10.0.0.1";

  test.each([
    ["192.0.2.1", "192.0.2.1"],
    ["198.51.100.7, 192.0.2.1", "192.0.2.1"],
    ["192.0.2.1, 10.0.0.2", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["::ffff:c000:201", "192.0.2.1"],
    ["0:0:0:0:0:FFFF:192.0.2.1", "192.0.2.1"],
    ["2001:db8:0:1::1", "2001:db8:0:1::1"],
    ["fe80::1%br-0", "fe80::1%br-0"],
    ["2001:db8::1", "2001:db8::1"],
    ["2001:db8::1, 2001:db8:ffff::2", "2001:db8::1"],
  ])("the address of a client is the last one that is not a trusted proxy in %s", (forwarded, address) => {
    expect(addressOf(ask(proxy, forwarded))).toBe(address);
  });

  test.each([
    ["192.0.2.1:50001", "192.0.2.1"],
    ["192.0.2.1:50001, 10.0.0.2:443", "192.0.2.1"],
    ["[2001:db8::1]:50001", "2001:db8::1"],
    ["[2001:db8::1]:50001, [2001:db8:ffff::2]:443", "2001:db8::1"],
    ["[2001:db8::1]", "2001:db8::1"],
    ["[::ffff:192.0.2.1]:50001", "192.0.2.1"],
  ])("the address of a client is reported without the port in %s", (forwarded, address) => {
    expect(addressOf(ask(proxy, forwarded))).toBe(address);
  });

  test.each(["unknown", "_hidden", "client.example:80", "192.0.2.1.5:1", "192.0.2.1:x", "[192.0.2.1", ":80", "[]"])(
    "the address of a client is the proxy's own when the proxy reports %j instead of an address",
    (forwarded) => {
      expect(addressOf(ask(proxy, forwarded))).toBe(proxy);
      expect(addressOf(ask(`::ffff:${proxy}`, forwarded))).toBe(proxy);
    },
  );

  test("the address of a client is the peer's when the peer is not a trusted proxy", () => {
    expect(addressOf(ask("192.0.2.9", "192.0.2.1"))).toBe("192.0.2.9");
    expect(addressOf(ask(proxy))).toBe(proxy);
  });
});

test("an address that is kept keeps nothing else of its X-Forwarded-For in memory", () => {
  const addressOf = clientAddressFinder(["10.0.0.0/8"]);
  const [length, before] = [32 * 1024 * 1024, usedBytes()];
  // V8 makes shorter addresses copies by itself.
  const addresses = ["203.113.100.100", "[2001:db8::1:2:3]:50001"].map((address) =>
    addressOf(ask("10.0.0.1", `${"x".repeat(length)}, ${address}`)),
  );
  addressOf(ask("10.0.0.1", "192.0.2.1")); // V8 keeps the latest text that matched a pattern
  const kept = usedBytes() - before;
  expect(addresses).toEqual(["203.113.100.100", "2001:db8::1:2:3"]);
  expect(kept).toBeLessThan(length / 2);
});

test.each([[[]], [["10.0.0.0/8"]], [["10.0.0.0/8", "::1"]]])(
  "a client without an address is unknown when the trusted proxies are %j",
  (trustedProxies) => {
    for (const forwarded of [undefined, "192.0.2.1"]) {
      expect(clientAddressFinder(trustedProxies)(ask(undefined, forwarded))).toBe("unknown");
    }
  },
);

test.each([
  ["192.0.2.1", "192.0.2.1"],
  ["unknown", "unknown"],
  ["2001:db8:1:2::1", "2001:db8:1:2::/64"],
  ["fe80::1%eth0", "fe80:0:0:0::/64"],
  ["fe80::1%br-0123abcd", "fe80:0:0:0::/64"],
  ["64:ff9b::192.0.2.1", "64:ff9b::192.0.2.1"],
])("the address %s counts as one caller with its block %s", (address, block) => {
  expect(addressBlock(address)).toBe(block);
});
