// One topic: its figures, its messages, one message's life, purging.

import { ask, doing, enc, mailbox } from "./ask.js";
import { chart, tile } from "./chart.js";
import { field, question } from "./dialog.js";
import { h, link, once, put } from "./element.js";
import { spanTabs } from "./heading.js";
import { SHOWN, STATES, causeOf, corrLink, fieldsOf, findLetter, messageItem, sendTo } from "./message.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { editSettings, settingsOf } from "./topic_settings.js";
import { count, lasting, moment, perSecond, plural, size } from "./words.js";

export default function topic(name, query) {
  let state = "ready";
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
            for (const each of tabs.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
            peek();
          },
        },
        label,
      ),
    ),
  );
  const peek = () =>
    doing(async () => {
      const found = (await mailbox("GET", `topics/${enc(name)}/peek?state=${state}&limit=${SHOWN}&payload=true`))
        .messages;
      list.replaceChildren(...found.map((message) => messageItem(message, state)));
      put(told, found.length ? (found.length === SHOWN ? `The oldest ${SHOWN}.` : "") : `No message ${{ ready: "waits", inflight: "is leased", delayed: "is delayed", dlq: "is dead" }[state]} here.`);
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
    series: [`topic.in:${name}`, `topic.recv:${name}`, `topic.out:${name}`],
    reload: peek,
    nodes: [
      h(".head", h("h1", link("topics", "Topics"), " / ", name), h(".acts", spanTabs(), acts)),
      h(".tiles", tiles),
      flow,
      h(".grid", h("section.card", h("h2", "Settings"), settings), receivers),
      h(
        "section.card",
        h("h2", "Messages", h("button", { type: "button", onclick: peek }, "Look again")),
        tabs,
        told,
        list,
      ),
      h("section.card", finding, life),
    ],
    update() {
      [...tiles, flow].forEach((each) => each.update());
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
  for (const line of (await ask("GET", `/logs?text=${enc(id)}`)).lines)
    steps.push([line.at, `${line.service} ${line.event}`, fieldsOf(line)]);
  steps.sort((a, b) => a[0] - b[0]);
  const gone = "it was acknowledged, purged, has expired, or is further behind.";
  const told = found ? "" : `It is not among the oldest 256 of any state of this topic: ${gone}`;
  box.replaceChildren(
    ...(told ? [h("p.none", told)] : []),
    h(
      "ol.life",
      steps.map(([at, what, text]) => h("li", h("span.dim", `${moment(at)} `), h("b", what), ` ${text}`)),
    ),
    found ? messageItem(found.message, found.state) : "",
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
