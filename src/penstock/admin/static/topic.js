// One topic: its figures, its messages, one message's life, purging.

import { ask, doing, enc, mailbox } from "./ask.js";
import { chart, tile } from "./chart.js";
import { field, question } from "./dialog.js";
import { h, keyed, link, once, put } from "./element.js";
import { spanTabs } from "./heading.js";
import {
  SHOWN,
  STATES,
  causeOf,
  corrLink,
  fieldsOf,
  findLetter,
  messageItem,
  peekOne,
  peekPath,
  sendTo,
  upTo,
} from "./message.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { editSettings, settingsOf } from "./topic_settings.js";
import { count, lasting, moment, perSecond, plural, size } from "./words.js";

export default function topic(name, query) {
  let state = "ready";
  let most = SHOWN;
  let asked = 0;
  const row = () => (page.frame.topics || []).find((each) => each.topic === name) || {};
  const tiles = [
    ["Waiting", "ready", count],
    ["In flight", "inflight", count],
    ["Delayed", "delayed", count],
    ["Dead", "dead", count],
    ["Oldest", "oldest_s", (s) => (s ? lasting(s) : "–")],
    ["Receivers waiting", "receivers", count],
    ["Size", "bytes", size],
  ].map(([title, key, format]) => tile(title, () => row()[key], format));
  const flow = chart(
    "Messages a second",
    [
      ["in", "in", "blue", true],
      ["recv", "delivered", "violet"],
      ["out", "acked", "teal"],
    ].map(([way, label, colour, fill]) => ({ name: `topic.${way}:${name}`, label, colour, fill })),
    { format: perSecond },
  );
  const backlog = chart("Backlog", [{ name: `topic.left:${name}`, label: "waiting", colour: "blue", fill: true }], {
    format: count,
  });
  const list = h("div");
  const told = h("p.none");
  const tabs = h(
    ".tabs",
    { role: "group", "aria-label": "Messages" },
    STATES.map(([id, label]) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(id === state),
          onclick: (event) => {
            state = id;
            most = SHOWN;
            for (const each of tabs.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
            peek();
          },
        },
        label,
      ),
    ),
  );
  const more = h(
    "button",
    {
      type: "button",
      hidden: true,
      onclick: () => {
        most += SHOWN;
        peek();
      },
    },
    "Show more",
  );
  // What was asked for later counts: an answer that comes after its successor's is out of date.
  const peek = () =>
    doing(async () => {
      asked += 1;
      const mine = asked;
      const found = await upTo(most, `${peekPath(name)}&state=${state}`, "messages");
      if (mine !== asked) return;
      keyed(
        list,
        found.rows,
        (each) => [each.msg_id, state, each.attempt, each.visible_at].join(),
        (each) => messageItem(each, state),
        () => {},
      );
      more.hidden = !found.more;
      const none = { ready: "waits", inflight: "is leased", delayed: "is delayed", dlq: "is dead" }[state];
      put(told, found.more ? `The oldest ${found.rows.length}.` : found.rows.length ? "" : `No message ${none} here.`);
    });
  const find = h("input", {
    type: "search",
    placeholder: "msg_id or corr_id",
    "aria-label": "Find a message by msg_id or corr_id",
  });
  const life = h("div");
  const finding = h("form.row", h("label", "One message's life", find), h("button", { type: "submit" }, "Find"));
  const follow = () => doing(() => lifeOf(name, find.value.trim(), life));
  finding.addEventListener("submit", (event) => {
    event.preventDefault();
    follow();
  });
  find.value = query.get("find") || "";
  if (find.value) follow();
  const settings = h("div");
  const showSettings = () => settingsOf(name, settings, pause);
  const pause = h("button", { type: "button", hidden: true });
  const acts = [
    h("button.main", { type: "button", onclick: () => sendTo(name) }, "Send a message"),
    pause,
    h("button", { type: "button", onclick: () => editSettings(name).then(showSettings) }, "Settings"),
    h("button.bad", { type: "button", onclick: () => purge(name).then(peek) }, "Purge"),
  ];
  const receivers = h("section.card", h("h2", "Consumers"), h("p"), h("div"));
  peek();
  showSettings();
  return {
    series: [`topic.in:${name}`, `topic.recv:${name}`, `topic.out:${name}`, `topic.left:${name}`],
    reload: peek,
    nodes: [
      h(".head", h("h1", link("topics", "Topics"), " / ", name), h(".acts", spanTabs(), acts)),
      h(".tiles", tiles),
      h(".grid", flow, backlog),
      h(".grid", h("section.card", h("h2", "Settings"), settings), receivers),
      h(
        "section.card",
        h("h2", "Messages", h("button", { type: "button", onclick: peek }, "Look again")),
        tabs,
        told,
        list,
        h(".acts", more),
      ),
      h("section.card", finding, life),
    ],
    update() {
      [...tiles, flow, backlog].forEach((each) => each.update());
      const { receivers: waiting = 0, inflight = 0 } = row();
      const waits = `${plural(waiting, "receiver")} ${waiting === 1 ? "waits" : "wait"} for a message`;
      put(receivers.children[1], `${waits}; ${plural(inflight, "message")} ${inflight === 1 ? "is" : "are"} leased.`);
      once(receivers.lastChild, "button", () =>
        h("button", { type: "button", onclick: () => leases(name, receivers.lastChild) }, "Show the leases"),
      );
    },
  };
}

