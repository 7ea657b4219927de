import { execFile } from "node:child_process";
import { watch } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { createSqliteDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { migrateStock, openStock, pagesOf } from "../support/open-stock.ts";
import { freePort } from "../support/ports.ts";
import { cleanup, runScript, startScript } from "../support/processes.ts";
import { type Stack, suiteStack, temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";

const script = "inventory-svc/cli/stock.ts";
const header = "petId,quantity,status\n";

/** Runs the command in a folder of its own. */
async function inFolder(stack: Stack, url: () => string) {
  const folder = await temporaryFolder("stock");
  stack.defer(() => folder.remove());
  const cwd = folder.path;
  const env = () => ({ INVENTORY_DATABASE_URL: url() });
  const stock = (...args: string[]) => runScript({ script, args, cwd, env: env() });
  return {
    cwd,
    stock,
    env,
    write: (name: string, content: string | Buffer) => writeFile(join(cwd, name), content),
    read: (name: string) => readFile(join(cwd, name), "utf8"),
    files: async () => (await readdir(cwd)).sort(),
    /** Runs a command that must succeed. @returns its standard error */
    run: async (...args: string[]) => {
      const { code, stdout, stderr } = await stock(...args);
      expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
      return stderr;
    },
    /** Reads the stock as lines of CSV. */
    lines: async () => {
      const { store, close } = openStock(url());
      let lines = "";
      for await (const page of pagesOf(store, 1_000)) {
        lines += page.map(({ petId, quantity, status }) => `${petId},${quantity},${status}\n`).join("");
      }
      await close();
      return lines;
    },
  };
}
type Folder = Awaited<ReturnType<typeof inFolder>>;

const imported = (count: number) => `${count} ${count === 1 ? "entry" : "entries"} imported\n`;
const statuses = ["available", "pending", "sold"];
/** Makes the fields of entries in the order of petId, from the lowest int64 to the highest. */
function entries(count: number): [bigint, number, string][] {
  return Array.from({ length: count }, (_, i) => {
    const petId = i === 0 ? -(2n ** 63n) : i === count - 1 ? 2n ** 63n - 1n : BigInt(i - count / 2) * 1_234_567_890n;
    return [petId, i === 1 ? 2_147_483_647 : (i * 7) % 1_000, statuses[i % 3]!];
  });
}
const csvOf = (rows: [bigint, number, string][]) => header + rows.map((row) => `${row.join(",")}\n`).join("");

describeEachDatabase("npm run stock", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let folder: Folder;
  const count = 30_000; // many batches, and an export that lasts long enough to be killed
  const whole = csvOf(entries(count));
  beforeAll(async () => {
    folder = await inFolder(stack, url);
  });

  test("a CSV of many batches comes out as it went in, byte for byte", async () => {
    await folder.write("in.csv", whole);
    expect(await folder.run("import", "in.csv")).toBe(`${count} entries imported\n`);
    expect(await folder.run("export", "out.csv")).toBe(`${count} entries exported\n`);
    expect((await folder.read("out.csv")) === whole).toBe(true); // toBe(whole) would print both files
    expect(await folder.files()).toEqual(["in.csv", "out.csv"]);
  });

  test("an exported file gets its name only when it is complete", async () => {
    const lengths = new Set<number>();
    const watcher = watch(folder.cwd, async (_event, name) => {
      if (name === "watched.csv") lengths.add((await folder.read(name).catch(() => "")).length);
    });
    await folder.run("export", "watched.csv");
    await until(async () => lengths.size > 0); // the watcher may notice, and read, later than the command ends
    watcher.close();
    expect([...lengths]).toEqual([whole.length]);
  });

  test("an export that is killed leaves the earlier file as it was", async () => {
    await folder.write("kept.csv", "earlier");
    const exporting = await startScript({
      name: "export",
      script,
      args: ["export", "kept.csv"],
      cwd: folder.cwd,
      env: folder.env(),
    });
    await new Promise<void>((resolve) => {
      const watcher = watch(folder.cwd, (_event, name) => {
        if (!name?.startsWith("kept.csv.")) return;
        watcher.close();
        resolve();
      });
    });
    await exporting.kill("SIGKILL");
    expect([7, whole.length]).toContain((await folder.read("kept.csv")).length);
  });

  test("an import changes the entries of the file and no others", async () => {
    await folder.write("part.csv", `${header}0,77,sold\n5,1,pending\n`);
    await folder.run("import", "part.csv");
    const lines = (await folder.lines()).split("\n");
    expect(lines).toHaveLength(count + 2);
    expect(lines).toEqual(expect.arrayContaining(["0,77,sold", "5,1,pending"]));
  });

  test("NDJSON comes out as it went in, byte for byte, and describes the same stock as CSV", async () => {
    await emptyStock(url());
    const rows = entries(3_000);
    const text = rows.map(([id, n, status]) => `{"petId":${id},"quantity":${n},"status":"${status}"}\n`).join("");
    await folder.write("in.ndjson", text);
    expect(await folder.run("import", "in.ndjson")).toBe("3000 entries imported\n");
    await folder.run("export", "out.ndjson");
    expect((await folder.read("out.ndjson")) === text).toBe(true);
    expect((await folder.stock("export", "--format", "ndjson")).stdout === text).toBe(true);
    expect((await folder.stock("export")).stdout === csvOf(rows)).toBe(true);
  });

  test("an import of the same file again gives no entry a new revision", async () => {
    const { store, close } = openStock(url());
    const before = await store.position();
    await folder.run("import", "in.ndjson");
    expect(await store.position()).toEqual(before);
    await close();
  });
});

async function emptyStock(url: string): Promise<void> {
  const { db, close } = openStock(url);
  await db("stock").delete();
  await close();
}

describe("import files of npm run stock", () => {
  const stack = suiteStack();
  let folder: Folder;
  let url: string;
  beforeAll(async () => {
    url = await createSqliteDatabase();
    stack.defer(() => dropDatabase(url));
    folder = await inFolder(stack, () => url);
    await folder.run("import", "--generate", "1"); // makes the schema
  });
  beforeEach(() => emptyStock(url));

  test.each<[string, string, string | Buffer, string]>([
    ["a byte order mark", "a.csv", `\ufeff${header}1,5,sold\n`, "1,5,sold\n"],
    ["CRLF", "a.csv", "petId,quantity,status\r\n1,5,sold\r\n2,6,pending\r\n", "1,5,sold\n2,6,pending\n"],
    [
      "lines that end in different ways",
      "a.csv",
      `${header}1,5,sold\r\n2,6,sold\n3,7,sold`,
      "1,5,sold\n2,6,sold\n3,7,sold\n",
    ],
    ["quoted fields", "a.csv", `"petId","quantity",status\n"1","5","sold"\n2,"6",sold\n`, "1,5,sold\n2,6,sold\n"],
    ["columns in another order", "a.csv", "status,petId,quantity\nsold,1,5\n", "1,5,sold\n"],
    ["empty lines", "a.csv", `\n${header}\n1,5,sold\n\n\n2,6,sold\n\n`, "1,5,sold\n2,6,sold\n"],
    ["only a header", "a.csv", header, ""],
    ["an upper-case name", "A.CSV", `${header}1,5,sold\n`, "1,5,sold\n"],
    ["a byte order mark before JSON", "a.ndjson", '\ufeff{"petId":1,"quantity":5,"status":"sold"}\r\n', "1,5,sold\n"],
    [
      "JSON with other members and strings",
      "a.jsonl",
      '{"x":[1],"status":"sold","quantity":"5","petId":"1"}',
      "1,5,sold\n",
    ],
    [
      "the extremes",
      "a.csv",
      `${header}-9223372036854775808,0,sold\n9223372036854775807,2147483647,sold\n`,
      "-9223372036854775808,0,sold\n9223372036854775807,2147483647,sold\n",
    ],
  ])("an import file may have %s", async (_what, name, content, expected) => {
    await folder.write(name, content);
    expect(await folder.run("import", name)).toBe(imported(expected.split("\n").length - 1));
    expect(await folder.lines()).toBe(expected);
  });

  const petId = "petId must be an int64";
  const quantity = "quantity must be an integer from 0 to 2147483647";
  const status = "status must be one of available, pending, sold";
  const quote = "has a misplaced quote";
  /** Lines of CSV, each with its fault; a good line has none. */
  const csvLines: [string, string?][] = [
    ["1,5,available"],
    ["x,1,sold", petId],
    [",1,sold", petId],
    ["1.0,1,sold", petId],
    ["007,1,sold", petId],
    ["+7,1,sold", petId],
    [" 7,1,sold", petId],
    ["9223372036854775808,1,sold", petId],
    ["-9223372036854775809,1,sold", petId],
    ["2,-1,sold", quantity],
    ["2,2147483648,sold", quantity],
    ["2,1.5,sold", quantity],
    ["2,,sold", quantity],
    ["2,1,gone", status],
    ["2,1,Sold", status],
    ["2,1,", status],
    ["2,1", status],
    ["2", `${quantity}; ${status}`],
    ["2,x,y", `${quantity}; ${status}`],
    ["2,1,sold,more", "has 4 fields instead of 3"],
    ["2,1,sold,", "has 4 fields instead of 3"],
    ['"2,1,sold', quote],
    ['2,"1"0,sold', quote],
    ['2,1,so"ld', quote],
    ["1,6,sold", "petId 1 is in line 2 already"],
    ["3,7,pending"],
    ["3,7,pending", "petId 3 is in line 27 already"],
    ["4,8,sold"],
  ];
  const csv = header + csvLines.map(([line]) => line).join("\n");
  const csvFaults = csvLines.flatMap(([, fault], i) => (fault ? [`bad.csv:${i + 2}: ${fault}`] : []));

  const firstFaults = [...csvFaults.slice(0, 20), `and ${csvFaults.length - 20} more bad lines`];

  test("a file with many bad lines is not imported, and the first 20 are printed by number", async () => {
    await folder.write("bad.csv", csv);
    const { code, stdout, stderr } = await folder.stock("import", "bad.csv");
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    const refusal = `${csvFaults.length} bad lines: nothing was imported. --skip-bad imports the good ones.`;
    expect(stderr.split("\n")).toEqual([...firstFaults, refusal, ""]);
    expect(await folder.lines()).toBe("");
  });

  test.each([
    ["first", 0, 15],
    ["last", 15, 24],
  ])(
    "a file with a few bad lines has each of them printed by number: the %s of all kinds",
    async (_which, from, to) => {
      const lines = csvLines.slice(from, to);
      await folder.write("bad.csv", header + lines.map(([line]) => line).join("\n"));
      const faults = lines.flatMap(([, fault], i) => (fault ? [`bad.csv:${i + 2}: ${fault}`] : []));
      const { stderr } = await folder.stock("import", "bad.csv");
      expect(stderr.split("\n").slice(0, -2)).toEqual(faults);
    },
  );

  test("an import file with one bad line has it counted as one", async () => {
    await folder.write("bad.csv", `${header}x,1,sold\n`);
    expect((await folder.stock("import", "bad.csv")).stderr).toContain("\n1 bad line: nothing was imported.");
  });

  test("a file with bad lines and --skip-bad gives its good lines, and the first one of each petId", async () => {
    await folder.write("bad.csv", csv);
    const said = await folder.run("import", "bad.csv", "--skip-bad");
    expect(said.split("\n")).toEqual([...firstFaults, "3 entries imported", ""]);
    expect(await folder.lines()).toBe("1,5,available\n3,7,pending\n4,8,sold\n");
  });

  test("an import file of NDJSON has every bad line printed with its number", async () => {
    const all = `${petId}; ${quantity}; ${status}`;
    const lines: [string, string?][] = [
      ['{"petId":1,"quantity":5,"status":"sold"}'],
      ["nope", "is not JSON"],
      ['{"petId":2,"quantity":5,"status":"sold"', "is not JSON"],
      ["null", all],
      ["5", all],
      ['["petId"]', all],
      ['{"petId":[2],"quantity":{},"status":["sold"]}', all],
      ['{"petId":9223372036854775808,"quantity":5,"status":"sold"}', petId],
      ['{"petId":2e3,"quantity":5,"status":"sold"}', petId],
      ['{"petId":2,"quantity":5.5,"status":"sold"}', quantity],
      ['{"petId":2,"quantity":null,"status":"sold"}', quantity],
      ['{"petId":2,"quantity":2147483648,"status":"sold"}', quantity],
      ['{"petId":2,"quantity":5}', status],
      ['{"petId":"1","quantity":5,"status":"sold"}', "petId 1 is in line 1 already"],
    ];
    await folder.write("bad.ndjson", lines.map(([line]) => line).join("\n"));
    const { code, stderr } = await folder.stock("import", "bad.ndjson");
    const faults = lines.flatMap(([, fault], i) => (fault ? [`bad.ndjson:${i + 1}: ${fault}`] : []));
    expect(stderr.split("\n").slice(0, -2)).toEqual(faults);
    expect(code).toBe(1);
    expect(await folder.lines()).toBe("");
  });

  const needsHeader = "a.csv:1: the first line must be the header petId,quantity,status";
  test.each([
    ["no header", "1,5,sold\n2,6,sold\n", needsHeader],
    ["a header without status", "petId,quantity\n1,5\n", needsHeader],
    ["a header in another alphabet", "PETID,QUANTITY,STATUS\n1,5,sold\n", needsHeader],
    ["semicolons", "petId;quantity;status\n1;5;sold\n", `${needsHeader}, with commas: here are semicolons`],
    ["tabs", "petId\tquantity\tstatus\n1\t5\tsold\n", `${needsHeader}, with commas: here are tabs`],
    ["nothing in it", "", needsHeader],
    ["UTF-16", Buffer.from(`\ufeff${header}1,5,sold\n`, "utf16le"), "a.csv: is UTF-16; save it as UTF-8"],
    ["UTF-16 without a mark", Buffer.from(`${header}1,5,sold\n`, "utf16le"), "a.csv: is UTF-16; save it as UTF-8"],
  ])("an import file with %s is refused by its first line, with --skip-bad too", async (_what, content, said) => {
    await folder.write("a.csv", content);
    for (const args of [[], ["--skip-bad"]]) {
      expect(await folder.stock("import", "a.csv", ...args)).toEqual({ code: 1, stdout: "", stderr: `${said}\n` });
    }
    expect(await folder.lines()).toBe("");
  });

  test.each([
    ["a missing file", 1, ["import", "none.csv"], /^none\.csv: there is no such file\n$/],
    ["a missing NDJSON file", 1, ["import", "none.ndjson"], /^none\.ndjson: there is no such file\n$/],
    ["a folder", 1, ["import", "folder.csv"], /^folder\.csv: is not a regular file; [^\n]*\n$/],
    [
      "a name of no known format",
      64,
      ["import", "a.txt"],
      /^error: a\.txt: the name does not tell the format: [^\n]*\n$/,
    ],
    ["no file", 64, ["import"], /^error: import takes a file, or --generate N\n$/],
    [
      "a file and a number",
      64,
      ["import", "a.csv", "--generate", "5"],
      /^error: import takes a file, or --generate N\n$/,
    ],
    ["a text in place of a number", 64, ["import", "--generate", "many"], /must be a whole number from 1 to 99999999/],
    ["an unknown format", 64, ["import", "a.csv", "--format", "xml"], /Allowed choices are csv, ndjson/],
    ["an export to a missing folder", 1, ["export", "none/a.csv"], /^ENOENT: [^\n]*\n$/],
    ["an export in place of a folder", 1, ["export", "folder.csv"], /^EISDIR: [^\n]*\n$/],
    [
      "an export whose name tells no format",
      64,
      ["export", "a.txt"],
      /^error: a\.txt: the name does not tell the format: [^\n]*\n$/,
    ],
    ["an unknown command", 64, ["delete"], /unknown command 'delete'/],
  ])(
    "a file or command that cannot be used gets a plain message: %s (exit code %i)",
    async (_what, exitCode, args, said) => {
      await mkdir(join(folder.cwd, "folder.csv"), { recursive: true });
      const { code, stdout, stderr } = await folder.stock(...args);
      expect(stderr).toMatch(said);
      expect({ code, stdout }).toEqual({ code: exitCode, stdout: "" });
      expect((await folder.files()).filter((name) => name.endsWith(".part"))).toEqual([]);
    },
  );

  /** Pipes a text into an import from this file. */
  const pipe = (text: string, ...args: string[]) => {
    const program = [process.execPath, join(import.meta.dirname, "../..", script)];
    const shell = ["-c", `printf "$0" | "$@"`, text, ...program, "import", ...args];
    return promisify(execFile)("sh", shell, { cwd: folder.cwd, env: { PATH: process.env.PATH, ...folder.env() } });
  };

  test("an import takes standard input, and names its bad lines", async () => {
    expect(await pipe("petId,quantity,status\\n1,5,sold\\n", "-")).toEqual({ stdout: "", stderr: imported(1) });
    await expect(pipe("petId,quantity,status\\n1,x,sold\\n", "-")).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^standard input:2: [^\n]+\n1 bad line: nothing was imported\. [^\n]+\n$/),
    });
    expect(await folder.lines()).toBe("1,5,sold\n");
  });

  test("an import file that is a pipe is refused, because it cannot be read twice", async () => {
    await expect(pipe("petId,quantity,status\\n1,5,sold\\n", "/dev/stdin", "--format", "csv")).rejects.toMatchObject({
      code: 1,
      stdout: "",
      stderr: "/dev/stdin: is not a regular file; an import takes a pipe as standard input, with - as the file\n",
    });
    expect(await folder.lines()).toBe("");
  });

  test("--dry-run says what an import would do, and does nothing", async () => {
    await folder.write("dry.csv", `${header}1,5,sold\n2,6,sold\n2,x,sold\n`);
    expect(await folder.run("import", "dry.csv", "--dry-run", "--skip-bad")).toMatch(/^2 entries would be imported$/m);
    expect(await folder.stock("import", "dry.csv", "--dry-run")).toMatchObject({ code: 1 });
    expect(await folder.lines()).toBe("");
  });

  test("an import file can have any name when --format gives its format", async () => {
    await folder.write("data", `${header}1,5,sold\n`);
    await folder.run("import", "data", "--format", "csv");
    await folder.run("export", "copy", "--format", "csv");
    expect(await folder.read("copy")).toBe(`${header}1,5,sold\n`);
  });

  test("--generate N stands in for a file, and makes petId 1 to N, the same every time", async () => {
    expect(await folder.run("import", "--generate", "1500")).toBe("1500 entries imported\n");
    const first = await folder.lines();
    expect(first.split("\n").map((line) => Number(line.split(",")[0]))).toEqual([
      ...Array(1_500)
        .keys()
        .map((i) => i + 1),
      0,
    ]);
    expect(new Set(first.match(/available|pending|sold/g))).toEqual(new Set(statuses));
    await emptyStock(url);
    await folder.run("import", "--generate", "1500");
    expect(await folder.lines()).toBe(first);
  });

  test("an export is written without an error when its reader leaves before the end", async () => {
    await folder.run("import", "--generate", "20000");
    const args = [
      "-c",
      `set -o pipefail; "$0" "$1" export 2>said | head -n 1`,
      process.execPath,
      join(import.meta.dirname, "../..", script),
    ];
    const env = { PATH: process.env.PATH, ...folder.env() };
    expect((await promisify(execFile)("bash", args, { cwd: folder.cwd, env })).stdout).toBe(header);
    expect(await folder.read("said")).toBe("");
  });
});

