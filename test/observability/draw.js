/** Draws a dashboard in a page that has uPlot. @param drawn see pictures.ts */
globalThis.draw = ({ title, panels, times }) => {
  const make = (parent, name, text = "") => {
    const element = parent.appendChild(document.createElement("div"));
    element.className = name;
    element.textContent = text;
    return element;
  };
  make(document.body, "title", title);
  const grid = make(document.body, "grid");
  for (const panel of panels) {
    const place = make(grid, `panel ${panel.type}`);
    const { x, y, w, h } = panel.gridPos;
    place.style.gridArea = `${y + 1} / ${x + 1} / span ${h} / span ${w}`;
    make(place, "name", panel.title);
    if (panel.type === "stat") {
      const value = panel.series[0].values.findLast((each) => each !== null);
      make(place, "number", formatted(value, panel.unit)).style.color = colourOf(value, panel.thresholds);
    } else if (panel.type === "timeseries") {
      const legend = document.createElement("div");
      legend.className = "legend";
      panel.series.forEach(({ label }, i) => {
        make(legend, "label", label).style.setProperty("--colour", colours[i % colours.length]);
      });
      const plot = make(place, "plot");
      place.append(legend);
      drawCurves(plot, panel, times);
    }
  }
};

const colours = [
  "#3274d9",
  "#e0752d",
  "#37872d",
  "#c4162a",
  "#8f3bb8",
  "#b89b00",
  "#0f9aa8",
  "#d44fa0",
  "#7a5230",
  "#5f6368",
];
const powersOfTwo = Array.from({ length: 40 }, (_, i) => 2 ** i);
const named = { green: "#37872d", orange: "#e0752d", red: "#c4162a", text: "#222" };

function drawCurves(place, { series, unit, isStacked, fill, min, thresholds }, times) {
  const levels = thresholds.filter(({ value }) => value !== null);
  // A stack's sums are drawn from the largest to the smallest, so that each covers what is below it.
  const sums = [];
  for (const { values } of series) {
    const below = sums.at(-1);
    sums.push(isStacked ? values.map((value, i) => (below?.[i] ?? 0) + (value ?? 0)) : values);
  }
  const curves = sums.map((values, i) => {
    const stroke = colours[i % colours.length];
    const shade = isStacked ? `color-mix(in srgb, ${stroke} ${fill}%, white)` : undefined;
    return { values, options: { stroke, width: 1.25, fill: shade, points: { show: false } } };
  });
  if (isStacked) curves.reverse();
  for (const { value, color } of levels) {
    curves.push({
      values: times.map(() => value),
      options: { stroke: named[color], width: 1, dash: [6, 4], points: { show: false } },
    });
  }
  const axis = {
    font: "11px sans-serif",
    stroke: "#444",
    grid: { stroke: "#e8e8e8", width: 1 },
    ticks: { show: false },
  };
  const minutes = (seconds) => `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  new uPlot(
    {
      width: place.clientWidth,
      height: place.clientHeight,
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false },
        y: { range: (_plot, low, high) => (min === 0 ? [0, high * 1.05 || 1] : uPlot.rangeNum(low, high, 0.1, true)) },
      },
      axes: [
        { ...axis, incrs: [60, 120, 300], size: 24, values: (_plot, marks) => marks.map(minutes) },
        {
          ...axis,
          ...(unit === "bytes" && { incrs: powersOfTwo }),
          size: 72,
          space: 28,
          values: (_plot, marks) => marks.map((mark) => formatted(mark, unit)),
        },
      ],
      series: [{}, ...curves.map(({ options }) => options)],
    },
    [times, ...curves.map(({ values }) => values)],
    place,
  );
}

function formatted(value, unit) {
  const number = (count) => count.toLocaleString("en", { maximumSignificantDigits: 4 });
  const scaled = (names, base) => {
    const power = Math.min(names.length - 1, Math.max(0, Math.floor(Math.log(value || 1) / Math.log(base))));
    return `${number(value / base ** power)} ${names[power]}`;
  };
  if (unit === "reqps") return `${number(value)} req/s`;
  if (unit === "ops") return `${number(value)} /s`;
  if (unit === "percentunit") return `${number(value * 100)} %`;
  if (unit === "bytes") return scaled(["B", "KiB", "MiB", "GiB"], 1_024);
  if (unit !== "s") return number(value);
  return value === 0 || value >= 1 ? `${number(value)} s` : `${number(value * 1_000)} ms`;
}

function colourOf(value, thresholds) {
  return named[thresholds.findLast((each) => each.value === null || value >= each.value)?.color ?? "text"];
}
