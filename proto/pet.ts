/** What the contract says of pets: their statuses, the bounds of ids and quantities, and how both are written. */
import { PetStatus as WireStatus } from "./gen/petstore/inventory/v1/inventory.ts";

/** The statuses, in the contract's order. */
export const petStatuses = ["available", "pending", "sold"] as const;
export type PetStatus = (typeof petStatuses)[number];

/** A petId is any int64. */
export const minPetId = -(2n ** 63n);
export const maxPetId = 2n ** 63n - 1n;

/** A quantity is from 0 to what an int32 holds. */
export const maxQuantity = 2_147_483_647;

/** An entry of the stock. */
export interface Item {
  /** Any int64. */
  readonly petId: bigint;
  /** 0 to 2147483647. */
  readonly quantity: number;
  readonly status: PetStatus;
  /** The revision of the stock that last changed it. */
  readonly revision: bigint;
}

/** A place in the history of the stock: everything up to `revision` of `epoch`. */
export interface Position {
  /** Names a line of revisions; a restored database begins a new one. */
  readonly epoch: string;
  readonly revision: bigint;
}

/** An int64 in its one canonical form: no plus sign, no leading zero, no fraction. */
const canonical = /^(?:0|-?[1-9]\d{0,18})$/;

/** Reads a petId in decimal. @returns undefined for a text that is not a canonical int64 */
export function parsePetId(text: string): bigint | undefined {
  if (!canonical.test(text)) return undefined;
  const petId = BigInt(text);
  return petId >= minPetId && petId <= maxPetId ? petId : undefined;
}

const wireStatuses: Readonly<Record<PetStatus, WireStatus>> = {
  available: WireStatus.PET_STATUS_AVAILABLE,
  pending: WireStatus.PET_STATUS_PENDING,
  sold: WireStatus.PET_STATUS_SOLD,
};

const statuses: ReadonlyMap<WireStatus, PetStatus> = new Map(petStatuses.map((name) => [wireStatuses[name], name]));

export function toWireStatus(status: PetStatus): WireStatus {
  return wireStatuses[status];
}

/** @returns undefined for a value that the contract does not have, the unspecified one included */
export function fromWireStatus(wire: WireStatus): PetStatus | undefined {
  return statuses.get(wire);
}
