/**
 * Limits what one caller makes the service keep. Three of these functions use members that the types of grpc-js 1.14 do
 * not have: when another version lacks them, the tests with real connections fail.
 */
import { constants, type Http2Stream } from "node:http2";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import {
  ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type ServerInterceptor,
  status,
} from "@grpc/grpc-js";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";

/** Refuses calls with compressed messages: a few bytes of them can become megabytes before a handler sees any. */
export const refuseCompressed: ServerInterceptor = (_method, call) => {
  const { incomingEncoding } = call as unknown as { readonly incomingEncoding: string };
  // The declared type is a wrapper that every message would pass through. grpc-js needs only its interface.
  if (incomingEncoding === "identity") return call as ServerInterceptingCall;
  return refuseCall(call, { code: status.UNIMPLEMENTED, details: "messages must not be compressed" });
};

/** Ends a call before its handler starts. @returns the call, for grpc-js */
export function refuseCall(
  call: ServerInterceptingCallInterface,
  refusal: Parameters<ServerInterceptingCallInterface["sendStatus"]>[0],
): ServerInterceptingCall {
  call.sendStatus(refusal);
  return new ServerInterceptingCall(call, { start: () => {} });
}

/** Takes a message from a stream only when it is asked for. By default 16 more are decoded, and wait. */
export function readOneByOne(call: object): void {
  (call as unknown as { readonly _readableState: { highWaterMark: number } })._readableState.highWaterMark = 0;
}

/** Ends a call at once, with all that its caller has not taken. Its handler then finds it cancelled. */
export function resetCall(call: object): void {
  const { stream } = (call as { readonly call: { readonly stream: Pick<Http2Stream, "close"> } }).call;
  stream.close(constants.NGHTTP2_CANCEL);
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
