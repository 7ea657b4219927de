/** Draws a run of real processes as one HTML file that loads nothing. */
import type { Effect } from "../faults/history.ts";
import type { Operation } from "./history-file.ts";

/** A process that was killed, from then until it served again. Times are milliseconds since the start of the run. */
export interface Kill extends Effect {
  readonly what: string;
  readonly fromMs: number;
  readonly toMs: number;
}

const [width, laneHeight, left] = [1_400, 18, 130];
/** An operation that takes as long, or that has failed, is drawn by itself. */
const slowMs = 250;

const style = `:root { color-scheme: light dark; font: 14px/1.5 system-ui, sans-serif; }
body { margin: 1.5rem; max-width: 1440px; background: light-dark(#fff, #16181c); color: light-dark(#1c1e21, #e4e6ea); }
svg { width: 100%; height: auto; } svg text { fill: currentColor; font-size: 11px; }
pre { white-space: pre-wrap; } .bar { fill: light-dark(#9db8d9, #47658a); } .kill { fill: light-dark(#c62828, #ef6b63); }
.done { fill: light-dark(#2e7d4f, #63c58c); } .unknown { fill: light-dark(#b45f06, #f0a04b); }
.line { stroke: light-dark(#ccc, #3a3e45); }`;

interface Report {
  readonly verdict: string;
  readonly violations: readonly string[];
}

export function timeline(report: Report, operations: readonly Operation[], kills: readonly Kill[]): string {
  const endMs = Math.max(1, ...operations.map((one) => one.return), ...kills.map(({ toMs }) => toMs));
  const x = (ms: number) => (left + (ms / endMs) * (width - left)).toFixed(1);
  const shapes: string[] = [];
  let y = 0;
  const lane = (name: string) => {
    y += laneHeight;
    shapes.push(`<text x="0" y="${y - 5}">${escaped(name)}</text>`);
    shapes.push(`<line class="line" x1="${left}" x2="${width}" y1="${y}" y2="${y}"/>`);
  };
  const bar = (kind: string, fromMs: number, toMs: number, title: string, height = 10) =>
    shapes.push(
      `<rect class="${kind}" x="${x(fromMs)}" y="${y - height - 1}" width="${Math.max(1.5, ((toMs - fromMs) / endMs) * (width - left)).toFixed(1)}" height="${height}"><title>${escaped(title)}</title></rect>`,
    );
  for (const [what, of] of Map.groupBy(kills, (kill) => kill.what)) {
    lane(what);
    for (const { fromMs, toMs } of of)
      bar("kill", fromMs, toMs, `${what} killed at ${seconds(fromMs)}, back at ${seconds(toMs)}`);
  }
  const parts = 200;
  const counts = new Array<number>(parts).fill(0);
  for (const { outcome, return: at } of operations) {
    if (outcome === "done") counts[Math.min(parts - 1, Math.floor((at / endMs) * parts))]! += 1;
  }
  const most = Math.max(1, ...counts);
  y += 4 * laneHeight;
  lane("answers");
  for (const [i, count] of counts.entries()) {
    const perSecond = Math.round((count * parts * 1_000) / endMs);
    bar(
      "bar",
      (i * endMs) / parts,
      ((i + 0.9) * endMs) / parts,
      `${perSecond} answers a second`,
      (count / most) * 5 * laneHeight,
    );
  }
  const special = operations.filter((one) => one.outcome !== "done" || one.return - one.call > slowMs);
  for (const [place, of] of [...Map.groupBy(special, placeOf)].sort(([a], [b]) => a.localeCompare(b))) {
    lane(place);
    for (const one of of) {
      const took = `${seconds(one.call)} for ${(one.return - one.call).toFixed(0)} ms`;
      bar(
        one.outcome,
        one.call,
        one.return,
        `${one.op} ${one.quantity ?? ""} ${one.revision ?? one.answer} ${one.outcome}, ${took}`,
      );
    }
  }
  y += laneHeight;
  for (let i = 0; i <= 10; i++)
    shapes.push(
      `<text x="${x((i * endMs) / 10)}" y="${y}" text-anchor="${i === 10 ? "end" : "middle"}">${seconds((i * endMs) / 10)}</text>`,
    );
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Proof</title><style>${style}</style>
<h1>${escaped(report.verdict)}</h1>
<pre>${escaped(report.violations.slice(0, 3).join("\n"))}</pre>
<details><summary>What was checked: report.json</summary><pre>${escaped(JSON.stringify(report, undefined, 2))}</pre></details>
<h2>Real processes under kills</h2>
<p>Red: a process from its kill until it served again. Blue: answers in time. Below, by entry, what took longer than ${slowMs} ms (green), and requests without an answer or with a 5xx (orange), such as those to a dead gateway. Point at a mark to read it.</p>
<svg viewBox="0 0 ${width} ${y + 6}" role="img" aria-label="Kills and operations in time">${shapes.join("\n")}</svg>
</html>
`;
}

const placeOf = ({ op, pet }: Operation) =>
  op === "set" ? `update of ${pet}` : pet === undefined ? op : `read of ${pet}`;
const seconds = (ms: number) => `${(ms / 1_000).toFixed(2)} s`;
const escaped = (text: string) => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
