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
  /** Whether it takes an Idempotency-Key, of which each run of a sample makes a new one. */
  readonly isKeyed: boolean;
  /** Address of the list whose `ETag` it sends as `since`; undefined for an operation without that parameter. */
  readonly listUrl: string | undefined;
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

/** The parts that are there, one below the other. */
function lines(...parts: readonly (string | false | undefined)[]): string {
  return parts.filter(Boolean).join("\n");
}

/** Doubles backslashes, for a text between single quotes of JavaScript and Python. */
function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\");
}

/** Says in a sample of changes why it prints nothing at first. */
const waits = "the answer comes with the next change, after 90 s at the latest";

/** Says in a sample with an Idempotency-Key that each run of it is another change. */
const isNew = "a repeat of this change sends the same key";

function curl({ method, url, body, isKeyed, listUrl }: SampledRequest): string {
  const authorization = '-H "Authorization: Bearer $KEY"';
  const parts = [
    "curl -sS --fail-with-body -w '\\n'",
    authorization,
    ...(isKeyed ? ['-H "Idempotency-Key: $(openssl rand -hex 16)"'] : []),
    ...(body === undefined ? [] : [`-X ${method} -H "Content-Type: application/json"`, `-d '${body}'`]),
    ...(listUrl ? ['-H "Prefer: wait=90"', '-G --data-urlencode "since=$ETAG"'] : []),
    url,
  ];
  return lines(
    isKeyed && `# ${isNew}`,
    listUrl && "# needs curl 7.84 or later",
    listUrl && `ETAG=$(curl -f -s -I -o /dev/null -w '%header{etag}' \\\n  ${authorization} \\\n  ${listUrl})`,
    listUrl && `# ${waits}`,
    parts.join(" \\\n  "),
  );
}

function javaScript({ method, url, body, isKeyed, listUrl }: SampledRequest): string {
  return lines(
    "// Node 20 or later",
    `const headers = {\n  Authorization: \`Bearer \${process.env.KEY}\`,`,
    body !== undefined && '  "Content-Type": "application/json",',
    isKeyed && `  // ${isNew}\n  "Idempotency-Key": crypto.randomUUID(),`,
    listUrl && `  Prefer: "wait=90", // ${waits}`,
    "};",
    listUrl && `const list = await fetch("${listUrl}", { method: "HEAD", headers });`,
    listUrl && 'const since = encodeURIComponent(list.headers.get("etag"));',
    listUrl ? `const response = await fetch(\`${url}?since=\${since}\`, {` : `const response = await fetch("${url}", {`,
    body !== undefined && `  method: "${method}",\n  body: '${escaped(body)}',`,
    "  headers,",
    "});",
    "if (!response.ok) throw new Error(await response.text());",
    "console.log(await response.text()); // JSON.parse would round ids beyond 2^53",
  );
}

function python({ method, url, body, isKeyed, listUrl }: SampledRequest): string {
  return lines(
    "import json\nimport os\nimport urllib.error",
    listUrl && "import urllib.parse",
    "import urllib.request",
    isKeyed && "import uuid",
    "\nheaders = {",
    `    "Authorization": f"Bearer {os.environ['KEY']}",`,
    body !== undefined && '    "Content-Type": "application/json",',
    isKeyed && `    # ${isNew}\n    "Idempotency-Key": str(uuid.uuid4()),`,
    listUrl && `    "Prefer": "wait=90",  # ${waits}`,
    "}",
    "try:",
    listUrl && `    list_head = urllib.request.Request("${listUrl}", method="HEAD", headers=headers)`,
    listUrl && '    since = urllib.parse.quote(urllib.request.urlopen(list_head).headers["ETag"])',
    "    request = urllib.request.Request(",
    listUrl ? `        f"${url}?since={since}",` : `        "${url}",`,
    body !== undefined && `        method="${method}",\n        data=b'${escaped(body)}',`,
    "        headers=headers,\n    )",
    "    with urllib.request.urlopen(request) as response:",
    "        print(json.load(response))",
    "except urllib.error.HTTPError as error:",
    "    raise SystemExit(error.read().decode())",
  );
}

function go({ method, url, body, isKeyed, listUrl }: SampledRequest): string {
  const authorize = (name: string) => `\t${name}.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))`;
  const orFail = "\tif err != nil {\n\t\tlog.Fatal(err)\n\t}";
  return lines(
    "package main\n\nimport (",
    isKeyed && '\t"crypto/rand"',
    '\t"io"\n\t"log"\n\t"net/http"',
    listUrl && '\t"net/url"',
    '\t"os"',
    body !== undefined && '\t"strings"',
    ")\n\nfunc main() {",
    listUrl && `\tlist, err := http.NewRequest("HEAD", "${listUrl}", nil)\n${orFail}\n${authorize("list")}`,
    listUrl && `\thead, err := http.DefaultClient.Do(list)\n${orFail}`,
    listUrl && '\tsince := url.QueryEscape(head.Header.Get("ETag"))',
    `\trequest, err := http.NewRequest("${method}", "${url}${listUrl ? '?since="+since' : '"'}, ${body === undefined ? "nil" : `strings.NewReader(\`${body}\`)`})`,
    orFail,
    authorize("request"),
    body !== undefined && '\trequest.Header.Set("Content-Type", "application/json")',
    isKeyed && `\t// ${isNew}`,
    isKeyed && '\trequest.Header.Set("Idempotency-Key", rand.Text()) // Go 1.24 or later',
    listUrl && `\trequest.Header.Set("Prefer", "wait=90") // ${waits}`,
    "\tresponse, err := http.DefaultClient.Do(request)",
    orFail,
    "\tdefer response.Body.Close()",
    "\tif _, err := io.Copy(os.Stdout, response.Body); err != nil {\n\t\tlog.Fatal(err)\n\t}",
    "\tif response.StatusCode >= 400 {\n\t\tlog.Fatal(response.Status)\n\t}\n}",
  );
}
