/** The refusals of commands about accounts and keys. */
import { OperatorError } from "../../../runtime/operator-error.ts";

/** The refusal of something that an operator asked for; the message is for people. */
export class AccountError extends OperatorError {
  readonly code: AccountErrorCode;

  constructor(code: AccountErrorCode, message: string) {
    super(message);
    this.name = "AccountError";
    this.code = code;
  }
}

export type AccountErrorCode =
  | "invalid_account"
  | "invalid_limits"
  | "unknown_account"
  | "plan_differs"
  | "unknown_key"
  | "key_revoked"
  | "key_expired"
  | "key_replaced";
