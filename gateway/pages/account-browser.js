// Shows the account of the key that the visitor gives on this page or on the documentation page.

import { addressOf, forgetKey, keyOfTab, make, noKey, readKey, storeKey } from "../docs/shared.js";
import { drawUsage } from "./plot.js";
import { enableRotation } from "./rotation.js";

const limitsEveryMs = 10_000;
const usageEveryMs = 60_000;
/** Shares of a window from which its bar warns. */
const [nearlyUsed, usedUp] = [0.8, 1];
const element = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en-US");
const dateTime = new Intl.DateTimeFormat("en-GB", {
  dateStyle: "medium",
  timeStyle: "long", // with seconds and zone
});
const time = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

let key = keyOfTab();
let limits;
let usage;
let limitsAt;
let usageAtMs;
let hours = 24;
let serverAheadMs = 0;
let timer;

element("open").addEventListener("submit", (event) => {
  event.preventDefault();
  take();
});
element("key").addEventListener("paste", () => setTimeout(take)); // when the field has the text
element("forget").addEventListener("click", () => forget("The key is forgotten."));
document.addEventListener("visibilitychange", () => void refresh());
window.addEventListener("resize", showUsage);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showUsage);
setInterval(countDown, 500);
if (element("rotate")) enableRotation({ ask, use, showTime: (at) => dateTime.format(new Date(at)) });
if (key) void openAccount(false);
else element("open").hidden = false;

for (const button of document.querySelectorAll("[data-hours]")) {
  button.addEventListener("click", () => {
    hours = Number(button.dataset.hours);
    for (const other of document.querySelectorAll("[data-hours]")) {
      other.setAttribute("aria-pressed", other === button);
    }
    usage = usageAtMs = undefined;
    element("plot").ariaBusy = "true";
    element("reading").textContent = "";
    void refresh();
  });
}

function take() {
  const given = element("key").value;
  element("key").value = "";
  if (given.trim() === "") return;
  const read = readKey(given);
  if (!read) return refuse(noKey);
  use(read);
}

/** Shows the account of a key that the visitor has just given, and keeps the key for this tab. */
function use(given) {
  key = given;
  storeKey(key);
  void openAccount(true);
}

/** Shows the account of the present key. @param isAsked whether the visitor has just given it and waits for the numbers */
async function openAccount(isAsked) {
  limits = usage = usageAtMs = undefined;
  element("account").hidden = true;
  refuse("");
  say("Loading");
  await refresh();
  if (!isAsked || !limits) return;
  element("limits").focus({ preventScroll: true });
  scrollTo(0, 0);
}

function forget(why) {
  clearTimeout(timer);
  forgetKey();
  key = limits = usage = undefined;
  element("account").hidden = element("plan").hidden = true;
  element("open").hidden = false;
  element("key-id").textContent = "";
  say(why);
  element("key").focus();
}

/** Says within the form why a key is not taken; an empty text takes that back. @param help a link to more */
function refuse(why, ...help) {
  element("key-fault").replaceChildren(why, ...help);
  element("key").ariaInvalid = why !== "";
}

async function refresh() {
  clearTimeout(timer);
  if (!key || document.hidden) return;
  const [asked, askedHours] = [key, hours];
  const isStale = () => key !== asked || hours !== askedHours;
  const isUsageDue = usageAtMs === undefined || Date.now() - usageAtMs >= usageEveryMs;
  try {
    const later = isUsageDue ? ask(`/usage?hours=${hours}`).catch((error) => error) : undefined;
    const told = await ask("/rate_limit");
    if (isStale()) return;
    limits = told;
    limitsAt = new Date();
    showLimits();
    if (later) {
      const toldUsage = await later;
      if (isStale()) return;
      if (toldUsage instanceof Error) showNoUsage();
      else {
        usage = toldUsage;
        usageAtMs = Date.now();
        showUsage();
      }
    }
    say("");
  } catch (error) {
    if (isStale()) return;
    if (error.status === 401) {
      forget("");
      return refuse(`${error.message} `, make("a", { href: "../docs/#invalid_api_key", textContent: "What to do" }));
    }
    element("open").hidden = limits !== undefined;
    const first =
      error.status < 500
        ? error.message
        : `${error.message} This page asks again every ${limitsEveryMs / 1_000} s with your key.`;
    say(limits ? `${error.message} The numbers are those of ${time.format(limitsAt)}.` : first, true);
  }
  timer = setTimeout(refresh, untilRefreshMs());
}

