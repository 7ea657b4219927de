// Shows the account of the key that the visitor gives. The key is kept in sessionStorage alone, and goes only to the
// API beside the page, as a bearer token.

const storedAs = "petstore-inventory-key";
const limitsEveryMs = 10_000;
const usageEveryMs = 60_000;
const element = (id) => document.getElementById(id);
const dateTime = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const day = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });
const number = new Intl.NumberFormat("en-US");

let key = sessionStorage.getItem(storedAs);
let limits;
let usage;
let usageAtMs;
let serverAheadMs = 0;
let plot;
let timer;

element("open").addEventListener("submit", (event) => {
  event.preventDefault();
  take();
});
element("key").addEventListener("paste", () => setTimeout(take)); // when the field has the text
element("forget").addEventListener("click", () => forget("The key is forgotten."));
document.addEventListener("visibilitychange", () => void refresh());
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
setInterval(countDown, 500);
if (key) void openAccount(false);

function take() {
  const given = element("key").value.replace(/^\s*(bearer +)?|\s+$/gi, "");
  element("key").value = "";
  if (given === "") return;
  if (/[^!-~]/.test(given)) return say("This is no API key.");
  key = given;
  sessionStorage.setItem(storedAs, key);
  void openAccount(true);
}

/** Shows the account of a new key. @param isAsked whether the visitor has just given it and waits for the numbers */
async function openAccount(isAsked) {
  limits = usage = usageAtMs = undefined;
  element("account").hidden = true;
  say("Loading");
  await refresh();
  if (isAsked && limits) element("limits").focus();
}

function forget(why) {
  clearTimeout(timer);
  sessionStorage.removeItem(storedAs);
  key = limits = usage = undefined;
  element("account").hidden = true;
  element("open").hidden = false;
  for (const id of ["new-key", "key-id"]) if (element(id)) element(id).textContent = "";
  say(why);
  element("key").focus();
}

async function refresh() {
  clearTimeout(timer);
  if (!key || document.hidden) return;
  const asked = key;
  const isUsageDue = usageAtMs === undefined || Date.now() - usageAtMs >= usageEveryMs;
  try {
    const later = isUsageDue ? ask("/usage?hours=168") : undefined;
    later?.catch(() => {});
    const told = await ask("/rate_limit");
    if (key !== asked) return;
    limits = told;
    showLimits();
    if (later) {
      const toldUsage = await later;
      if (key !== asked) return;
      usage = toldUsage;
      usageAtMs = Date.now();
      showUsage();
    }
    say("");
  } catch (error) {
    if (key !== asked) return;
    if (error.status === 401) return forget(error.message);
    say(error.message);
  }
  timer = setTimeout(refresh, untilRefreshMs());
}

/** @throws Error with a text for the visitor, and with the status of the answer where there is one */
async function ask(path, { method = "GET", body } = {}) {
  const headers = { Authorization: `Bearer ${key}` };
  if (body) headers["Content-Type"] = "application/json";
  const address = new URL(`../v1${path}`, document.baseURI);
  const options = { method, body, headers, cache: "no-store", credentials: "omit", redirect: "error" };
  const response = await fetch(address, options).catch(() => {
    throw new Error("The API does not answer.");
  });
  const answer = await response.json().catch(() => ({}));
  const date = Date.parse(response.headers.get("date"));
  if (date) serverAheadMs = date + 500 - Date.now(); // the header has whole seconds
  if (response.ok) return answer;
  throw Object.assign(new Error(answer.message ?? `Status ${response.status}`), { status: response.status });
}

function showLimits() {
  element("open").hidden = true;
  element("account").hidden = false;
  element("plan").textContent = limits.plan;
  for (const { name, limit, used, remaining } of limits.windows) {
    const shown = document.querySelector(`[data-window=${name}]`);
    if (!shown) continue;
    Object.assign(shown.querySelector("meter"), { max: limit, high: limit * 0.8, optimum: 0, value: used });
    const text = `${number.format(used)} of ${number.format(limit)} used, ${number.format(remaining)} left.`;
    shown.querySelector(".used").textContent = text;
  }
  const { id, scopes, expiresAt } = limits.key;
  element("key-id").textContent = id;
  element("key-scopes").textContent = scopes.join(", ");
  element("key-end").textContent = expiresAt ? dateTime.format(new Date(expiresAt)) : "none";
  if (element("rotation")) element("rotation").hidden = !scopes.includes("keys:rotate");
  const { ban } = limits;
  element("ban").hidden = !ban;
  const banned = ban ? `This key is banned until ${dateTime.format(new Date(ban.until))}.` : "";
  if (element("ban").textContent !== banned) element("ban").textContent = banned;
  countDown();
}

