/** Writes each operation as a program in curl, JavaScript, Python and Go that runs as it stands, with `KEY` set. */

export interface CodeSample {
  readonly lang: string;
  readonly source: string;
}

export interface SampledRequest {
  readonly method: string;
  readonly url: string;
  /** JSON; undefined for a request without a body. */
  readonly body: string | undefined;
  /** An Idempotency-Key, for an operation that requires one. */
  readonly idempotencyKey: string | undefined;
}

/** @returns `x-codeSamples` of an operation */
export function codeSamples(request: SampledRequest): CodeSample[] {
  return [
    { lang: "curl", source: curl(request) },
    { lang: "JavaScript", source: javaScript(request) },
    { lang: "Python", source: python(request) },
    { lang: "Go", source: go(request) },
  ];
}

function curl({ method, url, body, idempotencyKey }: SampledRequest): string {
  const lines = ['curl -H "Authorization: Bearer $KEY"'];
  if (idempotencyKey !== undefined) lines.push(`-H "Idempotency-Key: ${idempotencyKey}"`);
  if (body !== undefined) lines.push(`-X ${method} -H "Content-Type: application/json" -d '${body}'`);
  return [...lines, url.includes("?") ? `"${url}"` : url].join(" \\\n  ");
}

/** Integers beyond 2^53 become bigints, which keep all digits. */
function javaScript({ method, url, body, idempotencyKey }: SampledRequest): string {
  const request = body === undefined ? "" : `\n  method: "${method}",\n  body: '${body}',`;
  const key = idempotencyKey === undefined ? "" : `, "Idempotency-Key": "${idempotencyKey}"`;
  const type = body === undefined ? key : `, "Content-Type": "application/json"${key}`;
  return `// Node 22 or later
const response = await fetch("${url}", {${request}
  headers: { Authorization: \`Bearer \${process.env.KEY}\`${type} },
});
if (!response.ok) throw new Error(await response.text());
const isRounded = (value) => Number.isInteger(value) && !Number.isSafeInteger(value);
const exact = (_name, value, context) => (isRounded(value) ? BigInt(context.source) : value);
console.log(JSON.parse(await response.text(), exact));`;
}

function python({ method, url, body, idempotencyKey }: SampledRequest): string {
  const request = body === undefined ? "" : `\n    method="${method}",\n    data=b'${body}',`;
  const key = idempotencyKey === undefined ? "" : `, "Idempotency-Key": "${idempotencyKey}"`;
  const type = body === undefined ? key : `, "Content-Type": "application/json"${key}`;
  return `import json
import os
import urllib.error
import urllib.request

request = urllib.request.Request(
    "${url}",${request}
    headers={"Authorization": f"Bearer {os.environ['KEY']}"${type}},
)
try:
    with urllib.request.urlopen(request) as response:
        print(json.load(response))
except urllib.error.HTTPError as error:
    raise SystemExit(error.read().decode())`;
}

function go({ method, url, body, idempotencyKey }: SampledRequest): string {
  const reader = body === undefined ? "nil" : `strings.NewReader(\`${body}\`)`;
  const strings = body === undefined ? "" : '\n\t"strings"';
  const type = body === undefined ? "" : '\n\trequest.Header.Set("Content-Type", "application/json")';
  const key = idempotencyKey === undefined ? "" : `\n\trequest.Header.Set("Idempotency-Key", "${idempotencyKey}")`;
  return `package main

import (
\t"io"
\t"log"
\t"net/http"
\t"os"${strings}
)

func main() {
\trequest, err := http.NewRequest("${method}", "${url}", ${reader})
\tif err != nil {
\t\tlog.Fatal(err)
\t}
\trequest.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))${type}${key}
\tresponse, err := http.DefaultClient.Do(request)
\tif err != nil {
\t\tlog.Fatal(err)
\t}
\tdefer response.Body.Close()
\tif _, err := io.Copy(os.Stdout, response.Body); err != nil {
\t\tlog.Fatal(err)
\t}
}`;
}
