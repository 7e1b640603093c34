// Dead letters: grouped by topic and reason, looked at, sent again, edited, deleted.

import { Refused, ask, doing, enc, mailbox, toast } from "./ask.js";
import { field, question } from "./dialog.js";
import { bits, h, keyed, link, once, pill } from "./element.js";
import {
  SHOWN,
  attrsOf,
  causeOf,
  corrLink,
  fromBase64,
  glimpse,
  legible,
  payloadOf,
  peekOne,
  peekPath,
  toBase64,
  upTo,
} from "./message.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { moment, plural } from "./words.js";

// It changes with every letter that comes or goes; their number alone does not when one comes and another goes.
const standing = () => `${page.frame.mailbox?.died} ${page.frame.mailbox?.dead}`;

export default function dead(_, query) {
  const groups = table(
    "Dead letters by topic and reason",
    [
      {
        key: "topic",
        title: "topic",
        cell: (cell, row) =>
          once(cell, row.id, () => link(`dead?topic=${enc(row.topic)}&reason=${enc(row.reason)}`, row.topic, ".name")),
      },
      { key: "reason", title: "reason" },
      { key: "count", title: "letters", kind: "bad" },
      { key: "first_at", title: "first died", kind: "time" },
      { key: "last_at", title: "last died", kind: "time" },
      {
        key: "id",
        title: "",
        sort: false,
        kind: "acts",
        cell: (cell, row) =>
          once(cell, row.id, () =>
            h(
              ".acts",
              h("button", { type: "button", onclick: () => redrive(row) }, "Redrive"),
              h("button.bad", { type: "button", onclick: () => remove(row) }, "Delete"),
            ),
          ),
      },
    ],
    {
      key: "id",
      sort: "count",
      empty: "No dead letters. Messages come here when all their attempts failed or their time was over.",
    },
  );
  const letters = h("div");
  groups.hidden = true; // until the first answer: before that nobody knows whether there are any
  let most = SHOWN;
  const more = h(
    "button",
    {
      type: "button",
      hidden: true,
      onclick: () => {
        most += SHOWN;
        reload();
      },
    },
    "Show more",
  );
  const topicName = query.get("topic");
  const reason = query.get("reason");
  const bodies = new Map(); // a dead letter never changes: its payload is read once
  let seen = "";
  let askedAt = -Infinity;
  let asked = 0;
  // What was asked for later counts: an answer that comes after its successor's is out of date.
  const reload = () =>
    doing(async () => {
      asked += 1;
      const mine = asked;
      seen = standing();
      const found = (await ask("GET", "/dead-letters")).groups.map((each) => ({
        ...each,
        id: `${each.topic} ${each.reason}`,
      }));
      const listed =
        topicName && reason !== null
          ? await upTo(most, `dlq?topic=${enc(topicName)}&reason=${enc(reason)}`, "entries")
          : null;
      if (listed) await readBodies(topicName, listed.rows, bodies);
      if (mine !== asked) return;
      groups.hidden = false;
      groups.update(found.filter((each) => !topicName || each.topic === topicName));
      if (listed) drawLetters(letters, listed.rows, bodies, reload);
      more.hidden = !listed?.more;
    });
  return {
    reload,
    nodes: [
      h(
        ".head",
        h(
          "h1",
          topicName ? [link("dead", "Dead letters"), " / ", topicName, reason ? ` / ${reason}` : ""] : "Dead letters",
        ),
      ),
      h("section.card", groups),
      topicName && reason !== null
        ? h("section.card", h("h2", "Letters", h("small", "the oldest first")), letters, h(".acts", more))
        : "",
    ],
    update() {
      if (seen === standing() || performance.now() - askedAt < 3000) return;
      askedAt = performance.now();
      reload();
    },
  };
}

const chosen = (row) => ({ topic: row.topic, reason: row.reason, limit: 1000000 });

async function redrive(row) {
  await doing(async () => {
    const { accepted } = await mailbox("POST", "dlq/reprocess", { ...chosen(row), dry_run: true });
    let going;
    const said = await question(
      `Redrive ${plural(accepted, "dead letter")}?`,
      `They died of ${row.reason} in ${row.topic}, and are sent again as new messages.`,
      [field("to", "To topic (empty: where each came from)")],
      "Redrive",
      false,
      async ({ to }) => {
        const elsewhere = to.trim() ? { to: to.trim() } : {};
        going = await mailbox("POST", "dlq/reprocess", { ...chosen(row), ...elsewhere });
      },
    );
    return said && `${plural(going.accepted, "letter")} will be sent again.`;
  });
  page.shown.reload?.();
}

