// The operator's page. One stream brings a frame a second that says everything; /history brings the hour before.
// A view is built once and then brought up to date, so that focus and selection stay. Text is never set as markup.

const SILENT_MS = 5000; // a frame comes every second; so long without one is a broken stream
const RETRY_MS = [500, 1000, 2000, 4000, 8000, 15000];
const RELOAD_MS = 10000;
const POINTS = 60; // of a sparkline
const SHOWN = 50; // rows of a long list
const FILL_WARN = 0.5;
const FILL_BAD = 0.8;
const COLOURS = ["red", "amber", "violet", "blue", "teal", "dim"];
const CALM = ["running", "finished"];
const KEYS = [["/", "filter"], ["g", "go to a view: then o, t, d, g, w, i, k, s, r or l"], ["?", "these keys"], ["Esc", "close"]];

const $ = (id) => document.getElementById(id);
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const calendar = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

let frame = null;
let heardAt = -1; // when the last frame came, on this machine's own clock
let nextTryAt = 0;
let why = ""; // what ended the stream, when the node said so
let span = "";
let shown = null; // the view that is open: {name, update, series, points}
let lines = {};
let linesAt = -Infinity;

// --- elements ---------------------------------------------------------------------------------------------

// h("button.bad", {onclick}, "Delete"): an element, its classes, its attributes and what is in it.
function h(name, ...rest) {
  const [tag, ...kinds] = name.split(".");
  const node = /^(svg|path)$/.test(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag || "div");
  if (kinds.length) node.setAttribute("class", kinds.join(" "));
  for (const part of rest.flat(2)) {
    if (part === null || part === undefined || part === false) continue;
    if (typeof part === "object" && !(part instanceof Node)) {
      for (const [key, value] of Object.entries(part)) {
        if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
        else if (value === true || value === false) node[key] = value;
        else if (value !== undefined) node.setAttribute(key, value);
      }
    } else node.append(part);
  }
  return node;
}

function put(node, text, kind) {
  if (node.textContent !== text) node.textContent = text;
  if (kind !== undefined && node.getAttribute("class") !== kind) node.setAttribute("class", kind);
}

function level(node, value) {
  if (node.dataset.level !== value) node.dataset.level = value;
}

// Bring the children of a box in line with data: what stays is the same element.
function keyed(box, data, keyOf, begin, fill) {
  const old = box.known || new Map();
  const now = new Map();
  data.forEach((row, at) => {
    const key = keyOf(row);
    const node = old.get(key) || begin(row);
    fill(node, row);
    if (box.children[at] !== node) box.insertBefore(node, box.children[at] || null);
    now.set(key, node);
  });
  for (const [key, node] of old) if (now.get(key) !== node) node.remove();
  box.known = now;
}

// --- words ------------------------------------------------------------------------------------------------

