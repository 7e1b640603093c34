// The operator's page: follows one stream of frames and draws each panel by the name of its picture.
// A frame says everything, so a missed one costs nothing. Text is set as text, never as markup.

const SILENT_MS = 5000; // a frame comes every second; so long without one is a broken stream
const RETRY_MS = [500, 1000, 2000, 4000, 8000, 15000];
const RATE_WINDOW_MS = 10000;
const LEVELS = { ready: "good", degraded: "warn", draining: "warn", stopped: "warn" };
const FILL_WARN = 0.5;
const FILL_BAD = 0.8;

const $ = (id) => document.getElementById(id);
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const calendar = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

let heardAt = -1; // when the last frame came, on this machine's own clock
let nextTryAt = 0;
let why = ""; // what ended the stream, when the node said so

// --- small things -----------------------------------------------------------------------------------------

function make(tag, kind = "", text = "") {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text) node.textContent = text;
  return node;
}

function put(node, text, kind) {
  if (node.textContent !== text) node.textContent = text;
  if (kind !== undefined && node.className !== kind) node.className = kind;
}

function level(node, value) {
  if (node.dataset.level !== value) node.dataset.level = value;
}

const count = (n) => n.toLocaleString("en");

function size(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; n >= 1024 && at < units.length - 1; at += 1) n /= 1024;
  return `${at && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

function span(s) {
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

const perSecond = (n) => (n ? `${n < 10 ? n.toFixed(1) : count(Math.round(n))}/s` : "0/s");

function moment(ms) {
  if (!ms) return "";
  return Date.now() - ms < 86400000 ? clock.format(ms) : calendar.format(ms);
}

const history = new Map(); // counter to its readings of the last ten seconds

function rate(name, value, at) {
  let readings = history.get(name);
  if (!readings || readings.at(-1)[1] > value) history.set(name, (readings = []));
  readings.push([at, value]);
  while (readings.length > 2 && at - readings[0][0] > RATE_WINDOW_MS) readings.shift();
  const [since, before] = readings[0];
  return at > since ? ((value - before) * 1000) / (at - since) : 0;
}

// Bring the rows of a box in line with data: a row that stays is the same element, so that focus and selection stay.
function rows(box, data, keyOf, begin, fill) {
  const old = box.known || new Map();
  const now = new Map();
  data.forEach((row, at) => {
    const key = keyOf(row);
    const node = old.get(key) || begin(row);
    fill(node, row);
    if (box.children[at] !== node) box.insertBefore(node, box.children[at] || null);
    now.set(key, node);
  });
  for (const [key, node] of old) if (!now.has(key)) node.remove();
  box.known = now;
}

// A row of cells: the first names it, cells with a title are figures and carry the title on a narrow screen.
function line(cells) {
  const row = make("div", "row");
  row.setAttribute("role", "row");
  row.cells = cells.map(([kind, title]) => {
    const cell = make("span", kind);
    cell.setAttribute("role", "cell");
    if (title) cell.dataset.title = title;
    row.append(cell);
    return cell;
  });
  return row;
}

function heading(titles) {
  const row = make("div", "row head");
  row.setAttribute("role", "row");
  titles.forEach((title, at) => {
    const cell = make("span", at && title ? "num" : "", title);
    cell.setAttribute("role", "columnheader");
    row.append(cell);
  });
  return row;
}

// --- pictures: each draws the rows of one kind of panel into its body ------------------------------------------

const SERVICE_CELLS = [["name"], ["state"], ["num", "waiting"], ["num", "busy"], ["num", "answered"], ["num", "restarts"], ["note"]];

function services(body, panel, at) {
  const box = once(body, () => [heading(["service", "", "waiting", "busy", "answered", "restarts"])]);
  const begin = () => line(SERVICE_CELLS);
  rows(box, panel.rows, (row) => row.service, begin, (node, row) => {
    const [name, state, waiting, busy, answered, restarts, note] = node.cells;
    const worst = LEVELS[row.state] || "bad";
    const busyRate = rate(`busy ${row.service}`, row.busy, at);
    put(name, row.service);
    put(state, row.state, worst === "good" ? "state" : `state ${worst}`);
    put(waiting, count(row.waiting));
    put(busy, perSecond(busyRate), busyRate ? "num warn" : "num");
    put(answered, perSecond(rate(`answered ${row.service}`, row.answered, at)));
    put(restarts, count(row.restarts), row.restarts ? "num warn" : "num");
    const said = [row.fatal && `${row.fatal} gave up`, gates("shut", row.missing), gates("degraded", row.degraded), row.brownout];
    put(note, said.filter(Boolean).join("; "), `note ${worst}`);
    note.hidden = !note.textContent;
  });
}

function gates(how, list) {
  return list.map((gate) => `${gate.gate} ${how}${gate.why ? ` (${gate.why})` : ""}`).join(", ");
}

function meters(body, panel, at) {
  const box = once(body, () => [heading(["channel", "", "waiting of", "refused, lost"])]);
  const [quiet, busy] = parted(panel.rows, (row) => row.depth === 0 && row.dropped === 0);
  body.firstChild.hidden = busy.length === 0;
  draw(box, busy, at);
  draw(aside(body, `${quiet.length} channels are empty and have dropped nothing`, quiet.length), quiet, at);
}

function draw(box, data, at) {
  rows(box, data, (row) => `${row.service} ${row.name}`, beginMeter, (node, row) => {
    const [name, , depth, dropped] = node.cells;
    const full = row.depth / row.capacity;
    const lossRate = rate(`dropped ${row.service} ${row.name}`, row.dropped, at);
    const worst = full >= FILL_BAD ? "bad" : full >= FILL_WARN ? "warn" : "good";
    put(name, `${row.service} ${row.name}`);
    put(depth, row.kind === "watch" ? "latest value" : `${count(row.depth)} / ${count(row.capacity)}`);
    put(dropped, row.dropped ? `${count(row.dropped)} (${perSecond(lossRate)})` : "0", lossRate ? "num warn" : "num");
    level(node.meter, worst);
    node.meter.setAttribute("aria-valuenow", String(Math.round(full * 100)));
    node.bar.style.width = `${Math.min(100, full * 100)}%`;
  });
}

function beginMeter(row) {
  const node = line([["name"], ["meter"], ["num", "waiting"], ["num", "refused, lost"]]);
  node.meter = node.cells[1];
  node.meter.setAttribute("role", "meter");
  node.meter.setAttribute("aria-label", `${row.service} ${row.name}, percent full`);
  node.bar = node.meter.appendChild(make("i"));
  return node;
}

const calmly = (row) => Object.keys(row.states).every((word) => word === "running" || word === "finished");

// The tree: a service, under it the tasks that want a look, and the others folded away.
function tasks(body, panel) {
  const groups = new Map();
  for (const row of panel.rows) groups.set(row.service, [...(groups.get(row.service) || []), row]);
  rows(body, [...groups], ([service]) => service, beginService, (part, [, members]) => {
    const [calm, restless] = parted(members, (row) => calmly(row) && !row.restarts);
    drawTasks(once(part, () => []), restless);
    const words = restless.length ? `${calm.length} more run undisturbed` : `${calm.length} tasks run undisturbed`;
    drawTasks(aside(part, words, calm.length), calm);
  });
}

function beginService([service]) {
  const part = make("div");
  part.append(make("h3", "", service));
  return part;
}

function drawTasks(box, data) {
  rows(box, data, (row) => row.name, () => line([["name"], ["state"], ["num"], ["note"]]), fillTask);
}

function fillTask(node, row) {
  const [name, state, restarts, note] = node.cells;
  const states = Object.entries(row.states);
  const calm = calmly(row);
  const lost = "fatal" in row.states || "quarantined" in row.states;
  put(name, row.name + (row.critical ? " (critical)" : ""));
  put(state, states.map(([word, n]) => (n > 1 ? `${n} ${word}` : word)).join(", ") || "not started", calm ? "state" : lost ? "state bad" : "state warn");
  put(restarts, row.restarts ? `${count(row.restarts)} ${row.restarts > 1 ? "restarts" : "restart"}` : "", "num warn");
  put(note, row.error ? `last crash: ${row.error}` : "", "note dim");
  note.hidden = !row.error;
}

const KINDS = { text: String, count, bytes: size, rate: perSecond, seconds: span, bad: count };

function table(body, panel) {
  const acts = panel.actions || [];
  const titles = panel.columns.map(([, title]) => title);
  const box = once(body, () => [heading(acts.length ? [...titles, ""] : titles)]);
  const shape = `minmax(9rem, 2fr) repeat(${panel.columns.length - 1}, minmax(4.5rem, 1fr))${acts.length ? " minmax(11rem, 1fr)" : ""}`;
  body.firstChild.style.gridTemplateColumns = shape;
  const begin = () => {
    const cells = titles.map((title, at) => (at ? ["num", title] : ["name"]));
    const node = line(acts.length ? [...cells, ["acts"]] : cells);
    node.style.gridTemplateColumns = shape;
    return node;
  };
  rows(box, panel.rows, (row) => row[panel.columns[0][0]], begin, (node, row) => {
    panel.columns.forEach(([key, , kind], at) => {
      const wrong = kind === "bad" && row[key] ? "num bad" : at ? "num" : "name";
      put(node.cells[at], (KINDS[kind] || String)(row[key]), wrong);
    });
    if (acts.length) buttons(node.cells.at(-1), panel, row);
  });
}

// What can be done with a row: a button each. One that asks first is pressed twice, and forgets the first when left.
function buttons(cell, panel, row) {
  const offered = panel.actions.filter(([id]) => !row.actions || row.actions.includes(id));
  rows(cell, offered, ([id]) => id, ([id, label, question]) => {
    const button = make("button", "", label);
    const rest = () => put(button, label, "");
    button.type = "button";
    button.addEventListener("blur", rest);
    button.addEventListener("click", () => {
      if (question && button.textContent === label) return put(button, question, "bad");
      rest();
      return act(button.closest("section"), panel.id, id, button.row);
    });
    return button;
  }, (button) => {
    button.row = row[panel.columns[0][0]];
    button.title = button.row;
  });
}

async function act(section, panel, action, row) {
  put(section.told, "…", "told");
  section.found.hidden = true;
  const asked = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ row }) };
  try {
    const answer = await fetch(`/panels/${panel}/${action}`, asked);
    const done = await answer.json();
    put(section.told, answer.ok ? done.said : done.detail || `The node answered ${answer.status}.`, answer.ok ? "told" : "told bad");
    if (answer.ok && done.columns.length) look(section.found, done);
  } catch {
    put(section.told, "The node does not answer.", "told bad");
  }
}

function look(box, done) {
  box.replaceChildren();
  box.box = undefined;
  table(box, done);
  box.hidden = false;
}

function events(body, panel) {
  const begin = () => line([["dim"], ["name"], ["text"]]);
  const seen = new Map(); // equal lines of one instant are told apart by their number
  const keyOf = (row) => {
    const text = `${row.at} ${row.service} ${row.text}`;
    seen.set(text, (seen.get(text) || 0) + 1);
    return `${text} ${seen.get(text)}`;
  };
  rows(body, panel.rows, keyOf, begin, (node, row) => {
    const [when, service, text] = node.cells;
    put(when, moment(row.at));
    when.title = row.at ? new Date(row.at).toISOString() : "";
    put(service, row.service);
    put(text, row.text, row.level === "info" ? "text" : `text ${row.level}`);
  });
}

const PICTURES = { services, meters, tasks, table, events };

// Put the fixed part of a body there at the first frame; returns the box its rows live in.
function once(body, fixed) {
  if (!body.box) body.append(...fixed(), (body.box = make("div")));
  return body.box;
}

// Fold rows nobody has to read behind a line that counts them; returns the box they live in.
function aside(body, words, many) {
  if (!body.rest) {
    body.rest = make("details");
    body.rest.box = make("div");
    body.rest.append(make("summary"), body.rest.box);
    body.append(body.rest);
  }
  put(body.rest.firstChild, words);
  body.rest.hidden = many === 0;
  return body.rest.box;
}

function parted(data, judge) {
  return [data.filter(judge), data.filter((row) => !judge(row))];
}

// --- one frame --------------------------------------------------------------------------------------------

function show(frame) {
  const { node } = frame;
  const worst = LEVELS[node.state] || "bad";
  level($("verdict"), worst);
  put($("state"), node.state);
  put($("why"), node.why || "Every gate is open.");
  put($("facts"), `${location.host}, version ${node.version}, up ${span((frame.at - node.started_at) / 1000)}`);
  document.title = `${node.state} - penstock`;
  rows($("panels"), frame.panels, (panel) => panel.id, beginPanel, (section, panel) => drawPanel(section, panel, frame.at));
  rows($("contents"), frame.panels, (panel) => panel.id, (panel) => {
    const link = make("a", "", panel.title);
    link.href = `#${panel.id}`;
    return link;
  }, () => {});
}

