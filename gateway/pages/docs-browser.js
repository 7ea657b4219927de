// Makes the documentation page more comfortable: search, languages, copying, and requests. The requests go only to the
// API beside the page: a browser lets a page read nothing from other origins.
import { enableSearch } from "./search.js";
import { addCopyButton, addressOf, forgetKey, keyOfTab, make, noKey, readKey, storeKey } from "./shared.js";

const element = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

/** The button that asked for a key. */
let waiting;

showOwnAddress();
for (const pre of all("pre")) addCopyButton(pre);
chooseLanguage(localStorage.getItem("petstore-inventory-language") ?? "curl");
showKey();

/** Where the samples have the address of a local gateway, this page knows a better one. */
function showOwnAddress() {
  const { server } = document.querySelector("[data-server]")?.dataset ?? {};
  if (!server) return;
  const own = addressOf("").href;
  for (const code of all("code")) {
    const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(server, own);
  }
}

for (const button of all("[data-choice]")) {
  button.addEventListener("click", () => {
    const top = button.getBoundingClientRect().top;
    chooseLanguage(button.dataset.choice);
    scrollBy(0, button.getBoundingClientRect().top - top); // blocks above it have another height now
    localStorage.setItem("petstore-inventory-language", button.dataset.choice);
  });
}

function chooseLanguage(name) {
  document.documentElement.dataset.lang = name;
  for (const button of all("[data-choice]")) button.setAttribute("aria-pressed", button.dataset.choice === name);
}

element("menu").addEventListener("click", () => showContents(element("menu").ariaExpanded !== "true"));
element("contents").addEventListener("click", () => showContents(false));

function showContents(isShown) {
  element("menu").ariaExpanded = isShown;
  element("contents").classList.toggle("open", isShown);
  const { bottom } = document.querySelector(".bar").getBoundingClientRect();
  element("contents").style.setProperty("--top", `${bottom}px`);
}

addEventListener("keydown", ({ key }) => {
  if (key !== "Escape" || element("menu").ariaExpanded !== "true") return;
  showContents(false);
  element("menu").focus();
});

// The part of the page that is being read is marked in the contents.
const links = new Map(all("#contents a").map((link) => [link.hash.slice(1), link]));
const headings = [...links.keys()].map(element);
enableSearch(headings);
for (const heading of headings) {
  const link = make("a", { className: "anchor", href: `#${heading.id}` });
  link.ariaLabel = `Link to ${heading.firstChild.textContent}`;
  heading.append(link);
}
addEventListener("scroll", () => requestAnimationFrame(markPlace), { passive: true });
markPlace();

function markPlace() {
  const current = headings.findLast((heading) => heading.getBoundingClientRect().top < 140) ?? headings[0];
  const link = links.get(current.id);
  if (link.ariaCurrent === "true") return;
  for (const other of links.values()) other.ariaCurrent = null;
  link.ariaCurrent = "true";
  const contents = element("contents");
  if (getComputedStyle(contents).position !== "sticky") return;
  // By `scrollTop`: after `scrollIntoView` the next Tab would go on from the link, and not from the place in the text.
  const [frame, place] = [contents, link].map((each) => each.getBoundingClientRect());
  contents.scrollTop += Math.min(0, place.top - frame.top) + Math.max(0, place.bottom - frame.bottom);
}

element("authorize").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = readKey(element("key").value);
  element("key").value = "";
  if (!key) return showKey(noKey);
  storeKey(key);
  showKey();
  (waiting ?? element("forget")).focus();
  waiting = undefined;
});
element("forget").addEventListener("click", () => {
  forgetKey();
  showKey();
  element("key").focus();
});

/** Asks for another key in place of one that is not valid, unless that has been replaced meanwhile. */
function refuseKey(key) {
  if (keyOfTab() !== key) return;
  forgetKey();
  showKey(`Key …${key.slice(-4)} is not valid: enter another one`);
}

function showKey(fault = "") {
  const key = keyOfTab();
  element("authorize").classList.toggle("has-key", key !== null);
  element("key-state").textContent = fault || (key ? `Key …${key.slice(-4)} in use` : "");
  element("key-state").className = fault && "fault";
  element("key").ariaInvalid = fault !== "";
  element("forget").hidden = key === null;
}

