import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fetch } from "undici";
import { errorTable } from "../../gateway/http/api-error.ts";
import { freePort } from "../support/ports.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import {
  type ComposeProject,
  type Container,
  documentedCommands,
  serviceOf,
  startComposeProject,
} from "./compose-project.ts";
import { startLoad } from "./load-program.ts";
import { imageName, projectRoot } from "./product-images.ts";

/** `npm run test:containers` runs what takes minutes. */
const longTest = process.env.FAULTS === "long" ? test : test.skip;
/** Long enough for images that are made first. */
const startMs = 3_600_000;
/** Services whose root directory is read-only. The servers write in theirs. */
const confined = ["load-balancer", "gateway", "inventory-svc", "migrate"];

describe("deploy/compose", () => {
  const stack = suiteStack();
  let project: ComposeProject;
  let key: string;

  beforeAll(async () => {
    project = await startComposeProject(stack);
    key = /ps_live_\S+/.exec(project.started)![0];
    await until(async () => (await read()).status === 200, { withinMs: 60_000, everyMs: 250 });
  }, startMs);

  const read = (bearer = key) => project.ask("/v1/inventory", { headers: { authorization: `Bearer ${bearer}` } });
  const patch = (petId: number, quantity: number) =>
    project.ask(`/v1/inventory/${petId}`, {
      method: "PATCH",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ quantity }),
    });
  const sql = (text: string) =>
    project.shell(
      `docker compose exec -T mysql sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD mysql --user=root --batch --skip-column-names' <<'SQL'\n${text}\nSQL`,
    );
  const running = async (service?: string) =>
    (await project.containers(service)).filter(({ State }) => State.Status === "running");
  const inContainer = ({ Id }: Container, ...command: string[]) => project.engine.tryDocker(["exec", Id, ...command]);

  test("runs both tiers twice and everything else once, after a migration", async () => {
    const all = await project.containers();
    const states = all.map((container) => `${serviceOf(container)} ${container.State.Status}`).sort();
    expect(states).toEqual([
      "gateway running",
      "gateway running",
      "grafana running",
      "inventory-svc running",
      "inventory-svc running",
      "load-balancer running",
      "migrate exited",
      "mysql running",
      "prometheus running",
      "valkey running",
    ]);
  });

  test("answers a list, an update and both passed-through routes over TLS, with limit headers", async () => {
    const updated = await patch(2, 77);
    expect({ status: updated.status, body: await updated.json() }).toMatchObject({
      status: 200,
      body: { petId: 2, quantity: 77 },
    });
    // Often enough for both gateways.
    for (let i = 0; i < 6; i++) {
      const list = await read();
      expect(list.status).toBe(200);
      expect(list.headers.get("x-ratelimit-limit")).toBe("1000000");
      expect(await list.json()).toContainEqual({ petId: 2, quantity: 77, status: "sold" });
    }
    const headers = { authorization: `Bearer ${key}` };
    const pet = await project.ask("/v1/pets/1", { headers });
    expect({ status: pet.status, body: await pet.json() }).toMatchObject({ status: 200, body: { id: 1 } });
    expect(pet.headers.get("deprecation")).not.toBeNull();
    const orders = await project.ask("/v1/store/orders", { headers });
    expect({ status: orders.status, isList: Array.isArray(await orders.json()) }).toEqual({
      status: 200,
      isList: true,
    });
  });

  test("limits both gateways together, and ignores an address that the caller made up", async () => {
    const left: number[] = [];
    for (const address of ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]) {
      left.push(Number((await read()).headers.get("x-ratelimit-remaining")));
      const refused = await project.ask("/v1/inventory", { headers: { "x-forwarded-for": address } });
      expect(refused.status).toBe(401);
    }
    expect(left).toEqual(left.map((_, index) => left[0]! - index));
  });

  test("opens the load balancer to all, and Prometheus and Grafana to this machine alone", async () => {
    const open = (await project.containers()).flatMap((container) =>
      Object.entries(container.HostConfig.PortBindings ?? {}).flatMap(([port, bindings]) =>
        (bindings ?? []).map(
          ({ HostIp, HostPort }) => `${serviceOf(container)} ${port} ${HostIp || "0.0.0.0"}:${HostPort}`,
        ),
      ),
    );
    const { https, prometheus, grafana } = project.ports;
    expect(open.sort()).toEqual([
      `grafana 3000/tcp 127.0.0.1:${grafana}`,
      `load-balancer 8443/tcp 0.0.0.0:${https}`,
      `prometheus 9090/tcp 127.0.0.1:${prometheus}`,
    ]);
  });

  test("closes the networks: the inventory has no way out, the load balancer none to the database", async () => {
    const reaches = async (container: Container, host: string, port: number) => {
      const script = `require("node:net").connect(${port}, "${host}")
        .on("connect", () => process.exit(0)).on("error", () => process.exit(1)).setTimeout(3000, () => process.exit(2))`;
      return (await inContainer(container, "node", "-e", script)).code === 0;
    };
    const [gateway] = await running("gateway");
    const [inventory] = await running("inventory-svc");
    const upstream = new URL((await environmentOf(gateway!)).PETS_UPSTREAM_URL!);
    const [balancer] = await running("load-balancer");
    expect(await reaches(gateway!, upstream.hostname, Number(upstream.port))).toBe(true);
    expect(await reaches(inventory!, upstream.hostname, Number(upstream.port))).toBe(false);
    expect(await reaches(inventory!, "mysql", 3306)).toBe(true);
    expect(await inContainer(balancer!, "getent", "hosts", "gateway")).toMatchObject({ code: 0 });
    for (const hidden of ["mysql", "valkey", "inventory-svc", "prometheus"]) {
      expect({ hidden, ...(await inContainer(balancer!, "getent", "hosts", hidden)) }).toMatchObject({
        hidden,
        code: 2,
      });
    }
  });

  test("gives no process a capability or a way to more rights, and the product no file to write", async () => {
    for (const container of await running()) {
      const service = serviceOf(container);
      const status = await readFile(`/proc/${container.State.Pid}/status`, "utf8");
      const [uid, effective, noNewPrivileges] = ["Uid", "CapEff", "NoNewPrivs"].map(
        (name) => new RegExp(`^${name}:\\s+(\\S+)`, "m").exec(status)![1],
      );
      expect({ service, isRoot: uid === "0", effective, noNewPrivileges }).toEqual({
        service,
        isRoot: false,
        effective: "0000000000000000",
        noNewPrivileges: "1",
      });
      if (!confined.includes(service)) continue;
      // Podman's API mounts a /tmp in memory.
      const places = `/x /app/x /home/node/x /etc/x ${project.engine.isDocker ? "/tmp/x /var/tmp/x" : ""}`;
      const touch = `for f in ${places}; do touch $f 2>/dev/null && echo $f; done; true`;
      expect({ service, ...(await inContainer(container, "sh", "-c", touch)) }).toMatchObject({ service, stdout: "" });
    }
  });

  test("gives the accounts of the database the documented grants and no others", async () => {
    const script = await readFile(join(projectRoot, "deploy/compose/accounts.sh"), "utf8");
    const given = [...script.matchAll(/^GRANT .*;$/gm)].map(([line]) => line);
    const tables = await sql(
      "SELECT CONCAT_WS(' ', User, Db, Table_name, Table_priv) FROM mysql.tables_priv WHERE Db LIKE 'petstore%'",
    );
    const expected = given.flatMap((line) => {
      const [, rights, database, table, user] = /^GRANT (.*) ON (\w+)\.(\w+) TO '(\w+)'/.exec(line) ?? [];
      return rights ? [`${user} ${database} ${table} ${rights}`] : [];
    });
    const sorted = (lines: string[]) => lines.map((line) => line.toLowerCase().replace(/, ?/g, ",")).sort();
    expect(sorted(tables.trim().split("\n"))).toEqual(sorted(expected));
    const whole = await sql("SELECT CONCAT_WS(' ', User, Db) FROM mysql.db WHERE Db LIKE 'petstore%'");
    expect(whole.trim().split("\n").sort()).toEqual(["petstore_owner petstore_keys", "petstore_owner petstore_stock"]);
  });

  test("lets its service keys list, change and revoke a key", async () => {
    const issued = await issueKey();
    expect((await read(issued.key)).status).toBe(200);
    await project.shell(`docker compose run --rm keys revoke ${issued.keyId}`);
    await until(async () => (await read(issued.key)).status === 401, { withinMs: 15_000, everyMs: 250 });
  });

  longTest(
    "restores a backup as documented, and loses what came after it but no revocation",
    async () => {
      const [backUp, restore, start] = await documentedCommands("Backup and restore");
      const leaked = await issueKey();
      expect((await patch(3, 30)).status).toBe(200);
      await project.shell(backUp!);
      expect((await patch(3, 31)).status).toBe(200);
      // As a migration does that comes after the backup.
      await sql("CREATE TABLE petstore_keys.newer (id INT); CREATE TABLE petstore_stock.newer (id INT)");
      await project.shell(`docker compose run --rm keys revoke ${leaked.keyId}`);
      await until(async () => (await read(leaked.key)).status === 401, { withinMs: 15_000, everyMs: 250 });
      const before = (await read()).headers.get("etag")!;
      const misuses = new Set<number>();
      const isUp = new AbortController();
      const misuse = async () => {
        misuses.add((await read(leaked.key)).status);
        return isUp.signal.aborted;
      };
      // Slower than the limit for requests without a valid key.
      const misused = until(misuse, { withinMs: 150_000, everyMs: 1_500 });
      await using caller = new AsyncDisposableStack();
      caller.defer(() => {
        isUp.abort();
        return misused;
      });

      await project.shell(restore!);
      expect(await running("gateway")).toHaveLength(0);
      expect(await sql("SELECT table_schema FROM information_schema.tables WHERE table_name = 'newer'")).toBe("");
      await project.shell(start!);
      // Each gateway finds the services by itself.
      const reads = () => Promise.all(Array.from({ length: 4 }, () => read()));
      const areRead = async () => (await reads()).every(({ status }) => status === 200);
      await until(areRead, { withinMs: 60_000, everyMs: 250 });
      await caller.disposeAsync();
      expect([...misuses].sort()).toEqual([401, 503]);
      for (const list of await reads()) {
        expect(await list.json()).toContainEqual(expect.objectContaining({ petId: 3, quantity: 30 }));
        expect(list.headers.get("etag")).not.toBe(before);
      }
    },
    180_000,
  );

  longTest(
    "updates one tier at a time without an answer that differs",
    async () => {
      const old = [...(await running("gateway")), ...(await running("inventory-svc"))].map(({ Id }) => Id);
      await using load = startLoad(project, key, [5, 8, 13, 1001]);
      await load.answered();
      await project.shell("./update.sh");
      await load.answered();
      await load.stop();
      const all = { 200: expect.any(Number) };
      expect({ reads: load.reads, updates: load.updates }).toEqual({ reads: all, updates: all });
      const now = [...(await running("gateway")), ...(await running("inventory-svc"))].map(({ Id }) => Id);
      expect(now).toHaveLength(4);
      expect(now.filter((id) => old.includes(id))).toEqual([]);
    },
    300_000,
  );

  longTest.each(["gateway", "inventory-svc", "valkey", "prometheus", "mysql", "load-balancer"])(
    "comes back after kill -9 of %s under load with every acknowledged update",
    async (service) => {
      await using load = startLoad(project, key, [5, 8, 13, 1001]);
      await load.answered();
      const [victim] = await running(service);
      process.kill(victim!.State.Pid, "SIGKILL");
      await until(
        async () => {
          const again = (await running(service)).find(({ Id }) => Id === victim!.Id);
          return again !== undefined && again.State.Pid !== victim!.State.Pid;
        },
        { withinMs: 60_000, everyMs: 100 },
      );
      await load.answered();
      await load.stop();
      console.info(service, JSON.stringify({ reads: load.reads, updates: load.updates }));
      if (service === "load-balancer") return; // connections break, and none are taken until it is back
      const allowed: Readonly<Record<string, readonly string[]>> = {
        gateway: ["200", "502 of the load balancer", "UND_ERR_SOCKET"],
        "inventory-svc": ["200", "503"],
        mysql: ["200", "503", "504"],
      };
      const { [service]: forUpdates = ["200"] } = allowed;
      expect(Object.keys(load.updates).filter((outcome) => !forUpdates.includes(outcome))).toEqual([]);
      const forReads = service === "mysql" ? ["200", "503", "504"] : ["200"];
      expect(Object.keys(load.reads).filter((outcome) => !forReads.includes(outcome))).toEqual([]);
    },
    180_000,
  );

  longTest(
    "answers in the API's form while there is no gateway",
    async () => {
      await project.shell("docker compose stop gateway");
      await until(async () => (await read()).status === 503, { withinMs: 30_000, everyMs: 250 });
      const none = await read();
      const { message, status } = errorTable.service_unavailable;
      expect({ retryAfter: none.headers.get("retry-after"), body: await none.json() }).toEqual({
        retryAfter: "1",
        body: { code: "service_unavailable", message, status },
      });
      await project.shell("docker compose ps --all --quiet gateway | xargs docker start");
      await until(async () => (await read()).status === 200, { withinMs: 60_000, everyMs: 250 });
    },
    180_000,
  );

  longTest(
    "never sends a PATCH twice that a gateway lost",
    async () => {
      await project.shell("docker compose stop gateway");
      const name = "petstore-tests-lossy";
      const run = [
        "run",
        "--detach",
        "--rm",
        `--name=${name}`,
        "--network=petstore-tests_public",
        "--network-alias=gateway",
      ];
      await project.engine.docker([...run, "--entrypoint=node", imageName("gateway"), "-e", lossyGateway]);
      const requests = async () => Number(await (await project.ask("/count")).text());
      await until(async () => (await project.ask("/count")).ok, { withinMs: 30_000, everyMs: 250 });
      const lost = await project.ask("/v1/inventory/2", {
        method: "PATCH",
        body: "{}",
        dispatcher: project.newAgent(),
      });
      expect({ status: lost.status, body: await lost.json() }).toMatchObject({
        status: 502,
        body: { code: "upstream_unavailable", status: 502 },
      });
      expect(await requests()).toBe(1);
      // HAProxy closes a reused connection without an answer. With HTTP/2 it would mark the request as safe to retry,
      // and this client, which knows HTTP/2, would send it again.
      const dispatcher = project.newAgent();
      await project.ask("/count", { dispatcher }).then((response) => response.text());
      const outcome = await project.ask("/v1/inventory/2", { method: "PATCH", body: "{}", dispatcher }).then(
        ({ status }) => status,
        ({ cause }) => cause.code,
      );
      expect([502, "UND_ERR_SOCKET"]).toContain(outcome);
      expect(await requests()).toBe(2);
      await project.engine.docker(["rm", "--force", name]);
      await project.shell("docker compose ps --all --quiet gateway | xargs docker start");
      await until(async () => (await read()).status === 200, { withinMs: 60_000, everyMs: 250 });
    },
    180_000,
  );

  longTest(
    "runs staging beside production, and each refuses the keys of the other",
    async () => {
      const ports = { HTTPS_PORT: await freePort(), PROMETHEUS_PORT: await freePort(), GRAFANA_PORT: await freePort() };
      const chosen = Object.entries(ports).map(([name, port]) => `s/^${name}=.*/${name}=${port}/`);
      const staging = "export COMPOSE_ENV_FILES=staging.env,secrets.env";
      await using started = new AsyncDisposableStack();
      started.defer(async () => void (await project.shell(`${staging}\ndocker compose down --volumes --timeout 5`)));
      const issued = await project.shell(`
        cp --preserve tls.pem tls-staging.pem
        sed --in-place '${chosen.join("; ")}' staging.env
        ${staging}
        docker compose up --detach --wait
        docker compose run --rm keys issue --account acme`);
      const stagingKey = /ps_staging_\S+/.exec(issued)![0];
      const dispatcher = project.newAgent();
      const statusOf = async (port: number, bearer: string) => {
        const headers = { authorization: `Bearer ${bearer}` };
        return (await fetch(`https://localhost:${port}/v1/inventory`, { dispatcher, headers })).status;
      };
      await until(async () => (await statusOf(ports.HTTPS_PORT, stagingKey)) === 200, {
        withinMs: 60_000,
        everyMs: 250,
      });
      expect(await statusOf(ports.HTTPS_PORT, key)).toBe(401);
      expect(await statusOf(project.ports.https, stagingKey)).toBe(401);
      expect(await statusOf(project.ports.https, key)).toBe(200);
    },
    300_000,
  );

  test("gives Prometheus all replicas of both tiers", async () => {
    // What "up" says about addresses that are gone stays for minutes when Prometheus itself has crashed meanwhile.
    const targets = async () => {
      const answer = await fetch(`http://127.0.0.1:${project.ports.prometheus}/api/v1/targets?state=active`);
      const { data } = (await answer.json()) as {
        data: { activeTargets: { labels: { job: string; instance: string }; health: string }[] };
      };
      return data.activeTargets.map(({ labels, health }) => `${labels.job} ${labels.instance} ${health}`).sort();
    };
    let seen: string[] = [];
    const areThere = async () => {
      seen = await targets();
      return /^(gateway \S+ up,){2}(inventory-svc \S+ up,?){2}$/.test(seen.join());
    };
    await until(areThere, { withinMs: 120_000, everyMs: 1_000 }).catch((error) => {
      throw new Error(`Prometheus has ${seen.join(", ")}`, { cause: error });
    });
  }, 180_000);

  test("writes no secret into a log", async () => {
    const logs = await project.shell("docker compose logs --no-color 2>&1");
    expect(logs).toContain('"msg":"ready"');
    const found = Object.entries({ ...project.secrets, key }).filter(([, secret]) => logs.includes(secret));
    expect(found.map(([name]) => name)).toEqual([]);
  });

  async function issueKey(): Promise<{ readonly key: string; readonly keyId: string }> {
    return JSON.parse(await project.shell("docker compose run --rm keys issue --account other --json"));
  }

  async function environmentOf({ Id }: Container): Promise<Record<string, string>> {
    const text = await project.engine.docker(["container", "inspect", "--format={{json .Config.Env}}", Id]);
    return Object.fromEntries((JSON.parse(text) as string[]).map((line) => line.split(/=(.*)/s) as [string, string]));
  }
});

/** Closes the connection of every request but GET, and counts them. */
const lossyGateway = `
  const { createServer } = require("node:http");
  let requests = 0;
  createServer((request, response) => {
    if (request.method === "GET") return void response.end(String(requests));
    requests += 1;
    request.socket.destroy();
  }).listen(8080);
  createServer((_request, response) => void response.end("ready")).listen(8081);
`;
