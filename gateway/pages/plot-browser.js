// Draws the requests of an account over time with uPlot, says the values of a step on hover and by the arrow keys, and
// sums them up in a table.

const element = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en-US");
const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });
const day = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });
const hourSeconds = 3_600;
const plotHeight = 240;
/** The height between what was served and what was refused, in pixels: their colours are alike to some eyes. */
const gapHeight = 2;
/** The least width of a step, in pixels, so that a thumb finds it. Its bar has four fifths of that. */
const leastWidth = 5;
const [axisWidth, padding] = [60, 20];

let shown;
let plot;
let index;

const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" })
  .formatToParts()
  .find(({ type }) => type === "timeZoneName").value;

/** @param usage as `GET /v1/usage` gives it */
export function drawUsage(usage) {
  const seconds = (at) => Date.parse(at) / 1_000;
  const [from, to] = [seconds(usage.from), seconds(usage.to)];
  const { steps, stepSeconds } = widened(usage, element("plot").clientWidth - axisWidth - padding);
  if (shown?.stepSeconds !== stepSeconds || shown.steps.length !== steps.length) index = undefined;
  shown = { steps, stepSeconds };
  const isWeek = to - from > 2 * 24 * hourSeconds;
  const colours = getComputedStyle(document.documentElement);
  const [text, line, paper, served, refused] = ["--quiet", "--line", "--paper", "--accent", "--bad"].map((name) =>
    colours.getPropertyValue(name),
  );
  const largest = Math.max(...steps.map((step) => step.served + step.refused));
  const gap = (largest * gapHeight) / plotHeight;
  const series = (fill) => ({ fill, width: 0, paths: bars, points: { show: false } });
  const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const bars = uPlot.paths.bars({ size: [0.8, 60] });
  const hours = isWeek ? [24, 48, 72, 96] : [1, 2, 3, 6, 12];
  const format = isWeek ? day : time;
  const picked = index; // a new plot begins without a cursor
  plot?.destroy();
  plot = new uPlot(
    {
      width: element("plot").clientWidth,
      height: plotHeight,
      padding: [null, padding, null, null],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false }, move: toBar },
      hooks: {
        setCursor: [({ cursor }) => read(cursor.idx ?? undefined)],
        ready: [() => pick(picked)],
      },
      scales: {
        x: { range: () => [from, to] },
        y: { range: (_plot, _min, max) => [0, Math.max(4, max * 1.1)] },
      },
      axes: [
        {
          ...axis,
          incrs: hours.map((count) => count * hourSeconds),
          space: isWeek ? 70 : 40,
          values: (_plot, times) => times.map((at) => format.format(new Date(at * 1_000))),
        },
        { ...axis, size: axisWidth, values: (_plot, counts) => counts.map((count) => compact.format(count)) },
      ],
      series: [{}, series(refused), series(paper), series(served)], // each covers the lower part of the one before
    },
    [
      steps.map(({ at }) => seconds(at) + stepSeconds / 2),
      steps.map((step) => (step.refused > 0 ? step.served + gap + step.refused : null)),
      steps.map((step) => (step.refused > 0 ? step.served + gap : null)),
      steps.map((step) => step.served),
    ],
    element("plot"),
  );
  element("plot").setAttribute("aria-valuemax", steps.length - 1);
  element("plot").ariaBusy = "false";
  element("zone").textContent = `Times in ${zone}`;
  showTable(usage, isWeek);
}

/** The steps of a usage, or sums of several where there is no room for each. */
function widened({ steps, stepSeconds }, width) {
  const counts = [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60].filter((count) => steps.length % count === 0);
  const together = counts.find((count) => (steps.length / count) * leastWidth <= width) ?? counts.at(-1);
  const sum = (i, name) => steps.slice(i, i + together).reduce((total, step) => total + step[name], 0);
  const sums = steps.flatMap(({ at }, i) =>
    i % together === 0 ? { at, served: sum(i, "served"), refused: sum(i, "refused") } : [],
  );
  return { steps: sums, stepSeconds: stepSeconds * together };
}

/** Has the cursor cover the bar that is pointed at. */
function toBar(drawn, left, top) {
  if (left < 0) return [left, top];
  const width = drawn.over.clientWidth / shown.steps.length;
  const { style } = drawn.over.querySelector(".u-cursor-x");
  [style.width, style.marginLeft] = [`${width}px`, `${-width / 2}px`];
  return [drawn.valToPos(drawn.data[0][drawn.posToIdx(left)], "x"), top];
}

/** Says the values of a step, or the sums of all when none is pointed at. */
function read(pointed) {
  index = pointed;
  const { steps, stepSeconds } = shown;
  const counts = (parts) => {
    const sum = (name) => number.format(parts.reduce((total, part) => total + part[name], 0));
    return `${sum("served")} served, ${sum("refused")} refused`;
  };
  const isEmpty = steps.every(({ served, refused }) => served + refused === 0);
  const step = steps[pointed];
  const text = step
    ? `${day.format(new Date(step.at))}, ${span(step.at, stepSeconds)}: ${counts([step])}`
    : isEmpty
      ? "No requests in this time."
      : `In all: ${counts(steps)}`;
  element("reading").textContent = text;
  element("plot").setAttribute("aria-valuenow", pointed ?? steps.length - 1);
  element("plot").setAttribute("aria-valuetext", text);
}

function span(at, seconds) {
  const start = new Date(at);
  if (seconds === 60) return time.format(start);
  return `${time.format(start)}–${time.format(new Date(start.getTime() + seconds * 1_000))}`;
}

element("plot").addEventListener("keydown", (event) => {
  if (!shown) return;
  const last = shown.steps.length - 1;
  const at = index ?? last + 1;
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, Escape: undefined };
  if (!(event.key in to)) return;
  event.preventDefault();
  const next = to[event.key] === undefined ? undefined : Math.min(last, Math.max(0, to[event.key]));
  pick(next);
});

/** Moves the cursor to a step, or away, and says its values. */
function pick(next) {
  const left = next === undefined ? -10 : plot.valToPos(plot.data[0][next], "x");
  plot.setCursor({ left, top: 0 });
  read(next);
}

/** Sums by day for a week, else by the hour, and by the quarter of an hour where there are minutes. */
function showTable({ steps, stepSeconds }, isWeek) {
  const quarterMs = 900_000;
  const nameOf = (at) => {
    if (isWeek) return day.format(new Date(at));
    if (stepSeconds === hourSeconds) return `${day.format(new Date(at))}, ${time.format(new Date(at))}`;
    return time.format(new Date(Math.floor(Date.parse(at) / quarterMs) * quarterMs));
  };
  const sums = new Map();
  for (const { at, served, refused } of steps) {
    const sum = sums.get(nameOf(at)) ?? { served: 0, refused: 0 };
    sums.set(nameOf(at), { served: sum.served + served, refused: sum.refused + refused });
  }
  const rows = [...sums].map(([name, { served, refused }]) => {
    const row = document.createElement("tr");
    const title = Object.assign(document.createElement("th"), { scope: "row", textContent: name });
    const cell = (count) => Object.assign(document.createElement("td"), { textContent: number.format(count) });
    row.append(title, cell(served), cell(refused));
    return row;
  });
  element("sums").replaceChildren(...rows);
}
