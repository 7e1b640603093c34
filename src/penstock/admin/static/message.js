// One message for people: its payload, its fields, and sending one.

import { ask, enc, mailbox, toast } from "./ask.js";
import { field, question } from "./dialog.js";
import { bits, h, link, pill } from "./element.js";
import { page } from "./state.js";
import { count, moment, plural, size } from "./words.js";

export const SHOWN = 50; // rows of a long list

const CONTROL = /[\u0000-\u0008\u000e-\u001f]/;

export async function sendTo(topic) {
  let sent;
  // Whoever presses again because no answer came sends the same message, not another one.
  const idemKey = `page:${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
  const said = await question(
    "Send a message",
    "It is stored like any other message, and a consumer will get it.",
    [
      field("topic", "Topic", { value: topic, required: "" }),
      field("payload", "Payload", { tag: "textarea", value: '{"hello": "world"}' }),
      field("key", "Key (messages of one key are delivered in order)"),
      field("delay", "Delay in seconds", { type: "number", min: "0" }),
    ],
    "Send",
    false,
    async ({ topic: to, payload, key, delay }) => {
      const body = { topic: to.trim(), payload_b64: toBase64(new TextEncoder().encode(payload)), idem_key: idemKey };
      if (key) body.key = key;
      if (Number(delay)) body.delay_ms = Math.round(Number(delay) * 1000);
      sent = await mailbox("POST", "send", body);
    },
  );
  if (!said) return;
  toast(`Stored as ${sent.msg_id}.`);
  page.shown.reload?.();
}

export const toBase64 = (bytes) => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));

export const fromBase64 = (text) => Uint8Array.from(atob(text || ""), (c) => c.charCodeAt(0));

// Bytes as a person reads them: JSON indented, text as it is, anything else as hex.
export function legible(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (CONTROL.test(text)) throw new RangeError("control characters");
    try {
      return ["JSON", JSON.stringify(JSON.parse(text), null, 2)];
    } catch {
      return ["text", text];
    }
  } catch {
    const rows = [];
    for (let at = 0; at < Math.min(bytes.length, 4096); at += 16) {
      const part = [...bytes.slice(at, at + 16)];
      const hex = part.map((b) => b.toString(16).padStart(2, "0")).join(" ");
      const letters = part.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : ".")).join("");
      rows.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${letters}`);
    }
    return ["bytes", rows.join("\n")];
  }
}

export function payloadOf(message) {
  if (message.payload_b64 === undefined && message.payload === undefined)
    return h("p.dim", "The payload was not read: the message is not here any more.");
  const bytes =
    message.payload_b64 === undefined
      ? new TextEncoder().encode(
          typeof message.payload === "string" ? message.payload : JSON.stringify(message.payload),
        )
      : fromBase64(message.payload_b64);
  const [kind, text] = legible(bytes);
  return [h("p.dim", `Payload: ${size(bytes.length)}, ${kind}`), h("pre", { tabindex: "0" }, text || "(empty)")];
}

// The beginning of a payload in one line, for a list; nothing of what is binary.
export function glimpse(message) {
  if (message.payload_b64 === undefined) return "";
  const first = fromBase64(message.payload_b64).slice(0, 400);
  try {
    // The cut may go through a character: as a stream that is no fault.
    const text = new TextDecoder("utf-8", { fatal: true }).decode(first, { stream: true });
    return CONTROL.test(text) ? "" : text.replace(/\s+/g, " ").slice(0, 160);
  } catch {
    return "";
  }
}

export const corrLink = (id) => id && link(`logs?text=${enc(id)}`, id);

export const attrsOf = (attrs) =>
  Object.entries(attrs || {})
    .map(([k, v]) => `${k}=${v}`)
    .join(", ");

export function messageItem(message, state, more = []) {
  return h(
    "details.item",
    h(
      "summary",
      h("code", message.msg_id),
      h("span.dim", moment(message.ts)),
      h("span", size(message.size || 0)),
      message.attempt ? pill(plural(message.attempt, "attempt"), "amber") : "",
      message.key && h("span.dim", `key ${message.key}`),
      h("span.glimpse.dim", glimpse(message)),
    ),
    h(
      "div",
      bits([
        ["state", state],
        ["sent", moment(message.ts)],
        ["key", message.key],
        ["group", message.group],
        ["idem_key", message.idem_key],
        ["attributes", attrsOf(message.attrs)],
        ["corr_id", corrLink(message.corr_id)],
        ["attempts", String(message.attempt)],
        [state === "inflight" ? "leased until" : "visible at", message.visible_at && moment(message.visible_at)],
        ["redriven from", message.redriven_from],
        ["hash", h("code", message.payload_hash || "")],
      ]),
      payloadOf(message),
      more,
    ),
  );
}

export const STATES = [
  ["ready", "Waiting"],
  ["inflight", "In flight"],
  ["delayed", "Delayed"],
  ["dlq", "Dead letters"],
];

const CAUSE_SHOWN = 200; // characters; an error may have a thousand

// Why an attempt ended; the rest of a long error can be opened.
export function causeOf(each) {
  const told = each.error?.message || "";
  const text = each.cause + (told && `: ${told}`);
  if (text.length <= CAUSE_SHOWN) return [h("b", text)];
  return [
    h("b", `${text.slice(0, CAUSE_SHOWN)}…`),
    h("details", h("summary.dim", `All ${count(told.length)} characters`), h("pre", { tabindex: "0" }, told)),
  ];
}

// Read a list that comes in pages until there are so many; a page may be short and still lead on.
export async function upTo(most, path, list) {
  const rows = [];
  let cursor = "";
  do {
    const limit = Math.min(256, most - rows.length);
    const part = await mailbox("GET", `${path}&limit=${limit}${cursor && `&cursor=${enc(cursor)}`}`);
    rows.push(...part[list]);
    cursor = part.cursor || "";
  } while (cursor && rows.length < most);
  return { rows, more: Boolean(cursor) };
}

export const peekPath = (name) => `topics/${enc(name)}/peek?payload=true`;

// One message whatever its state, or nothing when it is not in the topic.
export const peekOne = (name, id) =>
  ask("GET", `/topics/${enc(name)}/messages/${enc(id)}`).then((found) => found.message);

export async function findLetter(name, id) {
  let cursor = "";
  for (let page = 0; page < 10; page += 1) {
    const found = await mailbox("GET", `dlq?topic=${enc(name)}&limit=256${cursor && `&cursor=${cursor}`}`);
    const letter = found.entries.find((each) => each.msg_id === id);
    if (letter || !found.cursor) return letter;
    cursor = found.cursor;
  }
  return null;
}

export const fieldsOf = (line) =>
  Object.entries(line.fields)
    .filter(([k]) => k !== "stack")
    .map(([k, v]) => `${k}=${v}`)
    .join(" ");
