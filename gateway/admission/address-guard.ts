/** Limits requests by the address they come from: those without a valid key, and those for the documentation. */
import { addressBlock } from "../http/client-address.ts";
import type { HeaderList } from "../http/request-context.ts";
import { MemoryWindows } from "../limits/memory-windows.ts";
import { type Decision, limitHeaders, type Window } from "../limits/windows.ts";

/** Requests for the documentation that an address has in a minute: reading the page takes a few. */
export const docsPerMinute = 300;

/** Addresses whose requests are remembered. */
const maxAddresses = 100_000;

/** Counts in this process, for each IPv4 address and each /64 network of IPv6. */
export class AddressGuard {
  readonly windows: readonly Window[];
  /** The message of a refusal. */
  readonly refusalMessage: string;
  readonly #counts: MemoryWindows;

  /** @param counted which requests it counts, in words */
  constructor(counted: string, perMinute: number, now: () => number) {
    this.windows = [{ name: "minute", lengthSeconds: 60, limit: perMinute }];
    this.refusalMessage = `The rate limit of requests ${counted} from this address is exceeded: wait for Retry-After, then back off.`;
    this.#counts = new MemoryWindows({ maxAccounts: maxAddresses, gatewayCount: 1, now });
  }

  charge(address: string): Decision {
    return this.#counts.charge(addressBlock(address), this.windows);
  }

  /** The headers of an address, without a charge. */
  readonly limitHeadersOf = (address: string): HeaderList =>
    limitHeaders(this.windows, this.#counts.readShared(addressBlock(address), this.windows));
}
