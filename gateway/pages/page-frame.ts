/** The frame of both pages: their head, and the bar at their top. */
import { escapeHtml } from "./escape-html.ts";

interface Frame {
  readonly title: string;
  readonly product: string;
  readonly version: string;
  readonly current: "docs" | "account";
  /** HTML within the head. */
  readonly head: string;
  /** HTML in the bar, between the name of the product and the links to the pages. */
  readonly tools: string;
  readonly body: string;
}

const pages = { docs: "Documentation", account: "Account" };

/** A whole page. Every address in it is relative: it works below any path. */
export function framed({ title, product, version, current, head, tools, body }: Frame): string {
  const links = Object.entries(pages).map(([page, name]) => {
    return `<a href="../${page}/"${page === current ? ' aria-current="page"' : ""}>${name}</a>`;
  });
  return `<!doctype html>
<html lang="en" data-lang="curl">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)}</title>
<link rel="icon" href="../favicon.ico">
<link rel="service-desc" type="application/json" href="../openapi.json">
<link rel="stylesheet" href="../docs/page.css">
${head}
</head>
<body class="${current}">
<a class="skip" href="#content">Skip to the text</a>
<header class="bar">
<a class="brand" href="../docs/">${escapeHtml(product)} <small>${escapeHtml(version)}</small></a>
${tools}
<nav aria-label="Pages">${links.join("")}</nav>
</header>
${body}
</body>
</html>
`;
}
