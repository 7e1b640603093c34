// Panels: what services describe as data, drawn by the kind of picture they name.

import { ask, doing, enc } from "./ask.js";
import { now, rate } from "./chart.js";
import { question } from "./dialog.js";
import { h, keyed, link, once, pill, put } from "./element.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { toTopic } from "./topic_table.js";
import { count, perSecond, plural } from "./words.js";

const FILL_WARN = 0.5;
const FILL_BAD = 0.8;
const CALM = ["running", "finished"];

// Values that lead to where the page shows more of them.
const LINKED = {
  topic: (value) => toTopic(value),
  message: (value, row) => `${toTopic(row.topic)}?find=${enc(value)}`,
  corr_id: (value) => `logs?text=${enc(value)}`,
};

// The end of a long id tells it from its neighbours; all of it stands where the link leads, and under the pointer.
const tail = (id) => (id.length > 24 && !id.includes("/") ? `…${id.slice(-12)}` : id);

function named(anchor, title) {
  anchor.title = title;
  return anchor;
}

function column([key, title, kind]) {
  if (!LINKED[kind]) return { key, title, kind: kind === "text" ? undefined : kind };
  const made = (row) => (row[key] ? named(link(LINKED[kind](row[key], row), tail(row[key])), row[key]) : "");
  return { key, title, cell: (cell, row) => once(cell, row[key], () => made(row)) };
}

const PICTURES = {
  table(panel, acts) {
    const columns = panel.columns.map(column);
    const offered = (row) => panel.actions.filter(([id]) => !row.actions || row.actions.includes(id));
    const button = ([id, label, asked], row) =>
      h("button", { type: "button", onclick: () => acts(id, label, asked, row[columns[0].key]) }, label);
    const cell = (box, row) =>
      once(box, `${row[columns[0].key]} ${row.actions}`, () =>
        h(
          ".acts",
          offered(row).map((each) => button(each, row)),
        ),
      );
    if (panel.actions) columns.push({ key: "acts", title: "", kind: "acts", sort: false, cell });
    return table(panel.title, columns, { key: columns[0].key, empty: panel.empty });
  },
  events: (panel) =>
    table(
      panel.title,
      [
        { key: "at", title: "when", kind: "time" },
        { key: "service", title: "who", kind: "text" },
        {
          key: "text",
          title: "what",
          cell: (cell, row) => put(cell, row.text, row.level === "info" ? "text" : `text ${row.level}`),
        },
      ],
      { key: "id", sortable: false, empty: panel.empty },
    ),
  services: (panel) =>
    table(
      panel.title,
      [
        { key: "service", title: "service" },
        {
          key: "state",
          title: "state",
          cell: (cell, row) =>
            once(cell, row.state, () =>
              pill(
                row.state,
                row.state === "ready" ? "green" : /degraded|draining|stopped/.test(row.state) ? "amber" : "red",
              ),
            ),
        },
        {
          key: "note",
          title: "why",
          cell: (cell, row) =>
            put(
              cell,
              [
                row.fatal && `${row.fatal} gave up`,
                gates("shut", row.missing),
                gates("degraded", row.degraded),
                row.brownout,
              ]
                .filter(Boolean)
                .join("; "),
              "text",
            ),
        },
        { key: "waiting", title: "queued work", kind: "count" },
        {
          key: "rate",
          title: "answered",
          kind: "rate",
          cell: (cell, row) =>
            rate(cell, `answered.${row.service}`, "blue", perSecond(now(`answered.${row.service}`) || 0)),
        },
        { key: "busy", title: "busy refusals", kind: "bad" },
        { key: "restarts", title: "restarts", kind: "bad" },
      ],
      { sortable: false },
    ),
  meters: (panel) =>
    table(
      panel.title,
      [
        { key: "id", title: "channel" },
        {
          key: "fill",
          title: "full",
          cell: (cell, row) =>
            meter(
              once(cell, row.id, () => h(".bar", { role: "meter", "aria-label": `${row.id}, percent full` }, h("i"))),
              row.fill,
            ),
        },
        {
          key: "depth",
          title: "waiting of",
          kind: "count",
          cell: (cell, row) =>
            put(cell, row.kind === "watch" ? "latest value" : `${count(row.depth)} / ${count(row.capacity)}`),
        },
        { key: "dropped", title: "refused, lost", kind: "bad" },
      ],
      { sortable: false, key: "id" },
    ),
  tasks: (panel) =>
    table(
      panel.title,
      [
        { key: "id", title: "task" },
        {
          key: "state",
          title: "state",
          cell: (cell, row) =>
            put(
              cell,
              Object.entries(row.states)
                .map(([word, n]) => (n > 1 ? `${n} ${word}` : word))
                .join(", "),
              Object.keys(row.states).every((word) => CALM.includes(word)) ? "text" : "text bad",
            ),
        },
        { key: "error", title: "last error" },
        {
          key: "restarts",
          title: "restarts",
          kind: "bad",
          cell: (cell, row) =>
            put(cell, row.restarts ? plural(row.restarts, "restart") : "–", row.restarts ? "warn" : ""),
        },
      ],
      { sortable: false, key: "id" },
    ),
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
  events: (rows) =>
    rows.map((row, at) => {
      const twins = rows.slice(0, at).filter((other) => other.at === row.at && other.text === row.text);
      return { ...row, id: `${row.at} ${row.service} ${row.text} ${twins.length}` };
    }),
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
  const acts = (id, label, asked, row) =>
    doing(async () => {
      if (asked && !(await question(asked, `${row}`, [], label))) return "";
      const said = await ask("POST", `/panels/${panel.id}/${id}`, { row: String(row) });
      put(told, said.said);
      const rows = said.rows.length
        ? table(
            said.said,
            said.columns.map(([key, title, kind]) => ({ key, title, kind: kind === "text" ? undefined : kind })),
            { sortable: false },
          )
        : null;
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
      put(
        summary,
        now2.render === "tasks"
          ? `${plural(quiet.length, "task")} running calmly`
          : `${plural(quiet.length, "channel")} empty, with nothing dropped`,
      );
      put(small, [now2.note, now2.more && `and ${count(now2.more)} more`].filter(Boolean).join(", "));
      failed.hidden = true;
    } catch (fault) {
      failed.hidden = false;
      put(failed, `This section failed. ${now2.error || fault}`);
      if (!now2.error) reportError(fault);
    }
  };
  return section;
}

// The panels of one view, below what the view draws itself.
export function panelsOf(view) {
  const box = h(".stack");
  box.update = () => {
    const mine = page.frame.panels.filter((panel) => (panel.view || "runtime") === view);
    keyed(
      box,
      mine,
      (panel) => panel.id,
      beginPanel,
      (section, panel) => section.draw(panel),
    );
  };
  return box;
}