describe("a move to a new stock by an export and an import", () => {
  const stack = suiteStack();

  /** Makes an empty stock. */
  async function newStock() {
    const url = await createSqliteDatabase();
    stack.defer(() => dropDatabase(url));
    await migrateStock(url);
    const { store, close } = openStock(url);
    stack.defer(close);
    return { store, folder: await inFolder(stack, () => url) };
  }

  test("gives no entry a revision that another state had before it", async () => {
    let old = await newStock();
    await old.folder.run("import", "--generate", "5");
    for (let move = 0; move < 2; move++) {
      const { revision: seen } = await old.store.position();
      const moved = await newStock();
      await moved.folder.write("moved.csv", (await old.folder.stock("export")).stdout);
      await moved.folder.run("import", "moved.csv");
      for await (const page of pagesOf(moved.store, 10)) {
        for (const entry of page) expect(entry.revision).toBeGreaterThan(seen);
      }
      old = moved;
    }
  });

  test("begins an epoch at the first import only, so that readers need not list the stock again", async () => {
    const { store, folder } = await newStock();
    await folder.run("import", "--generate", "5");
    const { epoch, revision } = await store.position();
    await folder.write("later.csv", `${header}1,77,sold\n`);
    await folder.run("import", "later.csv");
    expect(await store.position()).toEqual({ epoch, revision: revision + 1n });
  });
});

