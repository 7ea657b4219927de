import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { type ClientDuplexStream, type ClientReadableStream, status } from "@grpc/grpc-js";
import { protoPath } from "grpc-health-check";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { connectService, conversation, messagesOf, statusOf } from "../support/grpc.ts";
import { serveStock, serviceName } from "../support/inventory-service.ts";
import type { RunningProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";

describeEachDatabase("health and reflection of the service", (url) => {
  const stack = suiteStack();
  let service: RunningProcess;
  beforeAll(async () => {
    ({ service } = await serveStock(stack, url()));
  });

  describe("the health service", () => {
    interface Health {
      check(request: object, done: (error: Error | null, response: { status: string }) => void): void;
      watch(request: object): ClientReadableStream<{ status: string }>;
    }
    const connect = () => {
      const client = connectService<Health>(protoPath, "grpc.health.v1.Health", service.listen);
      stack.defer(() => client.close());
      return client;
    };

    test.each([
      ["", "SERVING"],
      [serviceName, "SERVING"],
      ["petstore.Other", "NOT_FOUND"],
    ])("answers Check of %p with %s", async (name, expected) => {
      const client = connect();
      const answer = new Promise<{ status: string }>((resolve, reject) =>
        client.check({ service: name }, (error, response) => (error ? reject(error) : resolve(response))),
      );
      const result = await answer.then(
        ({ status }) => status,
        () => statusOf(answer),
      );
      expect(result).toBe(expected);
    });

    test.each([
      ["", "SERVING"],
      [serviceName, "SERVING"],
      ["petstore.Other", "SERVICE_UNKNOWN"],
    ])("begins Watch of %p with %s", async (name, expected) => {
      const call = connect().watch({ service: name });
      expect(await messagesOf(call)()).toEqual({ status: expected });
      call.cancel();
    });
  });

  describe.each(["v1", "v1alpha"])("server reflection %s", (version) => {
    interface Answer {
      listServicesResponse?: { service: { name: string }[] };
      fileDescriptorResponse?: { fileDescriptorProto: Uint8Array[] };
      errorResponse?: { errorCode: number };
    }
    interface Reflection {
      serverReflectionInfo(): ClientDuplexStream<object, Answer>;
    }
    const ask = async (question: object): Promise<Answer> => {
      const installed = dirname(createRequire(import.meta.url).resolve("@grpc/reflection"));
      const protoFile = join(installed, `../proto/grpc/reflection/${version}/reflection.proto`);
      const client = connectService<Reflection>(
        protoFile,
        `grpc.reflection.${version}.ServerReflection`,
        service.listen,
      );
      const stream = conversation(client.serverReflectionInfo());
      stream.send(question);
      const answer = (await stream.next())!;
      stream.call.cancel();
      client.close();
      return answer;
    };

    const filesOf = async (question: object): Promise<FileDescriptorProto[]> => {
      const { fileDescriptorResponse } = await ask(question);
      return fileDescriptorResponse!.fileDescriptorProto.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes));
    };

    test(`server reflection ${version} lists the services`, async () => {
      const { listServicesResponse } = await ask({ listServices: "" });
      const names = listServicesResponse!.service.map(({ name }) => name);
      expect(names).toEqual(expect.arrayContaining([serviceName, "grpc.health.v1.Health"]));
    });

    test.each([serviceName, `${serviceName}.UpdateInventory`, "petstore.inventory.v1.InventoryItem"])(
      `server reflection ${version} describes %s with all methods and fields`,
      async (symbol) => {
        const files = await filesOf({ fileContainingSymbol: symbol });
        const { service: services, messageType } = files.find(({ package: name }) => name === "petstore.inventory.v1")!;
        expect(services[0]!.method.map(({ name }) => `/${serviceName}/${name}`)).toEqual(
          Object.values(InventoryServiceService).map(({ path }) => path),
        );
        const item = messageType.find(({ name }) => name === "InventoryItem")!;
        expect(item.field.map(({ name }) => name)).toEqual(["pet_id", "quantity", "status", "revision", "removed"]);
      },
    );

    /** Finds a symbol as tools do: they read its file, then those that it imports, and link them strictly. */
    async function findSymbol(symbol: string) {
      const files = new Map<string, FileDescriptorProto>();
      const [first] = await filesOf({ fileContainingSymbol: symbol });
      const waiting = [first!];
      for (let file = waiting.pop(); file; file = waiting.pop()) {
        if (files.has(file.name)) continue;
        files.set(file.name, file);
        for (const name of file.dependency) waiting.push((await filesOf({ fileByFilename: name }))[0]!);
      }
      return createFileRegistry(first!, (name) => files.get(name)).get(symbol);
    }

    test.each([
      serviceName,
      "grpc.health.v1.Health",
      ...["ErrorInfo", "RetryInfo", "BadRequest"].map((name) => `google.rpc.${name}`),
    ])(`server reflection ${version} gives %s with every file that it imports`, async (symbol) =>
      expect(await findSymbol(symbol)).toMatchObject({ typeName: symbol }),
    );

    test(`server reflection ${version} describes the types of error details`, async () => {
      const files = await filesOf({ fileContainingSymbol: "google.rpc.ErrorInfo" });
      const names = files.flatMap(({ messageType }) => messageType.map(({ name }) => name));
      expect(names).toEqual(expect.arrayContaining(["ErrorInfo", "BadRequest", "RetryInfo", "ResourceInfo"]));
    });

    test(`server reflection ${version} answers NOT_FOUND for an unknown symbol`, async () => {
      expect(await ask({ fileContainingSymbol: "petstore.Other" })).toMatchObject({
        errorResponse: { errorCode: status.NOT_FOUND },
      });
    });
  });
});
