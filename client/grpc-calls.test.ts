import { Readable } from "node:stream";
import { type ClientReadableStream, Metadata, status } from "@grpc/grpc-js";
import { readStream } from "./grpc-calls.ts";

test("a stream that the service resets is lost, and not taken for one that this side ended", async () => {
  const stream = Object.assign(new Readable({ objectMode: true, read: () => {} }), { cancel: () => {} });
  const reset = { code: status.CANCELLED, details: "Call cancelled", metadata: new Metadata() };
  const messages = readStream(() => stream as unknown as ClientReadableStream<object>, undefined);
  const next = messages.next();
  stream.destroy(Object.assign(new Error("1 CANCELLED: Call cancelled"), reset));
  await expect(next).rejects.toMatchObject({ code: "UNAVAILABLE" });
});