/** Shows the time until each window ends. */
function countDown() {
  for (const window of limits?.windows ?? []) {
    const shown = document.querySelector(`[data-window=${window.name}] .countdown`);
    if (!shown) continue;
    shown.textContent = `Begins again in ${duration(leftMs(window))}.`;
  }
}

function leftMs({ resetAt }) {
  return Date.parse(resetAt) - Date.now() - serverAheadMs;
}

/** Time until the limits are asked for again: soon after the end of a window, else now and then. */
function untilRefreshMs() {
  const ends = (limits?.windows ?? []).map((window) => leftMs(window) + 1_000);
  return Math.max(1_000, Math.min(limitsEveryMs, ...ends));
}

function duration(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function showUsage() {
  element("deprecated").textContent = number.format(usage.deprecated);
  const days = new Map();
  for (const { at, served, refused } of usage.steps) {
    const name = day.format(new Date(at));
    const sum = days.get(name) ?? { served: 0, refused: 0 };
    days.set(name, { served: sum.served + served, refused: sum.refused + refused });
  }
  const rows = [...days].map(([name, { served, refused }]) => {
    const row = document.createElement("tr");
    const title = Object.assign(document.createElement("th"), { scope: "row", textContent: name });
    const cell = (count) => Object.assign(document.createElement("td"), { textContent: number.format(count) });
    row.append(title, cell(served), cell(refused));
    return row;
  });
  element("days").replaceChildren(...rows);
  draw();
}

function draw() {
  if (!usage) return;
  const colours = getComputedStyle(document.documentElement);
  const [text, line, served, refused] = ["--text", "--line", "--link", "--warn-text"].map((name) =>
    colours.getPropertyValue(name),
  );
  const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const days = (_plot, times) => times.map((time) => day.format(new Date(time * 1_000)));
  const steps = uPlot.paths.stepped({ align: 1 });
  plot?.destroy();
  plot = new uPlot(
    {
      width: element("plot").clientWidth,
      height: 220,
      padding: [null, 45, null, null], // room for the half of the last day's name
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_plot, _min, max) => [0, Math.max(4, max * 1.1)] } },
      axes: [
        { ...axis, incrs: [1, 2, 3, 4, 7].map((count) => count * 86_400), space: 90, values: days },
        { ...axis, size: 70, values: (_plot, counts) => counts.map((count) => number.format(count)) },
      ],
      series: [
        {},
        { stroke: served, width: 2, paths: steps, points: { show: false } },
        { stroke: refused, width: 2, dash: [5, 4], paths: steps, points: { show: false } },
      ],
    },
    [
      usage.steps.map(({ at }) => Date.parse(at) / 1_000),
      usage.steps.map((step) => step.served),
      usage.steps.map((step) => step.refused),
    ],
    element("plot"),
  );
}

element("rotate")?.addEventListener("click", () => {
  element("rotate").hidden = true;
  element("confirm").hidden = false;
  element("confirm").focus();
});

element("confirm")?.addEventListener("click", async () => {
  element("confirm").hidden = true;
  element("rotate").hidden = false;
  try {
    const made = await ask("/keys/rotate", { method: "POST", body: "{}" });
    element("new-key").textContent = made.key;
    element("old-end").textContent = dateTime.format(new Date(made.previousKeyEndsAt));
    element("rotated").hidden = false;
    element("rotate").hidden = true;
    element("new-key").focus();
  } catch (error) {
    say(error.message);
    element("rotate").focus();
  }
});

element("stored")?.addEventListener("click", () => {
  key = element("new-key").textContent;
  element("new-key").textContent = "";
  element("rotated").hidden = true;
  element("rotate").hidden = false;
  sessionStorage.setItem(storedAs, key);
  void openAccount(true);
});

function say(text) {
  if (element("status").textContent !== text) element("status").textContent = text;
}