const count = (n) => Math.round(n).toLocaleString("en");
const short = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)}M` : n >= 1e4 ? `${(n / 1e3).toFixed(0)}k` : count(n));

function size(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; n >= 1024 && at < 4; at += 1) n /= 1024;
  return `${at && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

function lasting(s) {
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

const perSecond = (n) => (!n ? "0/s" : n < 0.1 ? "<0.1/s" : `${n < 10 ? n.toFixed(1) : count(n)}/s`);
const delay = (s) => (s < 0.001 ? `${Math.round(s * 1e6)} µs` : s < 1 ? `${(s * 1000).toFixed(s < 0.01 ? 1 : 0)} ms` : `${s.toFixed(1)} s`);
const percent = (n) => `${n < 10 ? n.toFixed(1) : Math.round(n)} %`;
const moment = (ms) => (!ms ? "" : Date.now() - ms < 86400000 ? clock.format(ms) : calendar.format(ms));
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

const KINDS = {
  text: (v) => String(v), count, bytes: size, rate: perSecond, time: moment, delay,
  seconds: (s) => (s ? lasting(s) : "–"),
  bad: (n) => (n ? count(n) : "–"),
};

function say(kind, value) {
  return value === null || value === undefined ? "–" : (KINDS[kind] || KINDS.text)(value);
}

// --- asking the node --------------------------------------------------------------------------------------

class Refused extends Error {}

async function ask(method, path, body) {
  const options = { method, cache: "no-store", headers: {} };
  if (body instanceof Blob) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  const answer = await fetch(path, options);
  const text = await answer.text();
  let said = text;
  try { said = JSON.parse(text); } catch { /* no JSON: shown as it is */ }
  if (answer.ok) return said;
  const told = [said.detail || said.title || `The node answered ${answer.status}.`, said.hint, said.corr_id && `(${said.corr_id})`];
  throw Object.assign(new Refused(told.filter(Boolean).join(" ")), { status: answer.status });
}

const mailbox = (method, path, body) => ask(method, `/api/mailbox/v1/${path}`, body);
const enc = encodeURIComponent;

let toastEnds = 0;

function toast(text, bad = false) {
  put($("toast"), text, bad ? "bad" : "");
  clearTimeout(toastEnds);
  toastEnds = setTimeout(() => put($("toast"), ""), bad ? 12000 : 6000);
}

// Do something and say what came of it; a refusal is told, never swallowed.
async function doing(act) {
  try {
    const said = await act();
    if (said) toast(said);
    return true;
  } catch (fault) {
    toast(fault instanceof Refused ? fault.message : `The node does not answer: ${fault.message}`, true);
    return false;
  }
}

// A question in a dialog: fields in, values out; null when it was left.
function question(title, text, fields, label, bad = false) {
  const box = $("ask");
  return new Promise((done) => {
    const form = h("form", { method: "dialog" }, h("h1", { id: "ask-title" }, title), text && h("p.dim", text), fields.map((f) => f.row || f),
      h(".acts", h("button", { type: "button", onclick: () => box.close("") }, "Cancel"), h("button", { type: "submit", class: bad ? "bad" : "main" }, label)));
    form.addEventListener("submit", () => box.close("ok"));
    box.replaceChildren(form);
    box.addEventListener("close", () => done(box.returnValue === "ok" ? Object.fromEntries(new FormData(form)) : null), { once: true });
    box.returnValue = "";
    box.showModal();
  });
}

function field(name, label, options = {}) {
  const { tag = "input", choices, value = "", ...rest } = options;
  const input = h(choices ? "select" : tag, { name, ...rest }, (choices || []).map((each) => h("option", { value: each, selected: each === value }, each)));
  if (!choices) input.value = value;
  return { row: h("label", label, input), input };
}

// --- pictures ---------------------------------------------------------------------------------------------

// Lines are drawn as pieces between gaps; a lone value is a short dash, so that it can be seen.
function trace(values, most, under) {
  const last = Math.max(1, values.length - 1);
  const y = (v) => (100 - (Math.min(v, most) / most) * 96 - 1).toFixed(2);
  let path = "";
  let began = -1;
  const end = (at) => {
    if (began < 0) return;
    if (at - began === 1) path += `h${(100 / last).toFixed(2)}`;
    if (under) path += `L${((at - 1) * 100) / last} 100L${(began * 100) / last} 100Z`;
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

const canvas = (kind) => h(`svg${kind}`, { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });

function spark(svg, values, colour) {
  const most = Math.max(...values.map((v) => v || 0), 1e-9) * 1.15;
  plot(svg, [[`area c-${colour}`, trace(values, most, true)], [`c-${colour}`, trace(values, most)]]);
}

function nice(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 1.5, 2, 3, 4, 5, 8, 10].find((step) => step * power >= most) * power;
}

// A chart of several lines with a legend that tells the values now, or under the pointer.
function chart(title, parts, options = {}) {
  const { format = count, stacked = false, note = "", least = 0 } = options;
  const svg = canvas("");
  const at = h(".at");
  const grid = [25, 50, 75].map((y) => h("span.y"));
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
  box.addEventListener("pointerleave", () => { under = -1; tell(); });

  function tell() {
    const length = data[0]?.values.length || 1;
    const ago = under < 0 ? 0 : (length - 1 - under) * (span === "1h" ? 10 : 1);
    put(small, under < 0 ? note : `${clock.format(frame.at - ago * 1000)}`);
    keyed(legend, data, (each) => each.label, (each) => h("span", h("i"), h("span")), (node, each) => {
      node.setAttribute("class", `c-${each.colour}`);
      const value = under < 0 ? last(each.values) : each.values[under];
      put(node.lastChild, `${each.label} ${value === null || value === undefined ? "–" : format(value)}`);
    });
  }

  card.update = () => {
    data = (typeof parts === "function" ? parts() : parts).map((each) => ({ ...each, values: lines[each.name] || [] }));
    let drawn;
    let most;
    if (stacked) {
      const sums = [];
      const tops = data.map((each) => each.values.map((v, n) => (sums[n] = (sums[n] || 0) + (v || 0))));
      most = nice(Math.max(least, ...sums, 0));
      drawn = tops.map((top, n) => [`area solid c-${data[n].colour}`, trace(top, most, true)]).reverse();
    } else {
      most = nice(Math.max(least, ...data.flatMap((each) => each.values.map((v) => v || 0))));
      drawn = data.flatMap((each) => {
        const line = [`c-${each.colour}`, trace(each.values, most)];
        return each.fill ? [[`area c-${each.colour}`, trace(each.values, most, true)], line] : [line];
      });
    }
    plot(svg, drawn);
    grid.forEach((node, n) => {
      node.style.top = `${(n + 1) * 25}%`;
      put(node, format((most * (3 - n)) / 4));
    });
    const seconds = (Math.max(1, ...data.map((each) => each.values.length)) - 1) * (span === "1h" ? 10 : 1);
    times.forEach((node, n) => {
      node.style.left = `${n * 50}%`;
      put(node, n === 2 ? "now" : `-${lasting(seconds * (1 - n / 2))}`);
    });
    box.setAttribute("aria-label", `${title}: ${data.map((each) => `${each.label} ${say2(format, last(each.values))}, at most ${say2(format, Math.max(0, ...each.values.map((v) => v || 0)))}`).join("; ")}`);
    tell();
  };
  return card;
}

const say2 = (format, value) => (value === null || value === undefined ? "unknown" : format(value));
const last = (values) => [...values].reverse().find((v) => v !== null && v !== undefined);
const now = (name) => frame.now[name];

function tile(name, read, format, series, colour) {
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
    if (svg) spark(svg, lines[series] || [], colour);
  };
  return node;
}

// A table by columns: {key, title, kind, opt, cell(node, row), sort}. Its headings sort; rows keep their elements.
function table(caption, columns, options = {}) {
  const { key = columns[0].key, sort = null, empty = "Nothing here.", sortable = true } = options;
  let by = sort;
  let down = true;
  let rows = [];
  const text = (column) => (column.kind === undefined || column.kind === "text" ? "text" : "") + (column.opt ? " opt" : "");
  const heads = columns.map((column) => {
    const inner = sortable && column.title && column.sort !== false
      ? h("button", { type: "button", onclick: () => { down = by === column.key ? !down : true; by = column.key; node.update(rows); } }, column.title) : column.title;
    return column.title ? h("th", { scope: "col", class: text(column) }, inner) : h("td");
  });
  const body = h("tbody");
  const none = h("p.none", empty);
  const grid = h("table", h("caption", caption), h("thead", h("tr", heads)), body);
  const node = h("div", h(".scroll", { tabindex: "0", role: "region", "aria-label": caption }, grid), none);
  node.update = (data) => {
    rows = data;
    const shownRows = by === null ? data : [...data].sort((a, b) => (down ? -1 : 1) * compare(a[by], b[by]));
    heads.forEach((head, at) => (columns[at].key === by ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    none.hidden = data.length > 0;
    grid.hidden = !data.length;
    keyed(body, shownRows, (row) => String(row[key]), () => h("tr", columns.map((column) => h("td", { class: text(column) }))), (line, row) => {
      columns.forEach((column, at) => {
        const cell = line.children[at];
        if (column.cell) column.cell(cell, row);
        else put(cell, say(column.kind, row[column.key]), `${text(column)}${column.kind === "bad" && row[column.key] ? " bad" : ""}`.trim());
      });
    });
  };
  return node;
}

const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(b ?? "").localeCompare(String(a ?? "")));

// What a cell holds is made once and kept while its key is the same.
function once(cell, key, make) {
  if (cell.made !== key) {
    cell.made = key;
    cell.replaceChildren(...[make()].flat());
  }
  return cell.firstChild;
}

const link = (to, text, kind = "") => h(`a${kind}`, { href: `#/${to}` }, text);
const pill = (text, colour) => h(`span.pill.c-${colour}`, text);
const toTopic = (name) => `topic/${enc(name)}`;

function sparks(cell, series, colour) {
  spark(once(cell, series, () => canvas(".spark")), lines[series] || [], colour);
}

const TOPIC_COLUMNS = [
  { key: "topic", title: "topic", cell: (cell, row) => once(cell, row.topic, () => link(toTopic(row.topic), row.topic, ".name")) },
  { key: "ready", title: "waiting", kind: "count" },
  { key: "in", title: "sent", kind: "rate", cell: (cell, row) => rated(cell, "in", row, "blue") },
  { key: "out", title: "acked", kind: "rate", opt: true, cell: (cell, row) => rated(cell, "out", row, "teal") },
  { key: "oldest_s", title: "oldest", kind: "seconds" },
  { key: "inflight", title: "in flight", kind: "count", opt: true },
  { key: "delayed", title: "delayed", kind: "count", opt: true },
  { key: "receivers", title: "receivers", kind: "count", opt: true },
  { key: "bytes", title: "size", kind: "bytes", opt: true },
  { key: "dead", title: "dead", kind: "bad", cell: (cell, row) => once(cell, row.dead, () => (row.dead ? link(`dead?topic=${enc(row.topic)}`, pill(count(row.dead), "red")) : "–")) },
];

function rated(cell, way, row, colour) {
  once(cell, row.topic, () => [canvas(".spark.opt"), h("span")]);
  spark(cell.firstChild, lines[`topic.${way}:${row.topic}`] || [], colour);
  put(cell.lastChild, ` ${row[way] ? perSecond(row[way]) : "–"}`);
}

function heading(title, ...more) {
  return h(".head", h("h1", title), h(".acts", ...more));
}

function spanTabs() {
  const node = h(".tabs", { role: "group", "aria-label": "Time shown" }, [["5m", "5 min"], ["1h", "1 hour"]].map(([value, label]) =>
    h("button", { type: "button", "aria-pressed": String(span === value), onclick: (event) => {
      span = value;
      for (const each of node.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
      linesAt = -Infinity;
      refresh();
    } }, label)));
  return node;
}

// --- the views --------------------------------------------------------------------------------------------

const FLOW = [{ name: "sent", label: "sent", colour: "blue", fill: true }, { name: "delivered", label: "delivered", colour: "violet" }, { name: "acked", label: "acked", colour: "teal" }];
const reasonColours = new Map(); // a reason keeps its colour
const reasons = () => Object.keys(lines).filter((name) => name.startsWith("refused.") && lines[name].some(Boolean)).sort().map((name) => {
  if (!reasonColours.has(name)) reasonColours.set(name, COLOURS[reasonColours.size % COLOURS.length]);
  return { name, label: name.slice(8), colour: reasonColours.get(name) };
});

function overview() {
  const tiles = [
    tile("Waiting", () => now("waiting"), short, "waiting", "blue"),
    tile("Oldest message", () => now("oldest_s"), (s) => (s ? lasting(s) : "–"), "oldest_s", "amber"),
    tile("Send, p99", () => last(lines.send_p99 || []), delay, "send_p99", "teal"),
    tile("Through the gateway, p99", () => last(lines.proxy_p99 || []), delay, "proxy_p99", "teal"),
    tile("Refused", () => now("refused"), perSecond, "refused", "red"),
    tile("Loop lag, p99", () => last(lines.lag_p99 || []), delay, "lag_p99", "blue"),
  ];
  const machine = [["CPU", "cpu", percent, "blue"], ["memory", "rss", size, "violet"], ["disk", "disk", (n) => `${percent(n)}, ${size(now("disk_free"))} free`, "amber"], ["commit p99", "commit_p99", delay, "teal"]].map((each) => gauge(...each));
  const refused = h(".bars");
  const refusedSmall = h("small");
  const charts = [
    chart("Refused a second, by reason", reasons, { format: perSecond, stacked: true }),
    chart("Backlog", [{ name: "waiting", label: "waiting", colour: "blue", fill: true }, { name: "inflight", label: "in flight", colour: "violet" }, { name: "dead", label: "dead", colour: "red" }], { format: short, least: 4 }),
    chart("Send and proxied requests", [{ name: "send_p50", label: "send p50", colour: "blue" }, { name: "send_p99", label: "send p99", colour: "violet" }, { name: "proxy_p50", label: "gateway p50", colour: "teal" }, { name: "proxy_p99", label: "gateway p99", colour: "amber" }], { format: delay }),
    chart("Commit and loop lag", [{ name: "commit_p50", label: "commit p50", colour: "teal" }, { name: "commit_p99", label: "commit p99", colour: "amber" }, { name: "lag_p99", label: "loop lag p99", colour: "blue" }], { format: delay }),
    chart("CPU, percent of a core", [{ name: "cpu", label: "CPU", colour: "blue", fill: true }], { format: percent, least: 20 }),
    chart("Memory", [{ name: "rss", label: "resident", colour: "violet", fill: true }], { format: size }),
  ];
  const flow = chart("Messages a second", FLOW, { format: perSecond });
  const topics = table("Busiest topics", TOPIC_COLUMNS, { sortable: false, empty: "No message has been sent yet. penstock send orders --data hello" });
  return {
    series: ["sent", "delivered", "acked", "refused", "waiting", "inflight", "dead", "oldest_s", "send_", "proxy_", "commit_", "lag_", "cpu", "rss", "disk"],
    sparks: true,
    nodes: [heading("Overview", spanTabs()), h(".tiles", tiles),
      h(".grid.wide", flow, h("section.card", h("h2", "Refused", refusedSmall), refused, h("h2.next", "Machine"), h(".bars", machine.flatMap((each) => each.parts)))),
      h(".grid", charts), h("section.card", h("h2", "Topics", link("topics", "all, filter, sort")), topics)],
    update() {
      [...tiles, flow, ...charts].forEach((each) => each.update());
      const step = span === "1h" ? 10 : 1;
      const sums = reasons().map((each) => [each.label, lines[each.name].reduce((sum, v) => sum + (v || 0), 0) * step, each.colour]).filter((each) => each[1] >= 0.5).sort((a, b) => b[1] - a[1]);
      const total = sums.reduce((sum, each) => sum + each[1], 0);
      put(refusedSmall, total ? `${count(total)} in the last ${span === "1h" ? "hour" : "5 min"}` : "");
      bars(refused, sums.slice(0, 6).map(([label, n, colour]) => [label, n / sums[0][1], count(n), colour]), "Nothing was refused.");
      machine.forEach((each) => each.update());
      topics.update((frame.topics || []).slice(0, 8));
    },
  };
}

// A line of a list: name, sparkline, value.
function gauge(label, series, format, colour) {
  const parts = [h("span.dim", label), canvas(".spark.long"), h("span.num")];
  return { parts, update() {
    const value = last(lines[series] || []);
    spark(parts[1], lines[series] || [], colour);
    put(parts[2], value === undefined ? "–" : format(value));
  } };
}

function bars(box, rows, empty) {
  if (box.shape !== `${rows.length}`) {
    box.shape = `${rows.length}`;
    box.replaceChildren(...(rows.length ? rows.flatMap(() => [h("code"), h(".bar", h("i")), h("span.num")]) : [h("p.dim", empty)]));
  }
  rows.forEach(([label, part, text, colour], at) => {
    const [name, bar, value] = [...box.children].slice(at * 3, at * 3 + 3);
    put(name, label);
    bar.setAttribute("class", `bar c-${colour}`);
    bar.firstChild.style.width = `${Math.min(100, (part || 0) * 100)}%`;
    put(value, text);
  });
}

function topics() {
  const filter = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter topics by name", id: "filter" });
  const rows = table("Topics", TOPIC_COLUMNS, { sort: "ready", empty: "No topic matches." });
  const told = h("p.dim");
  filter.addEventListener("input", () => shown.update());
  const form = h("form.row", h("label", "Topic", filter), h("button", { type: "submit" }, "Open"));
  form.addEventListener("submit", (event) => { event.preventDefault(); if (filter.value.trim()) location.hash = `#/${toTopic(filter.value.trim())}`; });
  return {
    series: ["topic.in:", "topic.out:"], points: POINTS,
    nodes: [heading("Topics", spanTabs(), h("button.main", { type: "button", onclick: () => sendTo("") }, "Send a message")), h("section.card", form, rows, told)],
    update() {
      const found = (frame.topics || []).filter((row) => row.topic.includes(filter.value.trim()));
      rows.update(found.slice(0, 200));
      const all = frame.mailbox?.topics || 0;
      put(told, all > (frame.topics || []).length ? `The busiest ${frame.topics.length} of ${count(all)} topics. Type the whole name of another one and open it.` : "Topics that were drained stay here for an hour.");
    },
  };
}

async function sendTo(topic) {
  const said = await question("Send a message", "It is stored like any other message, and a consumer will get it.", [
    field("topic", "Topic", { value: topic, required: "" }), field("payload", "Payload", { tag: "textarea", value: '{"hello": "world"}' }),
    field("key", "Key (messages of one key are delivered in order)"), field("delay", "Delay in seconds", { type: "number", min: "0" })], "Send");
  if (!said) return;
  await doing(async () => {
    const body = { topic: said.topic.trim(), payload_b64: toBase64(new TextEncoder().encode(said.payload)) };
    if (said.key) body.key = said.key;
    if (Number(said.delay)) body.delay_ms = Math.round(Number(said.delay) * 1000);
    const sent = await mailbox("POST", "send", body);
    return `Stored as ${sent.msg_id}.`;
  });
  shown.reload?.();
}

const toBase64 = (bytes) => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
const fromBase64 = (text) => Uint8Array.from(atob(text || ""), (c) => c.charCodeAt(0));

// Bytes as a person reads them: JSON indented, text as it is, anything else as hex.
function legible(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (/[\u0000-\u0008\u000e-\u001f]/.test(text)) throw new RangeError("control characters");
    try { return ["JSON", JSON.stringify(JSON.parse(text), null, 2)]; } catch { return ["text", text]; }
  } catch {
    const rows = [];
    for (let at = 0; at < Math.min(bytes.length, 4096); at += 16) {
      const part = [...bytes.slice(at, at + 16)];
      const hex = part.map((b) => b.toString(16).padStart(2, "0")).join(" ");
      rows.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${part.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : ".")).join("")}`);
    }
    return ["bytes", rows.join("\n")];
  }
}

function bits(pairs) {
  return h("dl.bits", pairs.filter((pair) => pair && pair[1] !== undefined && pair[1] !== null && pair[1] !== "").map(([name, value]) => [h("dt", name), h("dd", value)]));
}

function payloadOf(message) {
  if (message.payload_b64 === undefined && message.payload === undefined) return h("p.dim", "The payload was not read.");
  const bytes = message.payload_b64 === undefined ? new TextEncoder().encode(typeof message.payload === "string" ? message.payload : JSON.stringify(message.payload)) : fromBase64(message.payload_b64);
  const [kind, text] = legible(bytes);
  return [h("p.dim", `Payload: ${size(bytes.length)}, ${kind}`), h("pre", { tabindex: "0" }, text || "(empty)")];
}

const corrLink = (id) => id && link(`logs?text=${enc(id)}`, id);
const attrsOf = (attrs) => Object.entries(attrs || {}).map(([k, v]) => `${k}=${v}`).join(", ");

function messageItem(message, state, more = []) {
  return h("details.item", h("summary", h("code", message.msg_id), h("span.dim", moment(message.ts)), h("span", size(message.size || 0)), message.attempt ? pill(plural(message.attempt, "attempt"), "amber") : "", message.key && h("span.dim", `key ${message.key}`)),
    h("div", bits([["state", state], ["sent", moment(message.ts)], ["key", message.key], ["group", message.group], ["idem_key", message.idem_key], ["attributes", attrsOf(message.attrs)], ["corr_id", corrLink(message.corr_id)],
      ["attempts", String(message.attempt)], [state === "inflight" ? "leased until" : "visible at", message.visible_at && moment(message.visible_at)], ["redriven from", message.redriven_from], ["hash", h("code", message.payload_hash || "")]]), payloadOf(message), more));
}

const STATES = [["ready", "Waiting"], ["inflight", "In flight"], ["delayed", "Delayed"], ["dlq", "Dead letters"]];

function topic(name) {
  let state = "ready";
  const row = () => (frame.topics || []).find((each) => each.topic === name) || {};
  const tiles = [["Waiting", "ready", count], ["In flight", "inflight", count], ["Delayed", "delayed", count], ["Dead", "dead", count], ["Oldest", "oldest_s", (s) => (s ? lasting(s) : "–")], ["Receivers waiting", "receivers", count], ["Size", "bytes", size]]
    .map(([title, key, format]) => tile(title, () => row()[key], format));
  const flow = chart("Messages a second", [["in", "in", "blue", true], ["recv", "delivered", "violet"], ["out", "acked", "teal"]].map(([way, label, colour, fill]) => ({ name: `topic.${way}:${name}`, label, colour, fill })), { format: perSecond });
  const list = h("div");
  const told = h("p.none");
  const tabs = h(".tabs", { role: "group", "aria-label": "Messages" }, STATES.map(([id, label]) => h("button", { type: "button", "aria-pressed": String(id === state), onclick: (event) => {
    state = id;
    for (const each of tabs.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
    peek();
  } }, label)));
  const peek = () => doing(async () => {
    const found = (await mailbox("GET", `topics/${enc(name)}/peek?state=${state}&limit=${SHOWN}&payload=true`)).messages;
    list.replaceChildren(...found.map((message) => messageItem(message, state)));
    put(told, found.length ? (found.length === SHOWN ? `The oldest ${SHOWN}.` : "") : "None.");
  });
  const find = h("input", { type: "search", placeholder: "msg_id or corr_id", "aria-label": "Find a message by msg_id or corr_id" });
  const life = h("div");
  const finding = h("form.row", h("label", "One message's life", find), h("button", { type: "submit" }, "Find"));
  finding.addEventListener("submit", (event) => { event.preventDefault(); doing(() => lifeOf(name, find.value.trim(), life)); });
  const settings = h("div");
  const showSettings = () => settingsOf(name, settings, pause);
  const pause = h("button", { type: "button", hidden: true });
  const acts = [
    h("button.main", { type: "button", onclick: () => sendTo(name) }, "Send a message"), pause,
    h("button", { type: "button", onclick: () => editSettings(name).then(showSettings) }, "Settings"),
    h("button.bad", { type: "button", onclick: () => purge(name).then(peek) }, "Purge"),
  ];
  const receivers = h("section.card", h("h2", "Consumers"), h("p"), h("div"));
  peek();
  showSettings();
  return {
    series: [`topic.in:${name}`, `topic.recv:${name}`, `topic.out:${name}`], reload: peek,
    nodes: [h(".head", h("h1", link("topics", "Topics"), " / ", name), h(".acts", spanTabs(), acts)), h(".tiles", tiles), flow,
      h(".grid", h("section.card", h("h2", "Settings"), settings), receivers),
      h("section.card", h("h2", "Messages", h("button", { type: "button", onclick: peek }, "Look again")), tabs, told, list), h("section.card", finding, life)],
    update() {
      [...tiles, flow].forEach((each) => each.update());
      const { receivers: waiting = 0, inflight = 0 } = row();
      put(receivers.children[1], `${plural(waiting, "receiver")} ${waiting === 1 ? "waits" : "wait"} for a message; ${plural(inflight, "message")} ${inflight === 1 ? "is" : "are"} leased.`);
      once(receivers.lastChild, "button", () => h("button", { type: "button", onclick: () => leases(name, receivers.lastChild) }, "Show the leases"));
    },
  };
}

const leases = (name, box) => doing(async () => {
  const found = (await mailbox("GET", `topics/${enc(name)}/peek?state=inflight&limit=${SHOWN}`)).messages;
  const rows = table("Leases", [{ key: "msg_id", title: "message" }, { key: "attempt", title: "attempt", kind: "count" }, { key: "visible_at", title: "leased until", kind: "time" }, { key: "corr_id", title: "corr_id", cell: (cell, row) => once(cell, row.corr_id, () => corrLink(row.corr_id)) }], { empty: "No message is leased." });
  rows.update(found);
  box.made = "button";
  box.replaceChildren(h("button", { type: "button", onclick: () => leases(name, box) }, "Look again"), rows);
});

async function lifeOf(name, wanted, box) {
  const steps = [];
  let found = null;
  for (const [state, label] of STATES) {
    const page = (await mailbox("GET", `topics/${enc(name)}/peek?state=${state}&limit=256&payload=true`)).messages;
    const message = page.find((each) => each.msg_id === wanted || each.corr_id === wanted);
    if (message) found = { message, state, label };
  }
  const id = found ? found.message.corr_id : wanted;
  if (found) {
    steps.push([found.message.ts, "sent", `to ${name}, ${size(found.message.size)}`]);
    if (found.state === "dlq") {
      const letter = await findLetter(name, found.message.msg_id);
      for (const each of letter?.history || []) steps.push([each.at, "attempt ended", causeOf(each)]);
      if (letter) steps.push([letter.dead_at, "died", `${letter.reason}, after ${plural(letter.attempts, "attempt")}`]);
    } else steps.push([Date.now(), found.label.toLowerCase(), `${plural(found.message.attempt, "attempt")} so far`]);
  }
  for (const line of (await ask("GET", `/logs?text=${enc(id)}`)).lines) steps.push([line.at, `${line.service} ${line.event}`, fieldsOf(line)]);
  steps.sort((a, b) => a[0] - b[0]);
  const told = found ? "" : "It is not among the oldest 256 of any state of this topic: it was acknowledged, purged, has expired, or is further behind.";
  box.replaceChildren(...(told ? [h("p.none", told)] : []), h("ol.life", steps.map(([at, what, text]) => h("li", h("span.dim", `${moment(at)} `), h("b", what), ` ${text}`))), found ? messageItem(found.message, found.state) : "");
}

const causeOf = (each) => each.cause + (each.error ? `: ${each.error.message || ""}` : "");

async function purge(name) {
  const said = await question(`Purge ${name}?`, "Every message that waits or is leased is removed and cannot be brought back. Dead letters stay.", [field("name", `Type ${name} to go on`, { required: "", pattern: name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"), autocomplete: "off" })], "Purge", true);
  if (said) await doing(async () => `${plural((await mailbox("POST", `topics/${enc(name)}/purge`)).purged, "message")} removed.`);
}

// --- settings of a topic

const TOPIC_SETTINGS = [["max_attempts", "Attempts before a message is dead (0: endless)"], ["visibility_ms", "Lease in ms"], ["delay_ms", "Delay in ms"], ["retention_s", "Kept for, in seconds"], ["dead_letter_to", "Dead letters go to topic"], ["max_payload", "Largest payload in bytes"]];

async function readSettings(name) {
  try {
    return (await mailbox("GET", `topics/${enc(name)}/settings`)).settings;
  } catch (fault) {
    if (fault.status === 404) return null;
    throw fault;
  }
}

async function settingsOf(name, box, pause) {
  await doing(async () => {
    const settings = await readSettings(name);
    const pairs = Object.entries(settings || {}).filter(([, value]) => value !== null && value !== undefined && JSON.stringify(value) !== "{}");
    box.replaceChildren(pairs.length ? bits(pairs.map(([k, v]) => [k, typeof v === "object" ? JSON.stringify(v) : String(v)])) : h("p.dim", "It has no settings of its own: the mailbox's defaults hold."));
    const paused = Boolean(settings?.paused);
    pause.hidden = false;
    put(pause, paused ? "Resume" : "Pause");
    pause.onclick = () => doing(async () => {
      await mailbox("PUT", `topics/${enc(name)}/settings`, { ...settings, paused: !paused });
      await settingsOf(name, box, pause);
      return paused ? "Messages are delivered again." : "Nothing is delivered until it is resumed; sending goes on.";
    });
  });
}

async function editSettings(name) {
  const settings = (await readSettings(name).catch(() => null)) || {};
  const said = await question(`Settings of ${name}`, "An empty field means the mailbox's default.", TOPIC_SETTINGS.map(([key, label]) => field(key, label, { value: settings[key] ?? "" })), "Save");
  if (!said) return;
  await doing(async () => {
    const next = { ...settings };
    for (const [key] of TOPIC_SETTINGS) {
      const text = said[key].trim();
      if (!text) delete next[key];
      // What is no number goes as it is: the node says what is wrong with it, and nothing is changed.
      else next[key] = key === "dead_letter_to" || Number.isNaN(Number(text)) ? text : Number(text);
    }
    await mailbox("PUT", `topics/${enc(name)}/settings`, next);
    return "Saved; it holds from now on.";
  });
}

// --- dead letters

async function findLetter(name, id) {
  let cursor = "";
  for (let page = 0; page < 10; page += 1) {
    const found = await mailbox("GET", `dlq?topic=${enc(name)}&limit=256${cursor && `&cursor=${cursor}`}`);
    const letter = found.entries.find((each) => each.msg_id === id);
    if (letter || !found.cursor) return letter;
    cursor = found.cursor;
  }
  return null;
}

function dead(_, query) {
  const groups = table("Dead letters by topic and reason", [
    { key: "topic", title: "topic", cell: (cell, row) => once(cell, row.id, () => link(`dead?topic=${enc(row.topic)}&reason=${enc(row.reason)}`, row.topic, ".name")) },
    { key: "reason", title: "reason" }, { key: "count", title: "letters", kind: "bad" }, { key: "first_at", title: "first died", kind: "time", opt: true }, { key: "last_at", title: "last died", kind: "time" },
    { key: "id", title: "", sort: false, kind: "acts", cell: (cell, row) => once(cell, row.id, () => h(".acts", h("button", { type: "button", onclick: () => redrive(row) }, "Redrive"), h("button.bad", { type: "button", onclick: () => remove(row) }, "Delete"))) },
  ], { key: "id", sort: "count", empty: "No dead letters. Messages come here when all their attempts failed or their time was over." });
  const letters = h("div");
  const topicName = query.get("topic");
  const reason = query.get("reason");
  let seen = -1;
  let askedAt = -Infinity;
  const reload = () => doing(async () => {
    seen = frame.mailbox?.dead;
    const found = (await ask("GET", "/dead-letters")).groups.map((each) => ({ ...each, id: `${each.topic} ${each.reason}` }));
    groups.update(found.filter((each) => !topicName || each.topic === topicName));
    if (topicName && reason !== null) await listLetters(letters, topicName, reason, reload);
  });
  return {
    reload,
    nodes: [h(".head", h("h1", topicName ? [link("dead", "Dead letters"), " / ", topicName, reason ? ` / ${reason}` : ""] : "Dead letters")), h("section.card", groups), topicName && reason !== null ? h("section.card", h("h2", "Letters", h("small", `the oldest ${SHOWN}`)), letters) : ""],
    update() {
      if (seen === (frame.mailbox?.dead ?? 0) || performance.now() - askedAt < 3000) return;
      askedAt = performance.now();
      reload();
    },
  };
}

const chosen = (row) => ({ topic: row.topic, reason: row.reason, limit: 1000000 });

async function redrive(row) {
  await doing(async () => {
    const { accepted } = await mailbox("POST", "dlq/reprocess", { ...chosen(row), dry_run: true });
    const said = await question(`Redrive ${plural(accepted, "dead letter")}?`, `They died of ${row.reason} in ${row.topic}, and are sent again as new messages.`, [field("to", "To topic (empty: where each came from)")], "Redrive");
    if (!said) return "";
    const going = await mailbox("POST", "dlq/reprocess", { ...chosen(row), ...(said.to.trim() ? { to: said.to.trim() } : {}) });
    return `${plural(going.accepted, "letter")} will be sent again.`;
  });
  shown.reload?.();
}

async function remove(row) {
  await doing(async () => {
    const { deleted } = await mailbox("POST", "dlq/delete", { ...chosen(row), dry_run: true });
    if (!(await question(`Delete ${plural(deleted, "dead letter")}?`, `They died of ${row.reason} in ${row.topic}. They cannot be brought back.`, [], "Delete", true))) return "";
    return `${plural((await mailbox("POST", "dlq/delete", chosen(row))).deleted, "letter")} deleted.`;
  });
  shown.reload?.();
}

async function listLetters(box, name, reason, reload) {
  const page = await mailbox("GET", `dlq?topic=${enc(name)}&reason=${enc(reason)}&limit=${SHOWN}`);
  const bodies = new Map((await mailbox("GET", `topics/${enc(name)}/peek?state=dlq&limit=256&payload=true`)).messages.map((each) => [each.msg_id, each]));
  keyed(box, page.entries, (letter) => letter.msg_id, (letter) => letterItem(letter, bodies.get(letter.msg_id) || {}, reload), () => {});
}

function letterItem(letter, body, reload) {
  const one = { topic: letter.topic, msg_id: letter.msg_id, limit: 1 };
  const again = () => doing(async () => {
    await mailbox("POST", "dlq/reprocess", one);
    return "It is sent again.";
  }).then(reload);
  const drop = async () => {
    if (!(await question("Delete this dead letter?", `${letter.msg_id} cannot be brought back.`, [], "Delete", true))) return;
    await doing(async () => `${plural((await mailbox("POST", "dlq/delete", one)).deleted, "letter")} deleted.`);
    reload();
  };
  const edit = async () => {
    const bytes = fromBase64(body.payload_b64);
    const [kind, text] = legible(bytes);
    if (kind === "bytes") return toast("Its payload is binary and cannot be edited here.", true);
    const said = await question("Edit and redrive", `A new message with this payload goes to ${letter.topic}; then the dead letter is deleted.`, [field("payload", "Payload", { tag: "textarea", value: text })], "Send");
    if (!said) return undefined;
    await doing(async () => {
      const edited = kind === "JSON" ? JSON.stringify(JSON.parse(said.payload)) : said.payload;
      const send = { topic: letter.topic, payload_b64: toBase64(new TextEncoder().encode(edited)), attrs: body.attrs || {}, idem_key: `edited:${letter.msg_id}` };
      if (letter.key) send.key = letter.key;
      const sent = await mailbox("POST", "send", send);
      await mailbox("POST", "dlq/delete", one);
      return `Sent as ${sent.msg_id}; the dead letter is deleted.`;
    });
    return reload();
  };
  const past = letter.history.map((each) => h("li", h("span.dim", `${moment(each.at)} `), h("b", causeOf(each)), each.error?.traceback ? h("pre", { tabindex: "0" }, each.error.traceback) : ""));
  return h("details.item", h("summary", h("code", letter.msg_id), h("span.dim", `died ${moment(letter.dead_at)}`), pill(letter.reason, "red"), plural(letter.attempts, "attempt")),
    h("div", h(".acts", h("button", { type: "button", onclick: again }, "Redrive"), h("button", { type: "button", onclick: edit, disabled: body.payload_b64 === undefined }, "Edit and redrive"), h("button.bad", { type: "button", onclick: drop }, "Delete")),
      bits([["sent", moment(letter.ts)], ["key", letter.key], ["attributes", attrsOf(body.attrs)], ["corr_id", corrLink(body.corr_id)], ["hash", h("code", letter.payload_hash)]]), payloadOf(body), past.length ? h("ol.life", past) : ""));
}

// --- gateway

const ROUTE_COLUMNS = [
  { key: "route", title: "route", cell: (cell, row) => once(cell, `${row.route} ${row.open}`, () => [h("span", row.route), row.open ? [" ", pill("open to anyone", "amber")] : ""].flat()) },
  { key: "rate", title: "requests", kind: "rate", cell: (cell, row) => { once(cell, row.route, () => [canvas(".spark.opt"), h("span")]); spark(cell.firstChild, lines[`route.rate:${row.route}`] || [], "blue"); put(cell.lastChild, ` ${perSecond(row.rate)}`); } },
  { key: "s2", title: "2xx", kind: "rate", opt: true }, { key: "s3", title: "3xx", kind: "rate", opt: true }, { key: "s4", title: "4xx", kind: "rate" },
  { key: "s5", title: "5xx", kind: "rate", cell: (cell, row) => put(cell, perSecond(row.s5), row.s5 ? "bad" : "") },
  { key: "p50", title: "p50", kind: "delay", opt: true }, { key: "p99", title: "p99", kind: "delay" },
  { key: "upstreams", title: "upstreams", sort: false, cell: (cell, row) => once(cell, JSON.stringify(row.upstreams || row.kind), () => (row.upstreams ? row.upstreams.map((each) => h("div", pill(each.state === "closed" ? "well" : each.state === "open" ? "left alone" : "tried again", each.state === "closed" ? "green" : each.state === "open" ? "red" : "amber"), ` ${each.url}`)) : h("span.dim", row.kind))) },
];

function gateway() {
  const flow = chart("Requests a second", [{ name: "gateway", label: "answered", colour: "blue", fill: true }], { format: perSecond });
  const delays = chart("Proxied requests", [{ name: "proxy_p50", label: "p50", colour: "teal" }, { name: "proxy_p99", label: "p99", colour: "amber" }], { format: delay });
  const routes = table("Routes", ROUTE_COLUMNS, { empty: "No route is configured. Add one below, or with penstock route add /shop http://127.0.0.1:8000" });
  const live = h("div");
  const reload = async () => {
    try {
      const kept = (await ask("GET", "/admin/routes")).routes;
      const rows = table("Live routes", [{ key: "prefix", title: "prefix" }, { key: "to", title: "upstreams" }, { key: "source", title: "kept in" }, { key: "id", title: "", kind: "acts", sort: false, cell: (cell, row) => once(cell, row.prefix, () => (row.source === "file" ? "" : h(".acts", h("button.bad", { type: "button", onclick: () => dropRoute(row.prefix).then(reload) }, "Remove")))) }], { key: "prefix", empty: "None yet." });
      rows.update(kept.map((each) => ({ ...each, id: each.prefix, to: [].concat(each.upstream || each.upstreams || []).join(", ") })));
      const prefix = h("input", { name: "prefix", placeholder: "/shop", required: "" });
      const upstream = h("input", { name: "upstream", placeholder: "http://127.0.0.1:8000", required: "" });
      const form = h("form.row", h("label", "Prefix", prefix), h("label", "Upstream", upstream), h("button.main", { type: "submit" }, "Add the route"));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        doing(async () => {
          const said = await ask("POST", "/admin/routes", { prefix: prefix.value.trim(), upstream: [upstream.value.trim()] });
          return [`${prefix.value.trim()} is live.`, ...[].concat(said.warnings || [])].join(" ");
        }).then((good) => good && reload());
      });
      live.replaceChildren(rows, form);
    } catch (fault) {
      live.replaceChildren(h("p.dim", fault.status === 404 ? "Routes come from the configuration of this node." : fault.message));
    }
  };
  reload();
  return {
    series: ["gateway", "proxy_", "route.rate:"], panels: "gateway",
    nodes: [heading("Gateway", spanTabs()), h(".grid", flow, delays), h("section.card", h("h2", "Routes"), routes), h("section.card", h("h2", "Add or change a route"), live)],
    update() { [flow, delays].forEach((each) => each.update()); routes.update(frame.routes || []); },
  };
}

const dropRoute = async (prefix) => {
  if (await question(`Remove ${prefix}?`, "Requests under way finish; new ones get 404.", [], "Remove", true)) await doing(async () => { await ask("DELETE", `/admin/routes?prefix=${enc(prefix)}`); return `${prefix} is gone.`; });
};

// --- webhooks, discovery, tokens, storage, runtime, logs

function webhooks() {
  return { panels: "webhooks", nodes: [heading("Webhooks")], update() {} };
}

function discovery() {
  const key = h("input", { placeholder: "a key, or b3:…", required: "", "aria-label": "Key" });
  const found = h("div");
  const form = h("form.row", h("label", "Who provides a key?", key), h("button.main", { type: "submit" }, "Look up"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    doing(async () => {
      const said = await ask("GET", `/api/dht/v1/dht/providers/${enc(key.value.trim())}`);
      const rows = table("Providers", [{ key: "node_id", title: "node" }, { key: "where", title: "addresses" }], { empty: "Nobody provides it, as far as the network knows." });
      rows.update((said.providers || []).map((each) => ({ ...each, where: (each.addrs || []).join(" ") })));
      found.replaceChildren(h("p.dim", `${plural(said.hops || 0, "hop")}, ${plural(said.messages || 0, "message")}, ${(said.elapsed_ms || 0).toFixed(1)} ms.`), rows);
    });
  });
  return { panels: "discovery", nodes: [heading("Discovery"), h("section.card", form, found)], update() {} };
}

const CONTEXT = [["op", "op"], ["topic", "topic"], ["tenant", "tenant"]];

function tokens() {
  const out = h("div", { role: "status" });
  const issue = async () => {
    const said = await question("Issue a token", "It is shown once. It can do what its caveats allow, and no more than yours.", [
      field("subject", "Subject", { value: "worker", required: "" }), field("audience", "For services", { value: "svc-mailbox", required: "" }), field("op", "Operations (empty: all but admin)", { value: "send,recv,ack,nack" }),
      field("topic", "Topics (a prefix ends with /)"), field("ttl", "Lasts for seconds", { type: "number", value: "900", min: "1" }), field("more", "Further caveats, one a line", { tag: "textarea" })], "Issue");
    if (!said) return;
    await doing(async () => {
      const caveats = [said.op.trim() && `op=${said.op.replace(/\s/g, "")}`, said.topic.trim() && `topic=${said.topic.trim()}`, ...said.more.split("\n").map((each) => each.trim())].filter(Boolean);
      const issued = await ask("POST", "/api/passport/v1/passport/issue", { subject_ref: said.subject.trim(), audience: said.audience.split(/[\s,]+/).filter(Boolean), ttl_s: Number(said.ttl), caveats });
      showToken(issued);
      return "Issued. Copy it now: it is not kept.";
    });
  };
  const showToken = (issued) => out.replaceChildren(h("section.card", h("h2", "A new token"), h("pre", { tabindex: "0" }, issued.token), bits([["caveats", (issued.caveats || []).join(", ")], ["until", issued.exp && moment(issued.exp * 1000)], ["tid", issued.tid], ["key", issued.kid]]),
    h(".acts", h("button", { type: "button", onclick: () => doing(async () => { await navigator.clipboard.writeText(issued.token); return "Copied."; }) }, "Copy"))));
  const explain = async () => {
    const said = await question("Explain a token", "Leave the fields below empty to see only what it says.", [field("token", "Token", { tag: "textarea", required: "" }), ...CONTEXT.map(([key, label]) => field(key, label)), field("aud", "service", { value: "svc-mailbox" })], "Explain");
    if (!said) return;
    await doing(async () => {
      const context = Object.fromEntries([...CONTEXT.map(([key]) => key), "aud"].filter((key) => said[key].trim()).map((key) => [key, said[key].trim()]));
      const told = await ask("POST", "/api/passport/v1/passport/verify", { token: said.token.trim(), context });
      const claims = told.claims || {};
      out.replaceChildren(h("section.card", h("h2", "What the token says", pill(told.ok ? "allowed" : `refused: ${told.reason}`, told.ok ? "green" : "red")),
        bits([["subject", claims.sub], ["tenant", claims.tenant], ["for", (claims.aud || []).join(", ")], ["class", claims.class], ["issued", claims.iat && moment(claims.iat * 1000)], ["until", claims.exp && moment(claims.exp * 1000)], ["tid", claims.tid], ["key", claims.kid], ["caveats", (claims.caveats || []).join(", ")], ["not checked", (told.warnings || []).join(", ")]])));
      return "";
    });
  };
  const narrow = async () => {
    const said = await question("Narrow a token", "The result can do what the token can and what the new caveats allow. No issuer is needed to use it.", [field("token", "Token", { tag: "textarea", required: "" }), field("caveats", "New caveats, one a line", { tag: "textarea", value: "op=recv,ack", required: "" })], "Narrow");
    if (said) await doing(async () => { showToken(await ask("POST", "/tokens/narrow", { token: said.token.trim(), caveats: said.caveats.split("\n").map((each) => each.trim()).filter(Boolean) })); return "Narrowed."; });
  };
  const revoke = async () => {
    const said = await question("Revoke", "What is revoked is refused everywhere within a second. It cannot be undone.", [field("kind", "What", { choices: ["tid", "subject_ref", "tenant", "kid", "rid", "epoch"] }), field("value", "Which", { required: "" }), field("reason", "Why")], "Revoke", true);
    if (said) await doing(async () => { await ask("POST", "/api/passport/v1/passport/revoke", { [said.kind]: said.kind === "epoch" ? Number(said.value) : said.value.trim(), reason: said.reason }); return "Revoked."; });
  };
  const acts = [["Issue", issue, "button.main"], ["Narrow", narrow, "button"], ["Explain", explain, "button"], ["Revoke", revoke, "button.bad"]].map(([label, act, kind]) => h(kind, { type: "button", onclick: act }, label));
  return { panels: "tokens", nodes: [heading("Tokens", acts), out], update() {} };
}

function storage() {
  const tiles = [["Objects", "objects", count], ["Bytes", "bytes", size], ["Promised to puts under way", "reserved", size], ["Uploads open", "uploads", count]].map(([title, key, format]) => tile(title, () => frame.storage?.[key], format));
  const told = h("p", { role: "status" });
  const file = h("input", { type: "file", required: "", "aria-label": "File" });
  const putForm = h("form.row", h("label", "Store a file", file), h("button.main", { type: "submit" }, "Put"));
  putForm.addEventListener("submit", (event) => {
    event.preventDefault();
    doing(async () => {
      const said = await ask("PUT", "/api/storage/o", file.files[0]);
      told.replaceChildren("Stored as ", h("code", said.address || said.addr || JSON.stringify(said)));
    });
  });
  const address = h("input", { placeholder: "b3:…", required: "" });
  const getForm = h("form.row", h("label", "Get an object", address), h("button", { type: "submit" }, "Download"));
  getForm.addEventListener("submit", (event) => {
    event.preventDefault();
    doing(async () => {
      const answer = await fetch(`/api/storage/o/${enc(address.value.trim())}`);
      if (!answer.ok) throw new Refused((await answer.json()).detail);
      const url = URL.createObjectURL(await answer.blob());
      h("a", { href: url, download: address.value.trim().replace(":", "-") }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    });
  });
  return { panels: "storage", nodes: [heading("Storage"), h(".tiles", tiles), h(".grid", h("section.card", putForm, told), h("section.card", getForm))], update() { tiles.forEach((each) => each.update()); } };
}

const runtime = () => ({ panels: "runtime", nodes: [heading("Runtime")], update() {} });

const fieldsOf = (line) => Object.entries(line.fields).filter(([k]) => k !== "stack").map(([k, v]) => `${k}=${v}`).join(" ");

function logs(_, query) {
  const least = h("select", { "aria-label": "Least level" }, ["debug", "info", "warning", "error"].map((each) => h("option", { value: each, selected: each === "info" }, each)));
  const text = h("input", { type: "search", id: "filter", placeholder: "text, topic, corr_id", "aria-label": "Text", value: query.get("text") || "" });
  const box = h(".log", { tabindex: "0", role: "log", "aria-label": "Log lines" });
  const none = h("p.none", "No line matches.");
  let seen = 0;
  let asking = false;
  const load = async (anew) => {
    if (asking) return;
    asking = true;
    try {
      const said = await ask("GET", `/logs?after=${anew ? 0 : seen}&level=${least.value}&text=${enc(text.value.trim())}`);
      if (anew) box.replaceChildren();
      for (const line of said.lines) {
        const id = line.fields.corr_id;
        box.prepend(h("div", h("span.dim", moment(line.at)), h("span", { class: line.level === "error" ? "bad" : line.level === "warning" ? "warn" : "dim" }, line.level), h("b", line.service),
          h("span.said", h("span", { class: "ink" }, `${line.event} `), fieldsOf(line).replace(` corr_id=${id}`, "").replace(`corr_id=${id}`, ""), id ? [" ", corrLink(id)] : "", line.fields.stack ? h("pre", { tabindex: "0" }, line.fields.stack) : "")));
      }
      while (box.children.length > 500) box.lastChild.remove();
      seen = said.last;
      none.hidden = box.children.length > 0;
    } catch (fault) {
      toast(fault.message, true);
    } finally {
      asking = false;
    }
  };
  for (const input of [least, text]) input.addEventListener("input", () => load(true));
  load(true);
  return { nodes: [heading("Logs", h("label.tick", "from", least), text), h("section.card", box, none)], update() { load(false); } };
}

// --- panels: what services describe as data, drawn by the kind of picture they name

const PICTURES = {
  table(panel, acts) {
    const columns = panel.columns.map(([key, title, kind]) => ({ key, title, kind: kind === "text" ? undefined : kind }));
    if (panel.actions) columns.push({ key: "acts", title: "", kind: "acts", sort: false, cell: (cell, row) => once(cell, String(row[columns[0].key]), () => h(".acts", panel.actions.filter(([id]) => !row.actions || row.actions.includes(id)).map(([id, label, ask2]) => h("button", { type: "button", onclick: () => acts(id, label, ask2, row[columns[0].key]) }, label)))) });
    return table(panel.title, columns, { key: columns[0].key, empty: panel.empty });
  },
  events: (panel) => table(panel.title, [{ key: "at", title: "when", kind: "time" }, { key: "service", title: "who", kind: "text" }, { key: "text", title: "what", cell: (cell, row) => put(cell, row.text, row.level === "info" ? "text" : `text ${row.level}`) }], { key: "id", sortable: false, empty: panel.empty }),
  services: (panel) => table(panel.title, [
    { key: "service", title: "service" }, { key: "state", title: "state", cell: (cell, row) => once(cell, row.state, () => pill(row.state, row.state === "ready" ? "green" : /degraded|draining|stopped/.test(row.state) ? "amber" : "red")) },
    { key: "note", title: "why", cell: (cell, row) => put(cell, [row.fatal && `${row.fatal} gave up`, gates("shut", row.missing), gates("degraded", row.degraded), row.brownout].filter(Boolean).join("; "), "text") },
    { key: "waiting", title: "queued work", kind: "count", opt: true }, { key: "rate", title: "answered", kind: "rate", cell: (cell, row) => put(cell, perSecond(now(`answered.${row.service}`) || 0)) }, { key: "busy", title: "busy refusals", kind: "bad", opt: true }, { key: "restarts", title: "restarts", kind: "bad" }], { sortable: false }),
  meters: (panel) => table(panel.title, [{ key: "id", title: "channel" }, { key: "fill", title: "full", cell: (cell, row) => meter(once(cell, row.id, () => h(".bar", { role: "meter", "aria-label": `${row.id}, percent full` }, h("i"))), row.fill) },
    { key: "depth", title: "waiting of", kind: "count", cell: (cell, row) => put(cell, row.kind === "watch" ? "latest value" : `${count(row.depth)} / ${count(row.capacity)}`) }, { key: "dropped", title: "refused, lost", kind: "bad" }], { sortable: false, key: "id" }),
  tasks: (panel) => table(panel.title, [{ key: "id", title: "task" }, { key: "state", title: "state", cell: (cell, row) => put(cell, Object.entries(row.states).map(([word, n]) => (n > 1 ? `${n} ${word}` : word)).join(", "), Object.keys(row.states).every((word) => CALM.includes(word)) ? "text" : "text bad") },
    { key: "error", title: "last error" }, { key: "restarts", title: "restarts", kind: "bad", cell: (cell, row) => put(cell, row.restarts ? plural(row.restarts, "restart") : "–", row.restarts ? "warn" : "") }], { sortable: false, key: "id" }),
};

const gates = (how, list) => list.map((gate) => `${gate.gate} ${how}${gate.why ? ` (${gate.why})` : ""}`).join(", ");

function meter(bar, fill) {
  bar.setAttribute("class", `bar c-${fill >= FILL_BAD ? "red" : fill >= FILL_WARN ? "amber" : "blue"}`);
  bar.setAttribute("aria-valuenow", String(Math.round(fill * 100)));
  bar.firstChild.style.width = `${Math.min(100, fill * 100)}%`;
}

// What the pictures need beyond what the node says: a name for each row, and which rows can be folded away.
const PREPARED = {
  meters: (rows) => rows.map((row) => ({ ...row, id: `${row.service} ${row.name}`, fill: row.depth / row.capacity })),
  tasks: (rows) => rows.map((row) => ({ ...row, id: `${row.service} ${row.name}` })),
  events: (rows) => rows.map((row, at) => ({ ...row, id: `${row.at} ${row.service} ${row.text} ${rows.slice(0, at).filter((other) => other.at === row.at && other.text === row.text).length}` })),
};
const QUIET = {
  meters: (row) => row.depth === 0 && row.dropped === 0,
  tasks: (row) => Object.keys(row.states).every((word) => CALM.includes(word)) && !row.restarts,
};

function beginPanel(panel) {
  const told = h("p", { role: "status" });
  const found = h("div");
  const small = h("small");
  const failed = h("p.bad", { hidden: true });
  const section = h("section.card.panel", { id: panel.id }, h("h2", panel.title, small));
  const acts = (id, label, asked, row) => doing(async () => {
    if (asked && !(await question(asked, `${row}`, [], label))) return "";
    const said = await ask("POST", `/panels/${panel.id}/${id}`, { row: String(row) });
    put(told, said.said);
    const rows = said.rows.length ? table(said.said, said.columns.map(([key, title, kind]) => ({ key, title, kind: kind === "text" ? undefined : kind })), { sortable: false }) : null;
    rows?.update(said.rows);
    found.replaceChildren(rows || "");
    return said.said;
  });
  let main;
  let rest;
  const summary = h("summary.dim");
  section.append(failed);
  section.draw = (now2) => {
    try {
      if (now2.error) throw new Error(now2.error);
      if (!main) {
        main = PICTURES[now2.render](now2, acts);
        rest = QUIET[now2.render] && PICTURES[now2.render](now2, acts);
        section.append(main, rest ? h("details", summary, rest) : "", told, found);
      }
      const rows = (PREPARED[now2.render] || ((each) => each))(now2.rows);
      const quiet = rest ? rows.filter(QUIET[now2.render]) : [];
      main.update(rest ? rows.filter((row) => !QUIET[now2.render](row)) : rows);
      main.hidden = rest && quiet.length === rows.length;
      rest?.update(quiet);
      put(summary, now2.render === "tasks" ? `${plural(quiet.length, "task")} running calmly` : `${plural(quiet.length, "channel")} empty, with nothing dropped`);
      put(small, now2.more ? `and ${count(now2.more)} more` : "");
      failed.hidden = true;
    } catch (fault) {
      failed.hidden = false;
      put(failed, `This section failed. ${now2.error || fault}`);
      if (!now2.error) reportError(fault);
    }
  };
  return section;
}

// --- which view is open -----------------------------------------------------------------------------------

const VIEWS = [
  ["overview", "Overview", overview, () => ["", ""]],
  ["topics", "Topics", topics, () => [frame.mailbox ? short(frame.mailbox.topics) : "", ""]],
  ["dead", "Dead letters", dead, () => [frame.mailbox?.dead ? short(frame.mailbox.dead) : "", "bad"]],
  ["gateway", "Gateway", gateway, () => [now("gateway") ? perSecond(now("gateway")) : "", ""]],
  ["webhooks", "Webhooks", webhooks, () => ["", ""]],
  ["discovery", "Discovery", discovery, () => [frame.discovery || "", ""]],
  ["tokens", "Tokens", tokens, () => ["", ""]],
  ["storage", "Storage", storage, () => [frame.storage?.bytes ? size(frame.storage.bytes) : "", ""]],
  ["runtime", "Runtime", runtime, () => ["", ""]],
  ["logs", "Logs", logs, () => ["", ""]],
];
const KEY_OF = { o: "overview", t: "topics", d: "dead", g: "gateway", w: "webhooks", i: "discovery", k: "tokens", s: "storage", r: "runtime", l: "logs" };
const anchors = new Map();

function rail() {
  $("views").append(...VIEWS.map(([id, title]) => {
    const anchor = h("a", { href: `#/${id}` }, title, h("em"));
    anchors.set(id, anchor);
    return anchor;
  }));
}

