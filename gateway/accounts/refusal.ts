export type KeyStoreErrorCode =
  | "invalid_account"
  | "invalid_limits"
  | "unknown_account"
  | "plan_differs"
  | "unknown_key"
  | "key_revoked"
  | "key_expired"
  | "key_replaced";

/** What an operator asked for was refused; the message is for people. */
export class KeyStoreError extends Error {
  readonly code: KeyStoreErrorCode;

  constructor(code: KeyStoreErrorCode, message: string) {
    super(message);
    this.name = "KeyStoreError";
    this.code = code;
  }
}

/** The error for a key id that nothing has. A whole key given in its place is a secret, so it is not repeated. */
export function unknownKey(keyId: string): KeyStoreError {
  return new KeyStoreError(
    "unknown_key",
    /^[\w-]{1,40}$/.test(keyId) && !keyId.startsWith("ps_")
      ? `There is no key ${keyId}; 'list' shows all.`
      : "That is not the id of a key (key_…); 'list' shows all.",
  );
}
