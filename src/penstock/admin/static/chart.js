// Pictures of figures: sparklines, charts, tiles, bars.

import { h, keyed, once, put } from "./element.js";
import { page } from "./state.js";
import { clock, count, lasting, size } from "./words.js";

// Where a value is drawn, in percent from the top: a line at either end keeps its whole width.
const height = (part) => 99 - part * 96;

// Lines are drawn as pieces between gaps; a lone value is a short dash, so that it can be seen.
function trace(values, most, under) {
  const last = Math.max(1, values.length - 1);
  const y = (v) => height(most ? Math.min(v, most) / most : 0).toFixed(2);
  let path = "";
  let began = -1;
  const end = (at) => {
    if (began < 0) return;
    // The last of all goes to the left: beside it stands its number.
    if (at - began === 1) path += `h${((began === last ? -100 : 100) / last).toFixed(2)}`;
    if (under) path += `V99H${(began * 100) / last}Z`;
    began = -1;
  };
  values.forEach((v, at) => {
    if (v === null || v === undefined) return end(at);
    path += `${began < 0 ? "M" : "L"}${((at * 100) / last).toFixed(2)} ${y(v)}`;
    if (began < 0) began = at;
  });
  end(values.length);
  return path;
}

function plot(svg, drawn) {
  if (svg.paths !== drawn.length) {
    svg.replaceChildren(...drawn.map(() => h("path")));
    svg.paths = drawn.length;
  }
  drawn.forEach(([kind, path], at) => {
    svg.children[at].setAttribute("class", kind);
    svg.children[at].setAttribute("d", path);
  });
}

const canvas = (kind) =>
  h(`svg${kind}`, { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });

function spark(svg, values, colour) {
  const most = Math.max(...values.map((v) => v || 0), 1e-9) * 1.15;
  plot(svg, [
    [`area c-${colour}`, trace(values, most, true)],
    [`c-${colour}`, trace(values, most)],
  ]);
}

// The top of an axis: its quarters are round numbers, of bytes in their own units.
function nice(most, format) {
  if (!(most > 0)) return 0;
  const unit = format === size ? 1024 ** Math.floor(Math.log2(most) / 10) : 1;
  const power = unit * 10 ** Math.floor(Math.log10(most / unit));
  return [1, 2, 4, 6, 8, 10].find((step) => step * power >= most) * power;
}