function openView() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/");
  const id = first === "topic" ? "topics" : first || "overview";
  const view = VIEWS.find((each) => each[0] === id) || VIEWS[0];
  const begin = first === "topic" ? topic : view[2];
  const made = begin(decodeURIComponent(rest.join("/")), new URLSearchParams(search));
  shown = { ...made, name: view[0] };
  const panels = h(".stack");
  shown.box = panels;
  $("view").replaceChildren(h(".stack", made.nodes, panels));
  $("view").dataset.view = first || "overview";
  document.title = `${view[1]} - penstock`;
  for (const [name, anchor] of anchors) name === view[0] ? anchor.setAttribute("aria-current", "page") : anchor.removeAttribute("aria-current");
  linesAt = -Infinity;
  lines = {};
  refresh();
}

let reading = "";

async function loadLines() {
  const view = shown;
  const want = view.series;
  if (!want || reading === view) return;
  reading = view;
  linesAt = performance.now();
  try {
    const parts = [ask("GET", `/history?span=${span}&series=${enc(want.join(","))}&points=${view.points || 0}`)];
    if (view.sparks) parts.push(ask("GET", `/history?span=${span}&series=topic.in:,topic.out:&points=${POINTS}`));
    const said = await Promise.all(parts);
    if (view === shown) lines = Object.assign({}, ...said.map((each) => trimmed(each.series)));
  } catch { /* the stream tells whether the node is there */ } finally {
    reading = "";
  }
  if (view === shown) draw();
}

