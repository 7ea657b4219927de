/** The operations as a Postman collection (format 2.1), which takes the key once and works as it is imported. */
import { exampleOf, operationsOf, type PlacedOperation, type ShownDocument, sampleServer } from "./shown-document.ts";

interface Entry {
  readonly key: string;
  readonly value: string;
  readonly description: string;
  /** Optional parameters but an Idempotency-Key come switched off, because an invented value is refused. */
  readonly disabled: boolean;
}

/** Values of parameters that no example can have: the tag of the last list, and a new id for each request. */
const variables: Readonly<Record<string, string>> = { since: "{{listTag}}", "Idempotency-Key": "{{$guid}}" };

export function postmanCollection(document: ShownDocument): object {
  const groups = Map.groupBy(operationsOf(document), ({ tags }) => tags?.[0] ?? "");
  return {
    info: {
      name: document.info.title,
      description:
        "Set the variable apiKey to your API key. A run of all requests rotates no key: only the one in the variable " +
        "keyToRotate is rotated. The documentation is at /docs.",
      schema: "https://schema.getpostman.com/json/collection/v2.1.0/collection.json",
    },
    auth: bearer("{{apiKey}}"),
    variable: [
      { key: "baseUrl", value: sampleServer(document).url },
      { key: "apiKey", value: "" },
      { key: "listTag", value: "" },
      { key: "keyToRotate", value: "" },
    ],
    item: [...groups].map(([name, operations]) => ({ name, item: operations.map(itemOf) })),
  };
}

function itemOf({ operationId, method, path, title, description, parameters, requestBody }: PlacedOperation): object {
  const entries = (place: string): Entry[] =>
    parameters
      .filter((parameter) => parameter.in === place)
      .map(({ name, required = false, example, description: meaning }) => ({
        key: name,
        value: variables[name] ?? String(example ?? ""),
        description: meaning,
        disabled: !required && name !== "Idempotency-Key",
      }));
  const segments = path.split("/").slice(1);
  const [query, pathValues] = [entries("query"), entries("path")];
  const asked = query.filter(({ disabled }) => !disabled).map(({ key, value }) => `${key}=${value}`);
  const shownPath = segments.map((segment) => segment.replace(/^\{(.*)\}$/, ":$1"));
  const body = exampleOf(requestBody?.content);
  return {
    name: title,
    ...(operationId === "listInventory" ? { event: [keepTag] } : {}),
    request: {
      method,
      description,
      ...(operationId === "rotateKey" ? { auth: bearer("{{keyToRotate}}") } : {}),
      url: {
        raw: `{{baseUrl}}/${shownPath.join("/")}${asked.length > 0 ? `?${asked.join("&")}` : ""}`,
        host: ["{{baseUrl}}"],
        path: shownPath,
        query,
        variable: pathValues,
      },
      header: [...(body ? [{ key: "Content-Type", value: "application/json" }] : []), ...entries("header")],
      ...(body ? { body: { mode: "raw", raw: JSON.stringify(body), options: { raw: { language: "json" } } } } : {}),
    },
    response: [],
  };
}

const bearer = (value: string) => ({ type: "bearer", bearer: [{ key: "token", value, type: "string" }] });

/** Makes the request for changes begin at the last list. */
const keepTag = {
  listen: "test",
  script: {
    type: "text/javascript",
    exec: [
      'const tag = pm.response.headers.get("ETag");',
      'if (tag) pm.collectionVariables.set("listTag", tag.replaceAll(\'"\', ""));',
    ],
  },
};
