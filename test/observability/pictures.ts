/** Makes the pictures of the dashboards in docs/screenshots from a run with faults (npm run docs:dashboards). */
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { startChromium } from "../support/chromium.ts";
import { type Dashboard, type Panel, readDashboards } from "../support/prometheus.ts";
import { smallPicture } from "./png.ts";
import { type Run, runWithFaults, stepSeconds } from "./run.ts";

const style = `
  body { margin: 12px; background: #f4f5f5; font: 12px sans-serif; color: #222; width: 1400px; }
  .title { font-size: 18px; font-weight: bold; margin-bottom: 8px; }
  .grid { display: grid; grid-template-columns: repeat(24, 1fr); grid-auto-rows: 19px; gap: 6px; }
  .panel { background: white; border: 1px solid #ddd; display: flex; flex-direction: column; min-width: 0; padding: 4px; }
  .row { background: none; border: none; padding: 2px; font-size: 14px; }
  .name { font-weight: bold; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
  .number { font-size: 24px; margin: auto; white-space: nowrap; }
  .plot { flex: 1; min-height: 0; overflow: hidden; }
  .legend { display: flex; flex-wrap: wrap; gap: 0 12px; font-size: 11px; padding-left: 8px; }
  .label::before { content: ""; display: inline-block; width: 12px; height: 3px; margin: 0 4px 3px 0; background: var(--colour); }`;

await using stack = new AsyncDisposableStack();
const run = await runWithFaults(stack);
const browser = await startChromium();
stack.defer(() => browser.close());
const uplot = createRequire(import.meta.url).resolve("uplot/dist/uPlot.iife.min.js");
const uplotStyle = readFileSync(uplot.replace("iife.min.js", "min.css"), "utf8");
for (const dashboard of readDashboards()) {
  const page = await browser.newPage({ viewport: { width: 1424, height: 600 } });
  await page.setContent(`<!doctype html><style>${uplotStyle}${style}</style>`);
  await page.addScriptTag({ path: uplot });
  await page.addScriptTag({ path: join(import.meta.dirname, "draw.js") });
  await page.evaluate(`draw(${JSON.stringify(await drawn(dashboard, run))})`);
  const name = `dashboard-${basename(dashboard.file, ".json")}.png`;
  await writeFile(join(import.meta.dirname, "../../docs/screenshots", name), await smallPicture(page));
}

/** A dashboard with its values, as draw.js takes it. */
async function drawn({ title, panels }: Dashboard, run: Run) {
  const count = Math.floor((run.to - run.from) / stepSeconds) + 1;
  const times = Array.from({ length: count }, (_, i) => i * stepSeconds);
  return { title, times, panels: await Promise.all(panels.map((panel) => withValues(panel, run, times))) };
}

async function withValues(
  { type, title, gridPos, targets = [], fieldConfig }: Panel,
  run: Run,
  times: readonly number[],
) {
  const { unit, min, thresholds, custom } = fieldConfig?.defaults ?? {};
  const found = targets.map(async (target) => {
    return (await run.values(target)).map(({ labels, at }) => ({
      label: (target.legendFormat ?? "").replace(/\{\{(\w+)\}\}/g, (_, name: string) => labels[name] ?? ""),
      values: times.map((seconds) => at.get(run.from + seconds) ?? null),
    }));
  });
  return {
    type,
    title,
    gridPos,
    unit,
    min,
    isStacked: custom?.stacking?.mode === "normal",
    fill: custom?.fillOpacity,
    thresholds: type === "stat" || custom?.thresholdsStyle?.mode === "line" ? thresholds?.steps : [],
    series: (await Promise.all(found)).flat(),
  };
}