// A node that has just begun shows the time since then, a minute at least, not an empty hour.
function trimmed(series) {
  const up = (frame.at - frame.node.started_at) / (span === "1h" ? 3600000 : 300000);
  for (const [name, values] of Object.entries(series)) series[name] = values.slice(-Math.max(Math.ceil(values.length * Math.min(1, up)), values.length / (span === "1h" ? 12 : 5)));
  return series;
}

function refresh() {
  if (!frame || !shown) return;
  if (performance.now() - linesAt > (shown.points ? RELOAD_MS / 3 : RELOAD_MS)) loadLines();
  draw();
}

// Between two readings of the history each frame adds a second to the lines of the last five minutes.
function extend() {
  if (span !== "5m" || shown.points || !shown.series) return;
  const length = Math.max(0, ...Object.values(lines).map((values) => values.length));
  for (const name of Object.keys(frame.now)) if (length && !lines[name] && shown.series.some((each) => name.startsWith(each))) lines[name] = Array(length).fill(null);
  for (const [name, values] of Object.entries(lines)) {
    if (shown.sparks && name.startsWith("topic.")) continue;
    values.push(frame.now[name] ?? null);
    if (values.length > 300) values.shift();
  }
}

function draw() {
  try {
    shown.update();
  } catch (fault) {
    toast(`This page failed to draw what came: ${fault.message}`, true);
    reportError(fault);
  }
  const panels = frame.panels.filter((panel) => shown.panels && (panel.view || "runtime") === shown.panels);
  keyed(shown.box, panels, (panel) => panel.id, beginPanel, (section, panel) => section.draw(panel));
}