// One section that fails, here or in the node, says so in its place; the others go on.
function drawPanel(section, panel, at) {
  let failed = panel.error;
  try {
    if (!failed) PICTURES[panel.render]?.(section.body, panel, at);
  } catch (fault) {
    failed = String(fault);
    reportError(fault);
  }
  put(section.more, panel.more ? `and ${count(panel.more)} more` : "");
  put(section.none, failed ? `This section failed. ${failed}` : panel.empty, failed ? "empty bad" : "empty");
  section.none.hidden = !failed && panel.rows.length > 0;
  section.body.hidden = Boolean(failed) || panel.rows.length === 0;
}

function beginPanel(panel) {
  const section = make("section", `panel ${panel.render}`);
  const title = make("h2", "", panel.title);
  section.id = panel.id;
  section.tabIndex = 0;
  title.id = `${panel.id}-title`;
  section.setAttribute("aria-labelledby", title.id);
  section.more = title.appendChild(make("small"));
  section.none = make("p", "empty");
  section.body = make("div");
  section.told = make("p", "told");
  section.told.setAttribute("role", "status");
  section.found = make("div", "found");
  section.found.hidden = true;
  section.append(title, section.body, section.none, section.told, section.found);
  return section;
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
      if (error instanceof SignedOut) return ask(heardAt < 0 ? "" : "Your session has ended.");
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
  const link = $("link");
  level(link, broken && heardAt >= 0 ? "bad" : "good");
  const reason = why ? `: ${why}` : "";
  if (heardAt < 0) put(link, why ? `not connected${reason}` : "connecting");
  else put(link, broken ? `disconnected${reason}, last update ${span(age)} ago` : "live");
}

