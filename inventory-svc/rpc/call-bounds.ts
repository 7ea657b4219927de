/**
 * Limits what one caller makes the service keep. Most of these functions use members that the types of grpc-js 1.14 do
 * not have: when another version lacks them, the tests with real connections fail.
 */
import { constants, type Http2Stream } from "node:http2";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import {
  type ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type ServerInterceptor,
  status,
} from "@grpc/grpc-js";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";

/** A call, with what grpc-js 1.14 has beside its types. */
interface BaseCall extends ServerInterceptingCallInterface {
  readonly incomingEncoding: string;
  readonly cancelled: boolean;
  readonly stream: Http2Stream;
  readonly decoder: { maxReadMessageLength: number };
}

type Method = Parameters<ServerInterceptor>[0];

/** Makes an interceptor of a step for each call. */
function forEachCall(step: (call: BaseCall, method: Method) => void): ServerInterceptor {
  return (method, call) => {
    step(call as BaseCall, method);
    // The declared type is a wrapper that every message would pass through. grpc-js needs only its interface.
    return call as ServerInterceptingCall;
  };
}

/** Refuses calls with compressed messages: a few bytes of them can become megabytes before a handler sees any. */
const refuseCompressed = forEachCall((call) => {
  if (call.incomingEncoding === "identity") return;
  refuseCall(call, { code: status.UNIMPLEMENTED, details: "messages must not be compressed" });
});

/**
 * Begins no handler on a call that is over: its time has run out, or a further message was refused. grpc-js 1.14.7
 * begins one when the request ends, and never tells it that the call has ended: its place would be taken for ever.
 */
const beginNothingLate = forEachCall((call) => {
  const { start } = call;
  call.start = (listener) => {
    const begin = listener.onReceiveHalfClose.bind(listener);
    listener.onReceiveHalfClose = () => {
      if (!call.cancelled) begin();
    };
    start.call(call, listener);
  };
});

/** Maximum bytes of a message, but for that of ApplyChanges: a hundred adjustments with their reasons take 103 KB. */
const maxQuestionBytes = 128 * 1024;

/** Maximum bytes of a message to the services of gRPC itself, which need no role: for health and reflection. */
const maxOpenBytes = 4 * 1024;

/** Refuses messages that are longer than any valid one: each call may hold an incomplete one. */
const refuseLong = forEachCall((call, { path }) => {
  if (path.startsWith("/grpc.")) call.decoder.maxReadMessageLength = maxOpenBytes;
  else if (path !== InventoryServiceService.applyChanges.path) call.decoder.maxReadMessageLength = maxQuestionBytes;
});

/** The longest time for a request of one message to arrive, and for a stream of requests to end after its answer. */
const maxArrivalMs = 15_000;

/**
 * Resets a call whose request does not end. grpc-js 1.14.7 keeps what has come of a message until then, also after the
 * deadline of the call and after its answer.
 */
const endArrivals = forEachCall(({ stream }, { requestStream }) => {
  if (!requestStream) resetUnless("end", stream, maxArrivalMs);
  // With NO_ERROR the caller keeps its answers (RFC 9113, section 8.1).
  else stream.once("finish", () => resetUnless("end", stream, maxArrivalMs, constants.NGHTTP2_NO_ERROR));
});

/**
 * The longest wait until a caller has room for a message. Meanwhile its call takes one of the places for lists or
 * watches, keeps a page of entries in memory, and holds up a stop of the service. A slow reader may make room
 * rarely, for 4 MiB at a time.
 */
export const maxUntakenMs = 60_000;

/** Resets a call of one answer when its caller does not take the answer. For calls of more answers `send` does that. */
const endUntaken = forEachCall((call, { responseStream }) => {
  if (responseStream) return;
  const { sendMessage } = call;
  call.sendMessage = (message, done) => {
    resetUnless("close", call.stream, maxUntakenMs);
    sendMessage.call(call, message, done);
  };
});

/** What the server does to every call before its handler. */
export const boundCalls = [refuseCompressed, refuseLong, beginNothingLate, endArrivals, endUntaken];

/** Ends a call before its handler starts. @returns the call, for grpc-js */
export function refuseCall(
  call: ServerInterceptingCallInterface,
  refusal: Parameters<ServerInterceptingCallInterface["sendStatus"]>[0],
): ServerInterceptingCall {
  call.sendStatus(refusal);
  call.start = () => {};
  return call as ServerInterceptingCall;
}

/** Takes a message from a stream only when it is asked for. By default 16 more are decoded, and wait. */
export function readOneByOne(call: object): void {
  (call as unknown as { readonly _readableState: { highWaterMark: number } })._readableState.highWaterMark = 0;
}

/** Ends a call at once, with all that its caller has not taken. Its handler then finds it cancelled. */
export function resetCall(call: object): void {
  reset((call as { readonly call: Pick<BaseCall, "stream"> }).call.stream);
}

/** Resets a call after a time, unless an event of its stream comes before. */
function resetUnless(event: "end" | "close", stream: Http2Stream, ms: number, code?: number): void {
  if (stream.destroyed) return; // no event comes any more
  const timer = setTimeout(() => reset(stream, code), ms);
  for (const each of new Set([event, "close"])) stream.once(each, () => clearTimeout(timer));
}

function reset(stream: Http2Stream, code = constants.NGHTTP2_CANCEL): void {
  stream.close(code);
}

/**
 * Maximum numbers in a message: tags, lengths and values. A thousand changes, each in a group of its own and with all
 * that it may have, are 72,000. Two bytes can become an object of 130, so bytes alone are no bound.
 */
const maxNumbers = 100_000;

/** Reads a message for the generated decoders. @throws RangeError for more numbers than a valid message has */
class BoundedReader extends BinaryReader {
  #left = maxNumbers;

  constructor(message: Uint8Array) {
    super(message);
    const read = this.uint32;
    this.uint32 = () => {
      this.#count();
      return read.call(this);
    };
  }

  override int64(): bigint | string {
    this.#count();
    return super.int64();
  }

  #count(): void {
    this.#left -= 1;
    if (this.#left < 0) throw new RangeError(`a message has more than ${maxNumbers} numbers`);
  }
}

/** The calls of the contract, with `BoundedReader` for their messages. */
export const boundedInventoryService = Object.fromEntries(
  Object.entries(InventoryServiceService).map(([name, method]) => {
    // The generated decoders take a reader as well as bytes.
    const decode = method.requestDeserialize as (message: unknown) => unknown;
    return [name, { ...method, requestDeserialize: (message: Buffer) => decode(new BoundedReader(message)) }];
  }),
) as unknown as InventoryServiceService;