function show(data) {
  frame = data;
  const { node } = frame;
  if (!span) span = frame.at - node.started_at > 600000 ? "1h" : "5m";
  level($("verdict"), node.level);
  level($("dot"), node.level);
  put($("state"), node.title);
  put($("why"), node.why);
  put($("facts"), `up ${lasting((frame.at - node.started_at) / 1000)} · ${node.version}`);
  keyed($("concerns"), node.concerns, (each) => each.view + each.words, (each) => h("a.btn", { href: `#/${each.view}` }, each.view === "overview" ? "" : `Look at ${each.words}`), (anchor, each) => { anchor.hidden = each.view === "overview"; });
  for (const [id, , , badge] of VIEWS) {
    const [text, kind] = badge();
    put(anchors.get(id).lastChild, text, kind);
  }
  if (!shown) openView();
  else {
    extend();
    refresh();
  }
  $("verdict").hidden = shown.name !== "overview" && node.level !== "bad";
}

// --- the stream -------------------------------------------------------------------------------------------

class SignedOut extends Error {}

async function follow() {
  const stop = new AbortController();
  let lastSign = performance.now();
  const watch = setInterval(() => performance.now() - lastSign > SILENT_MS && stop.abort(), 1000);
  try {
    const answer = await fetch("/events/stream", { headers: { Accept: "text/event-stream" }, cache: "no-store", signal: stop.signal });
    if (answer.status === 401) throw new SignedOut();
    if (answer.status === 429) why = "too many pages are open on this node";
    if (!answer.ok) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      lastSign = performance.now();
      const parts = (text + piece.value).split("\n\n");
      text = parts.pop();
      parts.forEach(take);
    }
  } finally {
    clearInterval(watch);
  }
}

