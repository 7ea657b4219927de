// Draws the figures of the list as an SVG: `npm run bench -- --plot cost.svg`.
import type { ListRow } from "./list.ts";

/**
 * Draws the CPU time of a GET in the gateway against the number of entries, both on logarithmic scales. @returns an SVG
 */
export function plot(rows: readonly ListRow[]): string {
  const points = rows.filter(({ coding, writesPerSecond }) => coding === "identity" && writesPerSecond === 0);
  const [width, height, margin] = [720, 440, 64];
  const costs = points.flatMap(({ ours, plain, constant }) => [ours, plain, constant].map((f) => f.cpuMs.gateway!));
  const sizes = points.map(({ size }) => size);
  const scale = (values: readonly number[], from: number, to: number) => {
    const [low, high] = [Math.log10(Math.min(...values)), Math.log10(Math.max(...values))];
    return (value: number) => from + ((Math.log10(value) - low) / (high - low || 1)) * (to - from);
  };
  const x = scale(sizes, margin, width - 150);
  const y = scale(costs, height - margin, margin);
  const series = [
    ["this gateway", "#0a7d4b", (row: ListRow) => row.ours],
    ["plain gateway", "#b3261e", (row: ListRow) => row.plain],
    ["constant Buffer", "#5f6368", (row: ListRow) => row.constant],
  ] as const;
  const lines = series.map(([name, colour, read]) => {
    const path = points.map((row) => `${x(row.size).toFixed(1)},${y(read(row).cpuMs.gateway!).toFixed(1)}`);
    const [endX, endY] = path.at(-1)!.split(",");
    return `<polyline points="${path.join(" ")}" fill="none" stroke="${colour}" stroke-width="2.5"/>
<text x="${Number(endX) + 8}" y="${Number(endY) + 4}" fill="${colour}">${name}</text>`;
  });
  const ticks = points.map(
    (row) =>
      `<text x="${x(row.size)}" y="${height - margin + 22}" text-anchor="middle">${row.size.toLocaleString("en")}</text>`,
  );
  const levels = [Math.min(...costs), Math.max(...costs)].map(
    (cost) => `<text x="${margin - 8}" y="${y(cost) + 4}" text-anchor="end">${cost.toPrecision(2)}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="13">
<rect width="100%" height="100%" fill="#fff"/>
<text x="${margin}" y="30" font-size="16">Gateway CPU for one GET /v1/inventory (ms) against the number of entries</text>
<path d="M${margin} ${margin}V${height - margin}H${width - 150}" fill="none" stroke="#999"/>
${[...ticks, ...levels, ...lines].join("\n")}
</svg>
`;
}
