/** Renders the account page, which its script fills. */

import { operationsOf, type ShownDocument } from "../openapi/shown-document.ts";
import { escapeHtml } from "./escape-html.ts";
import { framed } from "./page-frame.ts";

/** @param document of a gateway; it has the rotation of keys only where callers may rotate theirs */
export function renderAccountPage(document: ShownDocument): string {
  const { title, version } = document.info;
  const deprecated = operationsOf(document).filter((operation) => operation.deprecated);
  const ends = deprecated.map(({ method, path, "x-sunset": sunset }) => deprecatedHtml(`${method} ${path}`, sunset));
  const head = `<script defer src="uplot.js"></script>
<script type="module" src="page.js"></script>`;
  const body = `<main id="content">
<h1>Your account <span id="plan" class="badge" hidden></span></h1>
<noscript><p>This page needs its script, which asks the API with your key.</p></noscript>
${"/keys/rotate" in document.paths ? newKeyHtml : ""}
<form id="open" class="card" hidden>
<p>See what your key has left and the requests of its account. The operator of this API issues keys.</p>
<label for="key">API key</label>
<div class="line"><input id="key" type="password" autocomplete="off" autocapitalize="off" spellcheck="false" required aria-describedby="key-fault key-hint"><button>Show the account</button></div>
<p id="key-fault" class="fault" role="alert"></p>
<p id="key-hint" class="hint">The key alone, without <code>Bearer</code>. It stays in this tab until you close it, serves the documentation too, and goes only to this API.</p>
</form>
<p id="status" role="status"></p>
<div id="account" hidden>
${banHtml}
<section aria-labelledby="limits">
<h2 id="limits" tabindex="-1">Limits</h2>
<div class="cards">
${windowHtml("minute", "This minute")}
${windowHtml("day", "This day")}
</div>
</section>
${requestsHtml}
<div class="cards">
<section class="card" aria-labelledby="key-title">
<h2 id="key-title">This key</h2>
<dl class="facts">
<dt>Id</dt><dd id="key-id"></dd>
<dt>Scopes</dt><dd id="key-scopes"></dd>
<dt>Expires</dt><dd id="key-end"></dd>
</dl>
<p class="line actions">${"/keys/rotate" in document.paths ? rotateButton : ""}<button type="button" id="forget" class="quiet">Forget the key in this tab</button></p>
${"/keys/rotate" in document.paths ? '<p id="rotate-fault" class="fault" role="alert"></p>' : ""}
</section>
<section class="card" aria-labelledby="deprecated-title">
<h2 id="deprecated-title">Deprecated operations</h2>
<p>Requests<span id="deprecated-since"></span>: <strong id="deprecated">–</strong></p>
<ul>
${ends.join("\n")}
</ul>
</section>
</div>
${"/keys/rotate" in document.paths ? confirmHtml : ""}
</div>
</main>`;
  return framed({
    title: `Your account: ${title}`,
    product: title,
    version,
    current: "account",
    head,
    tools: "",
    body,
  });
}

/** The countdown stands outside the alert, which would be read aloud with every second. */
const banHtml = `<section id="ban" class="card notice" aria-labelledby="ban-title" hidden>
<h2 id="ban-title">This key is banned <span id="ban-left"></span></h2>
<p role="alert" id="ban-end"></p>
<p>Why: it kept sending requests after answers with 429.</p>
<p>What to do: stop every client that uses it until the ban ends, and have them wait for <code>Retry-After</code> from then on. Further bans last longer, and a banned key cannot be rotated. <a href="../docs/#api_key_banned">More about bans</a></p>
</section>`;

function windowHtml(name: string, title: string): string {
  return `<div class="card window" data-window="${name}">
<h3 id="${name}-title">${title}</h3>
<div class="meter" role="meter" aria-labelledby="${name}-title" aria-valuemin="0" aria-valuemax="1" aria-valuenow="0"><div class="filled"></div></div>
<p><span class="used"></span> <span class="countdown"></span></p>
<p class="level"></p>
</div>`;
}

const requestsHtml = `<section class="card" aria-labelledby="requests">
<div class="line spread"><h2 id="requests">Requests</h2>
<div class="choices" role="group" aria-label="Time">
<button type="button" data-hours="6" aria-pressed="false">6 hours</button><button type="button" data-hours="24" aria-pressed="true">24 hours</button><button type="button" data-hours="168" aria-pressed="false">7 days</button>
</div></div>
<p class="line"><span class="key served">served</span> <span class="key refused">refused with 429</span> <span id="zone" class="hint"></span> <span id="reading"></span></p>
<div id="plot" role="slider" tabindex="0" aria-label="Requests over time; the arrow keys move through them" aria-valuemin="0" aria-valuemax="0" aria-valuenow="0"></div>
<details><summary>As a table</summary>
<div class="scroll" tabindex="0" role="group" aria-label="Requests as a table"><table>
<thead><tr><th scope="col">Time</th><th scope="col">Served</th><th scope="col">Refused</th></tr></thead>
<tbody id="sums"></tbody></table></div></details>
</section>`;

/** @param sunset ISO 8601; undefined while it is not announced */
function deprecatedHtml(name: string, sunset: string | undefined): string {
  const end = sunset
    ? `ends on <time datetime="${sunset}">${sunset.slice(0, 10)}</time> (sunset)`
    : "the date of its end is not announced yet";
  return `<li><code>${escapeHtml(name)}</code>: ${end}</li>`;
}

const rotateButton = '<button type="button" id="rotate" class="quiet" hidden>Rotate this key</button>';

const confirmHtml = `<dialog id="confirm" aria-labelledby="confirm-title">
<h2 id="confirm-title">Rotate this key?</h2>
<p>A new key with the same scopes and the same end takes its place, and is shown once. This one works for one more day.</p>
<p class="line"><button type="button" id="cancel" class="quiet" autofocus>Cancel</button><button type="button" id="rotate-now">Make the new key</button></p>
</dialog>`;

const newKeyHtml = `<section id="rotated" class="card" aria-labelledby="rotated-title" hidden>
<h2 id="rotated-title">The new key</h2>
<p>It is shown only now: store it before you go on.</p>
<pre id="new-key" tabindex="0" role="group" aria-label="The new key"></pre>
<p>The old one ends <span id="old-end"></span>.</p>
<button type="button" id="stored">I have stored it: use it here</button>
</section>`;
