import { Client, credentials, Metadata, Server, ServerCredentials, type ServerDuplexStream } from "@grpc/grpc-js";
import "./closing-connections.ts";

const path = "/test.Echo/Echo";
const asIs = (bytes: Buffer) => bytes;
const serializers = {
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
};

test("a stream outlasts the pings of its connection once the server asked the client to leave it", async () => {
  const server = new Server({ "grpc.max_connection_age_ms": 300, "grpc.max_connection_age_grace_ms": 60_000 });
  server.addService(
    { echo: { path, requestStream: true, responseStream: true, ...serializers } },
    {
      echo: (call: ServerDuplexStream<Buffer, Buffer>) => {
        call.sendMetadata(new Metadata());
        call.on("data", (bytes) => call.write(bytes));
      },
    },
  );
  const port = await new Promise<number>((resolve) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (_error, bound) => resolve(bound));
  });
  const pingMs = 250;
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure(), { "grpc.keepalive_time_ms": pingMs });
  const stream = client.makeBidiStreamRequest(path, asIs, asIs, new Metadata());
  const failed = new Promise<never>((_resolve, reject) => stream.on("error", reject));
  const echo = (text: string) => {
    const answer = new Promise<string>((resolve) => stream.once("data", (bytes) => resolve(String(bytes))));
    stream.write(Buffer.from(text));
    return Promise.race([answer, failed]);
  };
  try {
    // Pings begin to fail within the age of the connection, a tenth of it more, and the time between two pings.
    for (const untilMs = performance.now() + 5 * pingMs; performance.now() < untilMs; ) {
      expect(await echo("still here")).toBe("still here");
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  } finally {
    client.close();
    server.forceShutdown();
  }
});
