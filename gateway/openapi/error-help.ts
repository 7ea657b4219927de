/**
 * What each error code means and what a client does about it, for the documentation: `Link` of an error leads there.
 */
import type { ErrorCode } from "../http/api-error.ts";

export interface ErrorHelp {
  readonly meaning: string;
  readonly action: string;
  /** Whether the same request may be sent again. */
  readonly repeat: string;
}

/** Texts in Markdown. */
export const errorHelp: Readonly<Record<ErrorCode, ErrorHelp>> = {
  missing_api_key: {
    meaning: "The request has no `Authorization` header, or one of another scheme than `Bearer`.",
    action: "Send `Authorization: Bearer <API_KEY>`. A redirect or a proxy may have dropped the header.",
    repeat: "Yes, with the header.",
  },
  invalid_api_key: {
    meaning: "The key is unknown, revoked or expired, or it was cut when it was copied.",
    action: "Compare it with the key that you were given. Ask for a new one when it has ended.",
    repeat: "Not with this key: it will not become valid again.",
  },
  insufficient_scope: {
    meaning: "The key is valid, and the operation needs a scope that it does not have.",
    action:
      "Look at the scope of the operation in this documentation and at those of your key in `/rate_limit`. " +
      "A key with more scopes is issued by the operator.",
    repeat: "Not with this key.",
  },
  invalid_request: {
    meaning:
      "A parameter, a header or a member of the body is missing or has no valid value. With status 501 it is a transfer " +
      "coding other than chunked, with 505 a version of HTTP other than 1.1 and 1.0. Nothing was changed.",
    action: "Read `message`: it names the fault. Mend the request.",
    repeat: "No: the same request gets the same answer.",
  },
  invalid_json: {
    meaning: "The body is no JSON in UTF-8, or an object in it has a member twice. Nothing was changed.",
    action: "Write the body with a JSON library, not by joining texts.",
    repeat: "No: the same body gets the same answer.",
  },
  not_found: {
    meaning: "There is no such path, or no entry with this `petId`. With status 410 the operation has been retired.",
    action: "Check the path and the `petId`. The list has every entry. After a 410 follow the header `Link`.",
    repeat: "Yes, but only an entry that is made later changes the answer.",
  },
  changes_unavailable: {
    meaning: "The differences since this `ETag` are not kept, or are more than the list itself.",
    action: "Read the list, and go on from its `ETag`.",
    repeat: "No: the tag stays too old.",
  },
  method_not_allowed: {
    meaning: "The path exists and does not have this method.",
    action: "Use a method of the header `Allow`.",
    repeat: "No.",
  },
  payload_too_large: {
    meaning: "The body is larger than 16 KiB. With status 431 it is the head of the request, or it has over 100 lines.",
    action: "Send fewer updates in a request, or fewer headers.",
    repeat: "No: send it in parts.",
  },
  unsupported_media_type: {
    meaning: "The body is not declared as JSON in UTF-8, or it is compressed.",
    action: "Send `Content-Type: application/json`, and no `Content-Encoding`.",
    repeat: "Yes, with the right header.",
  },
  key_replaced: {
    meaning: "This key was rotated, and the new key has been used already.",
    action: "Use the new key, and rotate that one. Ask the operator for another when you do not have it.",
    repeat: "No.",
  },
  insufficient_stock: {
    meaning: "An adjustment would make a quantity fall below 0. `message` names the pet and what is there.",
    action: "Read the entry, and decide again how much to take. No adjustment of the request was made.",
    repeat: "Yes, but only more stock changes the answer.",
  },
  quantity_overflow: {
    meaning: "An adjustment would make a quantity larger than 2147483647. `message` names the pet.",
    action: "Check the delta. No adjustment of the request was made.",
    repeat: "Yes, but only less stock changes the answer.",
  },
  precondition_failed: {
    meaning:
      "The entry has changed since the `ETag` that you sent in `If-Match`, or what you sent is no tag of this entry: the " +
      "message says which. This request has changed nothing. If it repeats one whose answer was lost, that one may have made " +
      "the change: the history of the entry shows it.",
    action: "Read the entry, decide again, and send the update with the new `ETag`.",
    repeat: "No: the tag stays outdated.",
  },
  idempotency_key_reused: {
    meaning: "This `Idempotency-Key` was sent with another request before. Nothing was changed.",
    action: "Take a new key for each update that you decide on, and keep it for the repeats of that update alone.",
    repeat: "Yes, with a new key.",
  },
  rate_limit_exceeded: {
    meaning:
      "A limit is used up: the one that has `r=0` in `RateLimit`. `minute` and `day` are those of the account, or of " +
      "the address without a valid key; `own-account` is that of `/rate_limit` and `/usage`; `rotations` and " +
      "`keyed-updates` speak for themselves. The request was not carried out. It is not counted, but one of `rotations` " +
      "or `keyed-updates` is charged to minute and day like any other.",
    action:
      "Wait for the seconds in `Retry-After`; then back off exponentially with some randomness. A key that goes on " +
      "without waiting while its minute or day is used up is banned. To stay below the limit, watch " +
      "`X-RateLimit-Remaining`, ask `/inventory/changes` in place of the list, and send updates together.",
    repeat: "Yes, after `Retry-After`.",
  },
  api_key_banned: {
    meaning:
      "The key kept sending requests after a 429, and is banned for a time, with the key that a rotation made of it or " +
      "that it was made of. Other keys of the account work.",
    action:
      "Stop every client that uses the key, and wait for `Retry-After`. Then make the clients obey it. " +
      "The account page shows the end of the ban; the operator can lift it.",
    repeat: "Yes, after `Retry-After`. Further bans last longer.",
  },
  upstream_unavailable: {
    meaning: "The service that owns the record is down, or its answer was not usable.",
    action: "Back off exponentially with some randomness.",
    repeat: "Yes.",
  },
  upstream_timeout: {
    meaning: "The service that owns the record did not answer in time.",
    action: "Back off exponentially with some randomness.",
    repeat: "Yes.",
  },
  service_unavailable: {
    meaning: "This API, or a part behind it, is down or overloaded. An update may or may not have happened.",
    action: "Wait for `Retry-After` where it is there; then back off exponentially with some randomness.",
    repeat: "Yes. An update is safe to repeat with the same `Idempotency-Key` or with `If-Match`.",
  },
  timeout: {
    meaning:
      "The answer did not come in time. If the request was an update, it may or may not have happened. With status 408 " +
      "the request itself did not arrive in time, and nothing was changed.",
    action: "Back off exponentially with some randomness. Read the entry when you need to know what became of it.",
    repeat: "Yes. An update is safe to repeat with the same `Idempotency-Key` or with `If-Match`.",
  },
  internal_error: {
    meaning: "A fault of this API. An update may or may not have happened.",
    action: "Report it with the `X-Request-Id` of the answer when it persists.",
    repeat: "Yes, a few times. An update is safe to repeat with the same `Idempotency-Key` or with `If-Match`.",
  },
};