// A chart of several lines with a legend that tells the values now, or under the pointer.
export function chart(title, parts, options = {}) {
  const { format = count, stacked = false, note = "", least = 0 } = options;
  const svg = canvas("");
  const at = h(".at");
  const grid = [25, 50, 75].map(() => h("span.y"));
  const times = ["", "", ""].map((_, n) => h(["span.x.first", "span.x", "span.x.last"][n]));
  const box = h(".chart", { role: "img" }, grid, svg, at, times);
  const legend = h(".legend");
  const small = h("small", note);
  const card = h("section.card", h("h2", title, small), box, legend);
  let data = [];
  let under = -1;
  box.addEventListener("pointermove", (event) => {
    const { left, width } = box.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - left) / width));
    under = Math.round(part * ((data[0]?.values.length || 1) - 1));
    at.style.left = `${part * 100}%`;
    tell();
  });
  box.addEventListener("pointerleave", () => {
    under = -1;
    tell();
  });

  function tell() {
    const length = data[0]?.values.length || 1;
    const ago = under < 0 ? 0 : (length - 1 - under) * (page.span === "1h" ? 10 : 1);
    put(small, under < 0 ? note : `${clock.format(page.frame.at - ago * 1000)}`);
    keyed(
      legend,
      data,
      (each) => each.label,
      () => h("span", h("i"), h("span")),
      (node, each) => {
        node.setAttribute("class", `c-${each.colour}`);
        const value = under < 0 ? last(each.values) : each.values[under];
        put(node.lastChild, `${each.label} ${value === null || value === undefined ? "–" : format(value)}`);
      },
    );
  }

  card.update = () => {
    data = (typeof parts === "function" ? parts() : parts).map((each) => ({
      ...each,
      values: page.lines[each.name] || [],
    }));
    let drawn;
    let most;
    if (stacked) {
      const sums = [];
      const tops = data.map((each) => each.values.map((v, n) => (sums[n] = (sums[n] || 0) + (v || 0))));
      most = nice(Math.max(least, ...sums, 0), format);
      drawn = tops.map((top, n) => [`area solid c-${data[n].colour}`, trace(top, most, true)]).reverse();
    } else {
      most = nice(Math.max(least, ...data.flatMap((each) => each.values.map((v) => v || 0))), format);
      drawn = data.flatMap((each) => {
        const line = [`c-${each.colour}`, trace(each.values, most)];
        return each.fill ? [[`area c-${each.colour}`, trace(each.values, most, true)], line] : [line];
      });
    }
    plot(svg, drawn);
    grid.forEach((node, n) => {
      node.style.top = `${height((3 - n) / 4)}%`;
      put(node, most ? format((most * (3 - n)) / 4) : "");
    });
    const seconds = (Math.max(1, ...data.map((each) => each.values.length)) - 1) * (page.span === "1h" ? 10 : 1);
    times.forEach((node, n) => {
      node.style.left = `${n * 50}%`;
      put(node, n === 2 ? "now" : seconds ? `-${lasting(seconds * (1 - n / 2))}` : "");
    });
    const heights = data.map((each) => {
      const highest = Math.max(0, ...each.values.map((v) => v || 0));
      return `${each.label} ${say2(format, last(each.values))}, at most ${format(highest)}`;
    });
    box.setAttribute("aria-label", `${title}: ${heights.join("; ")}`);
    tell();
  };
  return card;
}

const say2 = (format, value) => (value === null || value === undefined ? "unknown" : format(value));

export const last = (values) => values.at(-1) ?? undefined; // an older value is none of now

export const now = (name) => page.frame.now[name];

export function tile(name, read, format, series, colour) {
  const value = h("strong");
  const svg = series && canvas(".spark");
  const node = h(".card.tile", h("span.name", name), value, svg);
  node.update = () => {
    const v = read();
    const [, number, unit] = /^([^a-zµ%/]*)(.*)$/i.exec(v === null || v === undefined ? "–" : format(v));
    if (node.said !== number + unit) {
      node.said = number + unit;
      value.replaceChildren(number.trim(), unit ? " " : "", unit ? h("small", unit) : "");
    }
    if (svg) spark(svg, page.lines[series] || [], colour);
  };
  return node;
}

// A line of a list: name, sparkline, value.
export function gauge(label, series, format, colour) {
  const parts = [h("span.dim", label), canvas(".spark.long"), h("span.num")];
  return {
    parts,
    update() {
      const value = last(page.lines[series] || []);
      spark(parts[1], page.lines[series] || [], colour);
      put(parts[2], value === undefined ? "–" : format(value));
    },
  };
}

export function bars(box, rows, empty) {
  if (box.shape !== `${rows.length}`) {
    box.shape = `${rows.length}`;
    box.replaceChildren(
      ...(rows.length ? rows.flatMap(() => [h("code"), h(".bar", h("i")), h("span.num")]) : [h("p.dim", empty)]),
    );
  }
  rows.forEach(([label, part, text, colour], at) => {
    const [name, bar, value] = [...box.children].slice(at * 3, at * 3 + 3);
    put(name, label);
    bar.setAttribute("class", `bar c-${colour}`);
    bar.firstChild.style.width = `${Math.min(100, (part || 0) * 100)}%`;
    put(value, text);
  });
}

// A rate in a cell: its sparkline and what it is now.
export function rate(cell, series, colour, text) {
  once(cell, series, () => [canvas(".spark"), h("span")]);
  spark(cell.firstChild, page.lines[series] || [], colour);
  put(cell.lastChild, ` ${text}`);
}