renewKeys();

/** Gives each request that needs an Idempotency-Key one that was not sent yet. */
function renewKeys() {
  for (const field of all("[data-name=Idempotency-Key][required]")) field.value = `try-${Date.now()}`;
}

for (const form of all(".try form")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const status = form.querySelector("[role=status]");
    const key = keyOfTab();
    if (!key) {
      status.replaceChildren(make("p", { textContent: "Enter an API key at the top, then send again." }));
      status.scrollIntoView({ block: "nearest" });
      waiting = form.querySelector(".send");
      return element("key").focus();
    }
    status.replaceChildren(make("p", { textContent: "Loading" }));
    const startedMs = performance.now();
    try {
      const response = await send(form);
      const text = await response.text();
      const tookMs = Math.round(performance.now() - startedMs);
      const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
      const waitSeconds = response.headers.get("retry-after");
      const again = waitSeconds === null ? "" : `. Send again in ${waitSeconds} s`;
      const result = make("p", { textContent: `${response.status} ${response.statusText}, ${tookMs} ms${again}` });
      result.className = response.ok || response.status === 304 ? "fine" : "fault";
      const code = /"code":\s*"(\w+)"/.exec(text)?.[1];
      if (code === "invalid_api_key") refuseKey(key);
      if (!response.ok && links.has(code)) {
        result.append(" · ", make("a", { href: `#${code}`, textContent: `What to do about ${code}` }));
      }
      const more = make("details", {});
      more.append(make("summary", { textContent: "Headers" }), block("Headers of the response", headers));
      const body = text === "" ? [] : [block("Body of the response", shortened(indented(text)))];
      status.replaceChildren(result, ...body, more);
      keepTag(form, response);
      if (response.ok) renewKeys();
    } catch {
      const fault = "The API does not answer. Check your connection, then send again.";
      status.replaceChildren(make("p", { className: "fault", textContent: fault }));
    }
    status.scrollIntoView({ block: "nearest" });
  });
}

function send(form) {
  let { method, path } = form.dataset;
  const headers = {};
  const query = new URLSearchParams();
  if (keyOfTab()) headers.Authorization = `Bearer ${keyOfTab()}`;
  for (const { value, dataset } of all("input", form)) {
    if (dataset.in === "path") path = path.replace(`{${dataset.name}}`, encodeURIComponent(value));
    else if (value !== "" && dataset.in === "query") query.set(dataset.name, value);
    else if (value !== "") headers[dataset.name] = value;
  }
  const body = form.querySelector("textarea");
  if (body) headers["Content-Type"] = body.dataset.type;
  const url = addressOf(path);
  url.search = query;
  return fetch(url, { method, headers, body: body?.value, cache: "no-store", credentials: "omit" });
}

/** Has the next request for changes begin at the list that was read here: an invented tag gets 410. */
function keepTag({ dataset }, response) {
  const since = document.querySelector("[data-name=since]");
  if (since && response.ok && dataset.path === "/inventory") since.value = response.headers.get("etag");
}

function shortened(text) {
  return text.length > 100_000 ? `${text.slice(0, 100_000)}\n… and more` : text;
}

/** Indents JSON as text, so that no number is rounded. */
function indented(json) {
  if (!/^\s*[[{]/.test(json)) return json;
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  return json.replace(/"(?:[^"\\]|\\.)*"|\[\s*\]|\{\s*\}|[[\]{},:]|\s+/g, (token) => {
    if (/^\s/.test(token)) return "";
    if (token === ":") return ": ";
    if (token === ",") return `,${line()}`;
    if (token === "[" || token === "{") {
      depth += 1;
      return `${token}${line()}`;
    }
    if (token === "]" || token === "}") {
      depth = Math.max(0, depth - 1);
      return `${line()}${token}`;
    }
    return token;
  });
}

function block(label, text) {
  const pre = make("pre", { tabIndex: 0, textContent: text });
  pre.setAttribute("aria-label", label);
  pre.setAttribute("role", "group");
  const frame = make("div", {});
  frame.append(pre);
  addCopyButton(pre);
  return frame;
}