async function remove(row) {
  await doing(async () => {
    const { deleted } = await mailbox("POST", "dlq/delete", { ...chosen(row), dry_run: true });
    if (
      !(await question(
        `Delete ${plural(deleted, "dead letter")}?`,
        `They died of ${row.reason} in ${row.topic}. They cannot be brought back.`,
        [],
        "Delete",
        true,
      ))
    )
      return "";
    return `${plural((await mailbox("POST", "dlq/delete", chosen(row))).deleted, "letter")} deleted.`;
  });
  page.shown.reload?.();
}

// Read the payloads that are lacking: many at once where they are among the topic's oldest, the others one by one.
async function readBodies(name, letters, bodies) {
  const listed = new Set(letters.map((each) => each.msg_id));
  for (const id of bodies.keys()) if (!listed.has(id)) bodies.delete(id);
  const lacking = () => [...listed].filter((id) => !bodies.has(id));
  const keep = (each) => each && listed.has(each.msg_id) && bodies.set(each.msg_id, each);
  if (lacking().length > 5)
    (await mailbox("GET", `${peekPath(name)}&state=dlq&limit=256`)).messages.forEach(keep);
  await Promise.all(lacking().map((id) => peekOne(name, id).then(keep)));
}

function drawLetters(box, entries, bodies, reload) {
  keyed(
    box,
    entries,
    (letter) => letter.msg_id,
    (letter) => letterItem(letter, bodies.get(letter.msg_id) || {}, reload),
    () => {},
  );
}

function compact(json) {
  try {
    return JSON.stringify(JSON.parse(json));
  } catch (fault) {
    throw new Refused(`This is no JSON any more: ${fault.message}`);
  }
}

// What the last attempt that told an error said.
const lastError = (letter) => letter.history.findLast((each) => each.error)?.error.message;

function letterItem(letter, body, reload) {
  const one = { topic: letter.topic, msg_id: letter.msg_id, limit: 1 };
  const again = () =>
    doing(async () => {
      await mailbox("POST", "dlq/reprocess", one);
      return "It is sent again.";
    }).then(reload);
  const drop = async () => {
    if (!(await question("Delete this dead letter?", `${letter.msg_id} cannot be brought back.`, [], "Delete", true)))
      return;
    await doing(async () => `${plural((await mailbox("POST", "dlq/delete", one)).deleted, "letter")} deleted.`);
    reload();
  };
  const edit = async () => {
    const bytes = fromBase64(body.payload_b64);
    const [kind, text] = legible(bytes);
    if (kind === "bytes") return toast("Its payload is binary and cannot be edited here.", true);
    let sent;
    const said = await question(
      "Edit and redrive",
      `A new message with this payload goes to ${letter.topic}; then the dead letter is deleted.`,
      [field("payload", "Payload", { tag: "textarea", value: text })],
      "Send",
      false,
      async ({ payload }) => {
        const send = {
          topic: letter.topic,
          payload_b64: toBase64(new TextEncoder().encode(kind === "JSON" ? compact(payload) : payload)),
          attrs: body.attrs || {},
          idem_key: `edited:${letter.msg_id}`,
        };
        if (letter.key) send.key = letter.key;
        sent = await mailbox("POST", "send", send);
        await mailbox("POST", "dlq/delete", one);
      },
    );
    if (said) toast(`Sent as ${sent.msg_id}; the dead letter is deleted.`);
    return said && reload();
  };
  const past = letter.history.map((each) =>
    h(
      "li",
      h("span.dim", `${moment(each.at)} `),
      causeOf(each),
      each.error?.traceback ? h("pre", { tabindex: "0" }, each.error.traceback) : "",
    ),
  );
  return h(
    "details.item",
    h(
      "summary",
      h("code", letter.msg_id),
      h("span.dim", `died ${moment(letter.dead_at)}`),
      pill(letter.reason, "red"),
      plural(letter.attempts, "attempt"),
      h("span.glimpse.dim", lastError(letter) || glimpse(body)),
    ),
    h(
      "div",
      h(
        ".acts",
        h("button", { type: "button", onclick: again }, "Redrive"),
        h("button", { type: "button", onclick: edit, disabled: body.payload_b64 === undefined }, "Edit and redrive"),
        h("button.bad", { type: "button", onclick: drop }, "Delete"),
      ),
      bits([
        ["sent", moment(letter.ts)],
        ["key", letter.key],
        ["attributes", attrsOf(body.attrs)],
        ["corr_id", corrLink(body.corr_id)],
        ["hash", h("code", letter.payload_hash)],
      ]),
      payloadOf(body),
      past.length ? h("ol.life", past) : "",
    ),
  );
}
