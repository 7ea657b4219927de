import { createKey } from "../../gateway/accounts/keys/key-format.ts";

/** The pepper of the systems that the tests start. */
export const testPepper = "a-pepper-that-only-the-tests-know";

/** A key of the right form and checksum that was made elsewhere: what a caller can make up. */
export function madeUpKey(): string {
  return createKey("test", "a-pepper-that-no-test-system-has-at-all");
}
