// The settings of one topic: read, changed, paused, resumed.

import { ask, doing, enc, mailbox, toast } from "./ask.js";
import { field, question } from "./dialog.js";
import { bits, h, put } from "./element.js";

const TOPIC_SETTINGS = [
  ["max_attempts", "Attempts before a message is dead (0: endless)"],
  ["visibility_ms", "Lease in ms"],
  ["delay_ms", "Delay in ms"],
  ["retention_s", "Kept for, in seconds"],
  ["dead_letter_to", "Dead letters go to topic"],
  ["max_payload", "Largest payload in bytes"],
];

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

export async function editSettings(name) {
  const settings = (await readSettings(name)).settings || {};
  const said = await question(
    `Settings of ${name}`,
    "An empty field means the mailbox's default.",
    TOPIC_SETTINGS.map(([key, label]) => field(key, label, { value: settings[key] ?? "" })),
    "Save",
    false,
    async (values) => {
      const next = { ...settings };
      for (const [key] of TOPIC_SETTINGS) {
        const text = values[key].trim();
        if (!text) delete next[key];
        // What is no number goes as it is: the node says what is wrong with it, and nothing is changed.
        else next[key] = key === "dead_letter_to" || Number.isNaN(Number(text)) ? text : Number(text);
      }
      await mailbox("PUT", `topics/${enc(name)}/settings`, next);
    },
  );
  if (said) toast("Saved; it holds from now on.");
}