// --- signing in and out -----------------------------------------------------------------------------------

function open(signedIn) {
  $("login").hidden = signedIn;
  $("leave").hidden = $("verdict").hidden = $("panels").hidden = $("contents").hidden = !signedIn;
}

function ask(told) {
  open(false);
  heardAt = -1;
  document.body.classList.remove("stale");
  put($("told"), told);
  put($("link"), "signed out");
  level($("link"), "good");
  $("token").focus();
}

async function signIn(secret) {
  const answer = await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(secret) });
  if (answer.ok) return "";
  const problem = await answer.json().catch(() => ({}));
  return problem.detail || `The node answered ${answer.status}.`;
}

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const told = await signIn({ token: $("token").value.trim() }).catch(() => "The node does not answer.");
  $("token").value = "";
  if (told) return ask(told);
  return live();
});

$("leave").addEventListener("click", async () => {
  await fetch("/logout", { method: "POST" }).catch(() => {});
  location.reload();
});

async function begin() {
  const once = new URLSearchParams(location.hash.slice(1)).get("once");
  if (once) {
    // Out of the address bar and the history before anything else.
    window.history.replaceState(null, "", "/");
    const told = await signIn({ once }).catch(() => "The node does not answer.");
    if (told) return ask(told);
  }
  return live();
}

setInterval(() => $("login").hidden && tell(), 1000);
begin();
