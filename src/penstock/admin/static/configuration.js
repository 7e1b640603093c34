// The configuration: every setting with its value, where it comes from and when a change takes effect.

import { Refused, ask, doing, toast } from "./ask.js";
import { h, once, put } from "./element.js";
import { heading } from "./heading.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { count, plural } from "./words.js";

const APPLIES = {
  live: "with a reload",
  rebind: "with a reload; the listener moves",
  restart: "with a restart",
};

// As `penstock config show` writes it, but what has parts in lines.
const written = (value) =>
  value === null ? "-" : typeof value === "string" ? value : JSON.stringify(value, null, isTable(value) ? 2 : 0);

const isTable = (value) => typeof value === "object" && JSON.stringify(value).length > 40;

// What stands between backticks is code.
const prose = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", part) : part));

const code = (read) => (cell, row) => {
  const value = read(row);
  put(
    once(cell, `${row.key} ${isTable(value)}`, () => (isTable(value) ? h("pre", { tabindex: "0" }) : h("code"))),
    written(value),
  );
};

const SETTING = {
  key: "key",
  title: "setting",
  cell: (cell, row) => once(cell, row.key, () => [h("code", row.key), h("small.dim", prose(row.help))]),
};
const VALUE = { key: "shown", title: "value", cell: code((row) => row.value) };
const DEFAULT = { key: "default", title: "default", cell: code((row) => row.default) };
const ORIGIN = { key: "origin", title: "comes from" };
const APPLY = { key: "applies", title: "a change takes effect" };

// What somebody set comes before what follows from it.
const rank = (row) => (row.follows ? 1 : 0);

const matches = (row, words) =>
  words.every((word) => `${row.key} ${row.shown} ${row.origin} ${row.help}`.toLowerCase().includes(word));

// Read again; what changed, waits or failed stands in the answer, and the view below follows.
async function reload() {
  const said = await ask("POST", "/v1/node/reload");
  if (said.failed.length) throw new Refused(`Not applied: ${said.failed.join("; ")}`);
  const parts = [
    said.changed.length && `${plural(said.changed.length, "setting")} changed`,
    said.held.length && `${plural(said.held.length, "change")} waiting for a restart`,
  ].filter(Boolean);
  return parts.length ? `Read again: ${parts.join(", ")}.` : "Read again: nothing changed.";
}

export default function configuration() {
  const filter = h("input", {
    type: "search",
    placeholder: "name, value, file, meaning",
    "aria-label": "Filter settings",
    id: "filter",
  });
  const left = h("section.card", { hidden: true, role: "status" });
  const tables = [
    ["Changed from the default", [SETTING, VALUE, DEFAULT, ORIGIN, APPLY]],
    ["At their defaults", [SETTING, VALUE, ORIGIN, APPLY]],
  ].map(([title, columns]) => ({
    rows: table(title, columns, { key: "key", empty: "No setting matches." }),
    small: h("small"),
    title,
  }));
  const cards = tables.map(({ rows, small, title }) =>
    h("section.card.settings", { hidden: true }, h("h2", title, small), rows),
  );
  let settings = null;
  let seen = -1;
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    tables.forEach(({ rows, small }, at) => {
      cards[at].hidden = false;
      const mine = settings.filter((row) => row.changed === !at);
      const found = mine.filter((row) => matches(row, words));
      rows.update(found);
      put(small, found.length < mine.length ? `${count(found.length)} of ${count(mine.length)}` : count(mine.length));
    });
  };
  const tell = ({ held, failed, faults }) => {
    const lines = [
      ...faults.map((each) => ["bad", `The configuration was refused, and the old one holds. ${each}`]),
      ...failed.map((each) => ["bad", `Not applied, and the old state holds. ${each}`]),
      ...held.map((each) => ["warn", `${each.key}: ${each.old} → ${each.new} waits for a restart.`]),
    ];
    left.hidden = !lines.length;
    left.replaceChildren(h("h2", "Since the last reload"), ...lines.map(([kind, text]) => h(`p.${kind}`, text)));
  };
  const load = async () => {
    seen = page.frame.reloads;
    try {
      const said = await ask("GET", "/v1/node/config");
      settings = said.settings.map((row) => ({ ...row, shown: written(row.value), applies: APPLIES[row.apply] }));
      settings.sort((a, b) => rank(a) - rank(b));
      tell(said);
      draw();
    } catch (fault) {
      toast(`The settings could not be read: ${fault.message}`, true);
    }
  };
  filter.addEventListener("input", () => settings && draw());
  load();
  return {
    nodes: [
      heading(
        "Configuration",
        filter,
        h("button.main", { type: "button", onclick: () => doing(reload) }, "Read the files again"),
      ),
      h(
        "p.dim",
        "What the node runs with, as ",
        h("code", "penstock config show --running"),
        " prints it. Secrets are not shown.",
      ),
      left,
      cards,
    ],
    update() {
      if (page.frame.reloads !== seen) load();
    },
  };
}
