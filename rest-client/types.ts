/** What the API answers. Generated from the OpenAPI document by `npm run generate`; do not edit. */

export type PetStatus = "available" | "pending" | "sold";

export interface InventoryItem {
  readonly petId: bigint;
  readonly quantity: number;
  readonly status: PetStatus;
}

export interface InventoryEntry {
  readonly petId: bigint;
  readonly quantity: number;
  readonly status: PetStatus;
  readonly etag: string;
}

export interface InventoryChanges {
  readonly etag: string;
  readonly changed: readonly InventoryEntry[];
  readonly removed: readonly bigint[];
}

export interface UpdateError {
  readonly code: string;
  readonly message: string;
  readonly status: number;
}

export interface RateLimit {
  readonly plan: string;
  readonly windows: readonly {
    readonly name: string;
    readonly limit: number;
    readonly used: number;
    readonly remaining: number;
    readonly resetAt: string;
  }[];
  readonly ban: { readonly until: string } | null;
  readonly key: { readonly id: string; readonly scopes: readonly string[]; readonly expiresAt: string | null };
}

export interface Usage {
  readonly from: string;
  readonly to: string;
  readonly stepSeconds: number;
  readonly steps: readonly { readonly at: string; readonly served: number; readonly refused: number }[];
  readonly deprecated: number;
}
