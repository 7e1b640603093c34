// The rail: which views there are, what their links say, and which one is open.

import { now } from "./chart.js";
import { $, h, put } from "./element.js";
import { refresh } from "./history.js";
import overview from "./overview.js";
import { page } from "./state.js";
import { perSecond, short, size } from "./words.js";

// What the first look does not need is loaded when its view is opened. A browser remembers that a script could not be
// loaded, so each further try asks for another address.
const failures = {};

async function load(file) {
  try {
    return (await import(`./${file}.js${failures[file] ? `?try=${failures[file]}` : ""}`)).default;
  } catch (fault) {
    failures[file] = (failures[file] || 0) + 1;
    throw fault;
  }
}

const later = (file) => async (name, query) => (await load(file))(name, query);

// id, title, what begins it, the key after g, and what stands beside its title: text, and its kind.
const VIEWS = [
  ["overview", "Overview", overview, "o"],
  ["topics", "Topics", later("topics"), "t", () => [page.frame.mailbox ? short(page.frame.mailbox.topics) : ""]],
  [
    "dead",
    "Dead letters",
    later("dead"),
    "d",
    () => [page.frame.mailbox?.dead ? short(page.frame.mailbox.dead) : "", "bad"],
  ],
  ["gateway", "Gateway", later("gateway"), "g", () => [now("gateway") ? perSecond(now("gateway")) : ""]],
  ["webhooks", "Webhooks", later("webhooks"), "w"],
  ["discovery", "Discovery", later("discovery"), "i", () => [page.frame.discovery || ""]],
  ["tokens", "Tokens", later("tokens"), "k"],
  [
    "storage",
    "Storage",
    later("storage"),
    "s",
    () => [page.frame.storage?.bytes ? size(page.frame.storage.bytes) : ""],
  ],
  ["runtime", "Runtime", later("runtime"), "r"],
  ["configuration", "Configuration", later("configuration"), "c"],
  ["logs", "Logs", later("logs"), "l"],
];
const oneTopic = later("topic");
const anchors = new Map();

export function drawRail() {
  $("views").append(
    ...VIEWS.map(([id, title]) => {
      const anchor = h("a", { href: `#/${id}` }, title, h("em"));
      anchors.set(id, anchor);
      return anchor;
    }),
  );
}

export function drawBadges() {
  for (const [id, , , , badge] of VIEWS) {
    const [text, kind = ""] = badge ? badge() : [""];
    put(anchors.get(id).lastChild, text, kind);
  }
}

export function goByKey(key) {
  const view = VIEWS.find((each) => each[3] === key);
  if (view) location.hash = `#/${view[0]}`;
}

// Open the view that the address names. The one before stays until its files are here.
export async function openView() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/");
  const id = first === "topic" ? "topics" : first || "overview";
  const [name, title, begin] = VIEWS.find((each) => each[0] === id) || VIEWS[0];
  const opening = (page.shown = { name, update() {} });
  for (const [each, anchor] of anchors)
    each === name ? anchor.setAttribute("aria-current", "page") : anchor.removeAttribute("aria-current");
  // On a phone the rail lies along the top and is wider than the screen.
  const there = anchors.get(name);
  $("rail").scrollLeft = there.offsetLeft - ($("rail").clientWidth - there.offsetWidth) / 2;
  document.title = `${title} - penstock`;
  page.linesAt = -Infinity;
  page.lines = {};
  const made = await begun(first === "topic" ? oneTopic : begin, rest.join("/"), search);
  if (page.shown !== opening) return; // another one was opened meanwhile
  Object.assign(opening, made);
  $("view").replaceChildren(h(".stack", made.nodes));
  $("view").dataset.view = first || "overview";
  refresh();
}

async function begun(begin, name, search) {
  try {
    return await begin(decodeURIComponent(name), new URLSearchParams(search));
  } catch (fault) {
    // The node is gone, or it is another version now, which has other files.
    const again = h("button.main", { type: "button", onclick: () => location.reload() }, "Load the page again");
    return {
      nodes: [h("section.card", h("p.bad", `This view could not be loaded: ${fault.message}`), h(".acts", again))],
      update() {},
    };
  }
}
