/** Why the service refuses a call: the reasons of `google.rpc.ErrorInfo`, which the head of the contract describes. */
export type ErrorReason =
  | "INVALID_FIELD"
  | "REQUEST_ID_REUSED"
  | "KEY_REUSED"
  | "ENTRY_NOT_FOUND"
  | "ENTRY_EXISTS"
  | "REVISION_MISMATCH"
  | "INSUFFICIENT_STOCK"
  | "QUANTITY_OVERFLOW"
  | "GROUP_REFUSED"
  | "HISTORY_OFF"
  | "ROLE_REQUIRED"
  | "QUEUE_FULL"
  | "DEADLINE_PASSED"
  | "STOCK_UNAVAILABLE"
  | "OUTCOME_UNKNOWN"
  | "INTERNAL";
