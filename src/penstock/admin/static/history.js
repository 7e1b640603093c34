// The lines that the open view draws, read from /history and carried on by each frame.

import { ask, enc, toast } from "./ask.js";
import { page } from "./state.js";

const RELOAD_MS = 10000;

export const POINTS = 60; // of a sparkline

let reading = "";

async function loadLines() {
  const view = page.shown;
  const want = view.series;
  if (!want || reading === view) return;
  reading = view;
  page.linesAt = performance.now();
  try {
    const parts = [ask("GET", `/history?span=${page.span}&series=${enc(want.join(","))}&points=${view.points || 0}`)];
    if (view.sparks) parts.push(ask("GET", `/history?span=${page.span}&series=topic.in:,topic.out:&points=${POINTS}`));
    const said = await Promise.all(parts);
    if (view === page.shown) page.lines = Object.assign({}, ...said.map((each) => trimmed(each.series)));
  } catch {
    /* the stream tells whether the node is there */
  } finally {
    reading = "";
  }
  if (view === page.shown) draw();
}

// A node that has just begun shows the time since then, a minute at least, not an empty hour.
function trimmed(series) {
  const up = (page.frame.at - page.frame.node.started_at) / (page.span === "1h" ? 3600000 : 300000);
  for (const [name, values] of Object.entries(series))
    series[name] = values.slice(
      -Math.max(Math.ceil(values.length * Math.min(1, up)), values.length / (page.span === "1h" ? 12 : 5)),
    );
  return series;
}

export function refresh() {
  if (!page.frame || !page.shown) return;
  if (performance.now() - page.linesAt > (page.shown.points ? RELOAD_MS / 3 : RELOAD_MS)) loadLines();
  draw();
}

// Between two readings of the history each frame adds a second to the lines of the last five minutes.
export function extend() {
  if (page.span !== "5m" || page.shown.points || !page.shown.series) return;
  const length = Math.max(0, ...Object.values(page.lines).map((values) => values.length));
  for (const name of Object.keys(page.frame.now))
    if (length && !page.lines[name] && page.shown.series.some((each) => name.startsWith(each)))
      page.lines[name] = Array(length).fill(null);
  for (const [name, values] of Object.entries(page.lines)) {
    if (page.shown.sparks && name.startsWith("topic.")) continue;
    values.push(page.frame.now[name] ?? null);
    if (values.length > 300) values.shift();
  }
}

function draw() {
  try {
    page.shown.update();
  } catch (fault) {
    toast(`This page failed to draw what came: ${fault.message}`, true);
    reportError(fault);
  }
}
