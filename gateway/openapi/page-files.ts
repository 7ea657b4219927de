/** The documentation page. Every address in it is relative, so that it works below any path and behind any proxy. */
export const indexHtml = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Petstore Inventory API</title>
    <link rel="icon" type="image/png" sizes="32x32" href="favicon-32x32.png">
    <meta name="color-scheme" content="light dark">
    <link rel="stylesheet" href="swagger-ui.css">
    <link rel="stylesheet" href="page.css">
    <script defer src="swagger-ui-bundle.js"></script>
    <script defer src="initializer.js"></script>
  </head>
  <body>
    <noscript>This page needs JavaScript. The same in OpenAPI: <a href="../openapi.json">openapi.json</a></noscript>
    <main id="swagger-ui"></main>
  </body>
</html>
`;

/**
 * On a phone the page is as wide as the screen: a table that is wider scrolls by itself, and nothing is linked here.
 */
export const pageCss = `@media (max-width: 640px) {
  .swagger-ui .renderedMarkdown table {
    display: block;
    overflow-x: auto;
  }
  .swagger-ui .response-col_links {
    display: none;
  }
}
`;

/**
 * Starts Swagger UI. It asks no validator, and keeps no API key beyond the page. By itself it shows the JSON of a
 * response as JavaScript's numbers have it, which rounds a petId beyond 2^53.
 */
export const initializerJs = String.raw`const { rawJSON = String } = JSON;

function showExactly(json) {
  const keepDigits = (_name, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && context ? rawJSON(context.source) : value;
  return JSON.stringify(JSON.parse(json, keepDigits), null, 2);
}

const exactNumbers = ({ React }) => ({
  wrapComponents: {
    responseBody: (ResponseBody) => (props) => {
      const { content, contentType, getComponent } = props;
      const mayLoseDigits = typeof content === "string" && /json/i.test(contentType) && /\d{16}/.test(content);
      if (!mayLoseDigits) return React.createElement(ResponseBody, props);
      try {
        const code = { language: "json", downloadable: true, canCopy: true, fileName: "response.json" };
        return React.createElement(
          "div",
          null,
          React.createElement("h5", null, "Response body"),
          React.createElement(getComponent("HighlightCode", true), code, showExactly(content)),
        );
      } catch {
        return React.createElement(ResponseBody, props); // not JSON after all
      }
    },
  },
});

const dark = matchMedia("(prefers-color-scheme: dark)");
const followScheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followScheme);
followScheme();

window.ui = SwaggerUIBundle({
  url: new URL("../openapi.json", document.baseURI).href,
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  persistAuthorization: false,
  plugins: [exactNumbers],
  validatorUrl: null,
});
`;
