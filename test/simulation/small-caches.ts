/** Stands for the package `lru-cache`: to make one with places for 50,000 entries takes longer than a short run. */
import { LRUCache as RealCache } from "lru-cache";

const maxEntries = 1_000;

export class LRUCache<Key extends {}, Value extends {}> extends RealCache<Key, Value> {
  constructor(options: { readonly max: number }) {
    super({ ...options, max: Math.min(options.max, maxEntries) });
  }
}
