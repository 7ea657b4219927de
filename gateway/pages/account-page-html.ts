/** Renders the account page. Every address in it is relative: it works below any path. */

import type { ShownDocument } from "./docs-page-html.ts";
import { escapeHtml } from "./markdown.ts";

/** @param document of a gateway; it has the rotation of keys only where callers may rotate theirs */
export function renderAccountPage({ paths }: ShownDocument): string {
  const deprecated = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations)
      .filter(([, operation]) => operation.deprecated)
      .map(([method, operation]) => deprecatedHtml(`${method.toUpperCase()} ${path}`, operation["x-sunset"])),
  );
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Your account: Petstore Inventory</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
<script defer src="uplot.js"></script>
<script type="module" src="page.js"></script>
</head>
<body>
<header>
<h1>Your account</h1>
<p><a href="../docs/">Documentation of the API</a></p>
</header>
<main>
<noscript><p>This page needs its script, which asks the API with your key.</p></noscript>
<form id="open">
<label for="key">API key</label>
<input id="key" type="password" autocomplete="off" autocapitalize="off" spellcheck="false" required aria-describedby="key-hint">
<p id="key-hint">The key alone, without <code>Bearer</code>. It stays in this tab until you close it, and goes only to this API.</p>
<button>Show the account</button>
</form>
<p id="status" role="status"></p>
<div id="account" hidden>
<p id="ban" class="warning" role="alert" hidden></p>
<section aria-labelledby="limits">
<h2 id="limits" tabindex="-1">Limits <small>Plan <span id="plan"></span></small></h2>
${windowHtml("minute", "This minute")}
${windowHtml("day", "This day")}
</section>
<section aria-labelledby="week">
<h2 id="week">The last 7 days</h2>
<p>Solid line: requests served in an hour. Dashed line: requests refused with 429.</p>
<div id="plot" role="img" aria-label="Plot of the requests of each hour; the table has the sums of each day"></div>
<div class="scroll" tabindex="0" role="group" aria-label="Requests of each day"><table>
<thead><tr><th scope="col">Day</th><th scope="col">Served</th><th scope="col">Refused</th></tr></thead>
<tbody id="days"></tbody></table></div>
</section>
<section aria-labelledby="deprecated-title">
<h2 id="deprecated-title">Deprecated operations</h2>
<p>Requests in the last 7 days: <strong id="deprecated"></strong></p>
<ul>
${deprecated.join("\n")}
</ul>
</section>
<section aria-labelledby="key-title">
<h2 id="key-title">This key</h2>
<dl>
<dt>Id</dt><dd id="key-id"></dd>
<dt>Scopes</dt><dd id="key-scopes"></dd>
<dt>End</dt><dd id="key-end"></dd>
</dl>
<button type="button" id="forget">Forget the key on this page</button>
</section>
${"/keys/rotate" in paths ? rotationHtml : ""}
</div>
</main>
</body>
</html>
`;
}

function windowHtml(name: string, title: string): string {
  return `<div data-window="${name}">
<h3 id="${name}-title">${title}</h3>
<meter min="0" max="1" value="0" aria-labelledby="${name}-title"></meter>
<p><span class="used"></span> <span class="countdown"></span></p>
</div>`;
}

/** @param sunset ISO 8601; undefined while it is not announced */
function deprecatedHtml(name: string, sunset: string | undefined): string {
  const end = sunset
    ? `ends on <time datetime="${sunset}">${sunset.slice(0, 10)}</time> (sunset)`
    : "the date of its end is not announced yet";
  return `<li><code>${escapeHtml(name)}</code>: ${end}</li>`;
}

const rotationHtml = `<section id="rotation" aria-labelledby="rotation-title" hidden>
<h2 id="rotation-title">Rotate this key</h2>
<p>A new key with the same scopes and the same end takes its place. This one works for one more day.</p>
<button type="button" id="rotate">Rotate this key</button>
<button type="button" id="confirm" hidden>Make the new key now</button>
<div id="rotated" hidden>
<p>The new key, which is shown only now: <code id="new-key" tabindex="0"></code></p>
<p>The old one ends <span id="old-end"></span>.</p>
<button type="button" id="stored">I have stored it: use it here</button>
</div>
</section>`;
