// The settings of one topic: read, changed, paused, resumed.

import { Refused, ask, doing, enc, mailbox } from "./ask.js";
import { field, question } from "./dialog.js";
import { bits, h, put } from "./element.js";

const NAMED = "text"; // what is no number even if it looks like one

// By group: [setting, what it is, the choices it has or what kind it is]. Pausing has a button of its own.
const GROUPS = [
  [
    "Delivery",
    ["max_attempts", "Attempts before a message is dead (0: endless)"],
    ["visibility_ms", "Lease in ms"],
    ["delay_ms", "Delay in ms"],
    ["key_batch", "Messages of one key that a receive may take"],
    ["receipts", "Whose receipt settles a message", { strict: "that of the present lease", any: "that of any lease" }],
    ["fair_by", "Who takes turns", { group: "the groups, one message each" }],
  ],
  [
    "The end of a message",
    ["retention_s", "Kept for, in seconds"],
    ["on_expiry", "After that", { dlq: "it is a dead letter", drop: "it is removed" }],
    ["dead_letter_to", "After its last attempt it goes to topic", NAMED],
  ],
  [
    "Repeated sends",
    ["dedup.window_s", "An idem_key is remembered for, in seconds"],
    ["dedup.entries", "So many idem_keys are remembered"],
    ["dedup.mode", "A repeat with other content", { conflict: "is refused", first_wins: "gets the first answer" }],
    ["dedup.on_full", "No room for another", { refuse: "the send is refused", oldest_out: "the oldest is forgotten" }],
  ],
  ["Other", ["max_payload", "Largest payload in bytes"]],
];
const USUAL = {
  receipts: "strict",
  fair_by: "nobody",
  "dedup.mode": "conflict",
  "dedup.on_full": "refuse",
}; // defaults that no configuration changes

// By the public API a topic without settings is a 404; here they are null, and no refusal is counted.
const readSettings = (name) => ask("GET", `/topics/${enc(name)}/settings`);

export async function settingsOf(name, box, pause) {
  await doing(async () => {
    const { settings } = await readSettings(name);
    const pairs = Object.entries(settings || {}).filter(
      ([, value]) => value !== null && value !== undefined && JSON.stringify(value) !== "{}",
    );
    box.replaceChildren(
      pairs.length
        ? bits(pairs.map(([k, v]) => [k, typeof v === "object" ? JSON.stringify(v) : String(v)]))
        : h("p.dim", "It has no settings of its own: the mailbox's defaults hold."),
    );
    const paused = Boolean(settings?.paused);
    pause.hidden = false;
    put(pause, paused ? "Resume" : "Pause");
    pause.onclick = () =>
      doing(async () => {
        await mailbox("PUT", `topics/${enc(name)}/settings`, { ...settings, paused: !paused });
        await settingsOf(name, box, pause);
        return paused ? "Messages are delivered again." : "Nothing is delivered until it is resumed; sending goes on.";
      });
  });
}

const at = (settings, key) => key.split(".").reduce((found, part) => found?.[part], settings);

function setting([key, label, kind], own, defaults) {
  const usual = at(defaults, key) ?? USUAL[key] ?? "";
  const value = String(at(own, key) ?? "");
  if (typeof kind !== "object") return field(key, label, { value, placeholder: String(usual) }).row;
  const choices = [["", `default: ${kind[usual] || usual}`], ...Object.entries(kind)];
  return field(key, label, { value, choices }).row;
}

const lines = (tags) =>
  Object.entries(tags || {})
    .map(([name, value]) => `${name}=${value}`)
    .join("\n");

function tagsIn(text) {
  const pairs = text.split("\n").filter((line) => line.trim());
  for (const line of pairs) if (!line.includes("=")) throw new Refused(`A tag is written as name=value, not ${line}.`);
  return Object.fromEntries(pairs.map((line) => line.split(/=(.*)/s, 2)).map(([name, value]) => [name.trim(), value]));
}

// What is no number goes as it is: the node says what is wrong with it, and nothing is changed.
const read = (text, kind) => (kind || Number.isNaN(Number(text)) ? text : Number(text));

// The settings as the fields say them; what has no field stays as it was.
function changed(settings, values, defaults) {
  const next = { ...settings, dedup: {} };
  for (const [key, , kind] of GROUPS.flatMap(([, ...keys]) => keys)) {
    const [first, second] = key.split(".");
    const text = values[key].trim();
    const into = second ? next.dedup : next;
    delete into[second || first];
    if (text) into[second || first] = read(text, kind);
  }
  // Without a window of its own the mailbox's holds, as the field says; left out it would be another.
  if (!Object.keys(next.dedup).length) delete next.dedup;
  else next.dedup.window_s ??= defaults.dedup.window_s;
  next.tags = tagsIn(values.tags);
  return next;
}

export const editSettings = (name) =>
  doing(async () => {
    const { settings, defaults } = await readSettings(name);
    // What the node leaves out of a dedup that is set is as the contract says, not as the mailbox is configured.
    const own = settings?.dedup ? { ...settings, dedup: { window_s: 300, ...settings.dedup } } : settings || {};
    const said = await question(
      `Settings of ${name}`,
      "An empty field means the default, which stands in it.",
      [
        ...GROUPS.map(([title, ...keys]) =>
          h(
            "fieldset",
            h("legend", h("b", title)),
            h(
              ".stack",
              keys.map((each) => setting(each, own, defaults)),
            ),
          ),
        ),
        field("tags", "Tags, one name=value a line", { tag: "textarea", rows: 2, value: lines(own.tags) }),
      ],
      "Save",
      false,
      (values) => mailbox("PUT", `topics/${enc(name)}/settings`, changed(own, values, defaults)),
    );
    return said && "Saved; it holds from now on.";
  });