function take(event) {
  const fields = Object.fromEntries(event.split("\n").map((each) => each.split(/: (.*)/s)));
  const data = JSON.parse(fields.data);
  if (fields.event === "state") {
    heardAt = performance.now();
    why = "";
    open(true);
    try {
      show(data);
    } catch (fault) {
      // A fault of this page must not pass for one of the node.
      why = "this page failed to draw what came";
      reportError(fault);
    }
  } else if (fields.event === "bye") {
    if (data.why === "signed_out") throw new SignedOut();
    why = data.why === "stopped" ? "the node has stopped" : "";
  }
  tell();
}

async function live() {
  for (let tries = 0; ; tries += 1) {
    const before = heardAt;
    try {
      await follow();
    } catch (error) {
      if (error instanceof SignedOut) return signOut(heardAt < 0 ? "" : "Your session has ended.");
      // Anything else is the network's: the line below says so, and the next try follows.
    }
    if (heardAt > before) tries = 0;
    const wait = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)] * (0.75 + Math.random() / 2);
    nextTryAt = performance.now() + wait;
    tell();
    await new Promise((done) => setTimeout(done, wait));
  }
}

// Say how old the figures are; old ones fade, so that nobody takes them for the present.
function tell() {
  const age = (performance.now() - heardAt) / 1000;
  const broken = heardAt < 0 || age * 1000 > SILENT_MS || nextTryAt > performance.now() || why;
  document.body.classList.toggle("stale", heardAt >= 0 && Boolean(broken));
  level($("link"), broken && heardAt >= 0 ? "bad" : "good");
  const reason = why ? `: ${why}` : "";
  if (heardAt < 0) put($("link"), why ? `not connected${reason}` : "connecting");
  else put($("link"), broken ? `disconnected${reason}, last update ${lasting(age)} ago` : "live");
}

