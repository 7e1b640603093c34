// The operator's page. One stream brings a frame a second that says everything; /history brings the hour before.
// A view is built once and then brought up to date, so that focus and selection stay. Text is never set as markup.
// No build step: the browser loads these files as they are, and those of a view when it is opened.
//
// state      what the parts share             element    elements; what is in a box follows its data
// words      numbers and times for people     ask        asking the node, and saying what came of it
// dialog     a question with fields           chart      sparklines, charts, tiles
// table      tables that sort                 panels     what services describe as data
// history    the lines of the open view       rail       the views; each other file is one of them

import { Refused, ask } from "./ask.js";
import { $, bits, h, keyed, level, put } from "./element.js";
import { extend, refresh } from "./history.js";
import { drawBadges, drawRail, goByKey, openView } from "./rail.js";
import { page } from "./state.js";
import { lasting } from "./words.js";

const SILENT_MS = 5000; // a frame comes every second; so long without one is a broken stream
const RETRY_MS = [500, 1000, 2000, 4000, 8000, 15000];
const KEYS = [
  ["/", "filter"],
  ["g", "go to a view: then o, t, d, g, w, i, k, s, r, c or l"],
  ["?", "these keys"],
  ["Esc", "close"],
];

let heardAt = -1; // when the last frame came, on this machine's own clock
let nextTryAt = 0;
let why = ""; // what ended the stream, when the node said so

function show(data) {
  page.frame = data;
  const { node } = page.frame;
  if (!page.span) page.span = page.frame.at - node.started_at > 600000 ? "1h" : "5m";
  level($("verdict"), node.level);
  level($("dot"), node.level);
  put($("state"), node.title);
  put($("why"), node.why);
  put($("facts"), `up ${lasting((page.frame.at - node.started_at) / 1000)} · ${node.version}`);
  keyed(
    $("concerns"),
    node.concerns,
    (each) => each.view + each.words,
    (each) => h("a.btn", { href: `#/${each.view}` }, each.view === "overview" ? "" : `Look at ${each.words}`),
    (anchor, each) => {
      anchor.hidden = each.view === "overview";
    },
  );
  drawBadges();
  if (!page.shown) openView();
  else {
    extend();
    refresh();
  }
  placeVerdict();
}

// The overview explains the verdict; elsewhere a bad one is one line.
function placeVerdict() {
  const first = page.shown.name === "overview";
  $("verdict").hidden = !first && page.frame.node.level !== "bad";
  $("verdict").classList.toggle("slim", !first);
}

class SignedOut extends Error {}

async function follow() {
  const stop = new AbortController();
  let lastSign = performance.now();
  const watch = setInterval(() => performance.now() - lastSign > SILENT_MS && stop.abort(), 1000);
  try {
    const answer = await fetch("/events/stream", {
      headers: { Accept: "text/event-stream" },
      cache: "no-store",
      signal: stop.signal,
    });
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

function open(signedIn) {
  $("login").hidden = signedIn;
  $("leave").hidden = $("view").hidden = $("views").hidden = !signedIn;
}

function signOut(told) {
  open(false);
  page.frame = page.shown = page.unseen = null;
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

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view that is open
  $("view").focus();
});

$("leave").addEventListener("click", async () => {
  await fetch("/logout", { method: "POST" }).catch(() => {});
  location.reload();
});

addEventListener("hashchange", () => {
  if (!page.frame || !location.hash.startsWith("#/")) return;
  openView();
  scrollTo(0, 0);
  $("view").focus({ preventScroll: true });
  placeVerdict();
});

async function showKeys() {
  const { question } = await import("./dialog.js");
  question("Keys", "", [bits(KEYS.map(([key, what]) => [h("code", key), what]))], "Close");
}

let going = false;

addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || $("ask").open;
  if (!page.frame || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (going) goByKey(event.key);
  going = event.key === "g" && !going;
  if (event.key === "/" && $("filter")) {
    event.preventDefault();
    $("filter").focus();
  }
  if (event.key === "?") showKeys();
});

async function begin() {
  const secret = new URLSearchParams(location.hash.slice(1)).get("once");
  if (secret) {
    // Out of the address bar and the history before anything else.
    window.history.replaceState(null, "", "/");
    const told = await signIn({ once: secret });
    if (told) return signOut(told);
  }
  const known = await ask("GET", "/session").catch(() => null);
  return known?.signed_in === false ? signOut("") : live();
}

drawRail();
open(false);
$("login").hidden = true;
setInterval(() => $("login").hidden && tell(), 1000);
begin();