const leases = (name, box) =>
  doing(async () => {
    const found = (await mailbox("GET", `topics/${enc(name)}/peek?state=inflight&limit=${SHOWN}`)).messages;
    const rows = table(
      "Leases",
      [
        { key: "msg_id", title: "message" },
        { key: "attempt", title: "attempt", kind: "count" },
        { key: "visible_at", title: "leased until", kind: "time" },
        { key: "corr_id", title: "corr_id", cell: (cell, row) => once(cell, row.corr_id, () => corrLink(row.corr_id)) },
      ],
      { empty: "No message is leased." },
    );
    rows.update(found);
    box.made = "button";
    box.replaceChildren(h("button", { type: "button", onclick: () => leases(name, box) }, "Look again"), rows);
  });

async function lifeOf(name, wanted, box) {
  const steps = [];
  // A msg_id is found wherever the message is, a corr_id only among the oldest.
  let found = wanted.length === 36 && (await peekOne(name, wanted));
  for (const [state] of STATES)
    found ||= (await upTo(256, `${peekPath(name)}&state=${state}`, "messages")).rows.find(
      (each) => each.corr_id === wanted,
    );
  const id = found ? found.corr_id : wanted;
  if (found) {
    steps.push([found.ts, "sent", `to ${name}, ${size(found.size)}`]);
    if (found.state === "dlq") {
      const letter = await findLetter(name, found.msg_id);
      for (const each of letter?.history || []) steps.push([each.at, "attempt ended", causeOf(each)]);
      if (letter) steps.push([letter.dead_at, "died", `${letter.reason}, after ${plural(letter.attempts, "attempt")}`]);
    } else {
      const label = STATES.find(([state]) => state === found.state)[1].toLowerCase();
      steps.push([Date.now(), label, `${plural(found.attempt, "attempt")} so far`]);
    }
  }
  for (const line of (await ask("GET", `/logs?text=${enc(id)}`)).lines)
    steps.push([line.at, `${line.service} ${line.event}`, fieldsOf(line)]);
  steps.sort((a, b) => a[0] - b[0]);
  const gone = "it was acknowledged or purged, or it has expired.";
  box.replaceChildren(
    found ? "" : h("p.none", `No message here has this msg_id, and none of a state's oldest 256 this corr_id: ${gone}`),
    h(
      "ol.life",
      steps.map(([at, what, text]) => h("li", h("span.dim", `${moment(at)} `), h("b", what), " ", text)),
    ),
    found ? messageItem(found, found.state) : "",
  );
}

async function purge(name) {
  const said = await question(
    `Purge ${name}?`,
    "Every message that waits or is leased is removed and cannot be brought back. Dead letters stay.",
    [
      field("name", `Type ${name} to go on`, {
        required: "",
        pattern: name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"),
        autocomplete: "off",
      }),
    ],
    "Purge",
    true,
  );
  if (said)
    await doing(
      async () => `${plural((await mailbox("POST", `topics/${enc(name)}/purge`)).purged, "message")} removed.`,
    );
}