describe("settings of npm run stock", () => {
  const run = (url: string) => runScript({ script, args: ["export"], env: { INVENTORY_DATABASE_URL: url } });

  test("npm run stock names a bad URL without its content, with exit code 78", async () => {
    const { code, stderr } = await run("mysql://pets:s3cret@127.0.0.1");
    expect(code).toBe(78);
    expect(stderr).toMatch(/^The configuration has a fault:\n {2}INVENTORY_DATABASE_URL: must be [^\n]*\n$/);
    expect(stderr).not.toContain("s3cret");
  });

  test("npm run stock gives exit code 1 for a missing database, without its password", async () => {
    const { code, stdout, stderr } = await run(`mysql://pets:s3cret@127.0.0.1:${await freePort()}/stock`);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(
      /^INVENTORY_DATABASE_URL \(inventory-svc\): no server answers \([^\n]*ECONNREFUSED[^\n]*\n$/,
    );
    expect(stderr).not.toContain("s3cret");
  });

  test("npm run stock lists its settings with --help, and its commands", async () => {
    const { code, stdout } = await runScript({ script, args: ["--help"] });
    expect(code).toBe(0);
    expect(stdout).toMatch(/import[\s\S]*export[\s\S]*INVENTORY_DATABASE_URL/);
  });
});