/** @throws Error with a text for the visitor, and with the status of the answer where there is one */
async function ask(path, { method = "GET", body } = {}) {
  const headers = { Authorization: `Bearer ${key}` };
  if (body) headers["Content-Type"] = "application/json";
  const options = { method, body, headers, cache: "no-store", credentials: "omit", redirect: "error" };
  const response = await fetch(addressOf(path), options).catch(() => {
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
  element("account").hidden = element("plan").hidden = false;
  element("plan").textContent = `plan ${limits.plan}`;
  for (const window of limits.windows) showWindow(window);
  const { id, scopes, expiresAt } = limits.key;
  element("key-id").textContent = id;
  element("key-scopes").textContent = scopes.join(", ");
  element("key-end").textContent = expiresAt ? dateTime.format(new Date(expiresAt)) : "never";
  const { ban } = limits;
  if (element("rotate")) {
    element("rotate").hidden = !scopes.includes("keys:rotate") || !element("rotated").hidden || Boolean(ban);
  }
  element("ban").hidden = !ban;
  const end = ban ? `The ban ends on ${dateTime.format(new Date(ban.until))}.` : "";
  if (element("ban-end").textContent !== end) element("ban-end").textContent = end;
  countDown();
}

function showWindow({ name, limit, used, remaining }) {
  const shown = document.querySelector(`[data-window=${name}]`);
  if (!shown) return;
  const share = used / limit;
  const text = `${number.format(used)} of ${number.format(limit)} used, ${number.format(remaining)} left.`;
  const level = share >= usedUp ? "used-up" : share >= nearlyUsed ? "nearly" : "";
  shown.dataset.level = level;
  shown.querySelector(".used").textContent = text;
  const words = { nearly: "Nearly used up.", "used-up": "Used up: requests get 429 until it resets.", "": "" };
  shown.querySelector(".level").textContent = limits.ban ? "Requests get 429 until the ban ends." : words[level];
  const meter = shown.querySelector("[role=meter]");
  meter.firstElementChild.style.width = `${Math.min(100, 100 * share)}%`;
  for (const [attribute, value] of Object.entries({ valuemax: limit, valuenow: used, valuetext: text })) {
    meter.setAttribute(`aria-${attribute}`, value);
  }
}

/** Shows the time until each window, and the ban, ends. */
function countDown() {
  for (const { name, resetAt } of limits?.windows ?? []) {
    const shown = document.querySelector(`[data-window=${name}] .countdown`);
    if (shown) shown.textContent = `Resets in ${duration(leftMs(resetAt))}.`;
  }
  if (limits?.ban) element("ban-left").textContent = `for another ${duration(leftMs(limits.ban.until))}`;
}

function leftMs(end) {
  return Date.parse(end) - Date.now() - serverAheadMs;
}

/** Time until the limits are asked for again: soon after the end of a window or of the ban, else now and then. */
function untilRefreshMs() {
  const ends = [...(limits?.windows ?? []).map(({ resetAt }) => resetAt), ...(limits?.ban ? [limits.ban.until] : [])];
  return Math.max(1_000, Math.min(limitsEveryMs, ...ends.map((end) => leftMs(end) + 1_000)));
}

function duration(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function showUsage() {
  if (!usage) return;
  element("deprecated").textContent = number.format(usage.deprecated);
  element("deprecated-since").textContent = ` since ${day.format(new Date(usage.from))}`;
  drawUsage(usage);
}

/** The limits are new, but the requests could not be read: those shown before stay. */
function showNoUsage() {
  if (usage) return;
  element("plot").ariaBusy = "false";
  element("reading").textContent = "The requests cannot be shown at the moment: this page asks again.";
}

function say(text, isWarning = false) {
  element("status").className = isWarning ? "warning" : "";
  if (element("status").textContent !== text) element("status").textContent = text;
}