// --- signing in and out -----------------------------------------------------------------------------------

function open(signedIn) {
  $("login").hidden = signedIn;
  $("leave").hidden = $("view").hidden = $("views").hidden = !signedIn;
}

function signOut(told) {
  open(false);
  frame = shown = null;
  $("view").replaceChildren();
  $("verdict").hidden = true;
  heardAt = -1;
  document.body.classList.remove("stale");
  put($("told"), told);
  put($("link"), "signed out");
  level($("link"), "good");
  level($("dot"), "");
  $("token").focus();
}

async function signIn(secret) {
  try {
    await ask("POST", "/login", secret);
    return "";
  } catch (fault) {
    return fault instanceof Refused ? fault.message.replace(/ \(\S+\)$/, "") : "The node does not answer.";
  }
}

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const told = await signIn({ token: $("token").value.trim() });
  $("token").value = "";
  return told ? signOut(told) : live();
});

$("leave").addEventListener("click", async () => {
  await fetch("/logout", { method: "POST" }).catch(() => {});
  location.reload();
});

addEventListener("hashchange", () => {
  if (!frame || !location.hash.startsWith("#/")) return;
  openView();
  scrollTo(0, 0);
  $("view").focus({ preventScroll: true });
  $("verdict").hidden = shown.name !== "overview" && frame.node.level !== "bad";
});

let going = false;

addEventListener("keydown", (event) => {
  if (!frame || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || $("ask").open) return;
  if (going && KEY_OF[event.key]) location.hash = `#/${KEY_OF[event.key]}`;
  going = event.key === "g" && !going;
  if (event.key === "/" && $("filter")) {
    event.preventDefault();
    $("filter").focus();
  }
  if (event.key === "?") question("Keys", "", [bits(KEYS.map(([key, what]) => [h("code", key), what]))], "Close");
});

async function begin() {
  const secret = new URLSearchParams(location.hash.slice(1)).get("once");
  if (secret) {
    // Out of the address bar and the history before anything else.
    window.history.replaceState(null, "", "/");
    const told = await signIn({ once: secret });
    if (told) return signOut(told);
  }
  return live();
}

rail();
open(false);
$("login").hidden = true;
setInterval(() => $("login").hidden && tell(), 1000);
begin();
