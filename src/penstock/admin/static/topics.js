// All topics: filter, sort, open one.

import { ask, enc, sayFault } from "./ask.js";
import { h, put } from "./element.js";
import { heading, spanTabs } from "./heading.js";
import { POINTS } from "./history.js";
import { sendTo } from "./message.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { TOPIC_COLUMNS, toTopic } from "./topic_table.js";
import { count, plural } from "./words.js";

const TYPING_MS = 150; // who pauses for so long has typed what is meant
const AGAIN_MS = 3000; // between two questions; four times as long where there are very many topics
const VERY_MANY = 20000;

export default function topics() {
  const filter = h("input", {
    type: "search",
    placeholder: "any part of a name",
    "aria-label": "Filter topics by name",
    id: "filter",
  });
  let [by, down] = ["ready", true];
  const rows = table("Topics", TOPIC_COLUMNS, {
    sort: by,
    empty: "No topic matches.",
    order: (...now) => {
      [by, down] = now;
      draw(true);
    },
  });
  const told = h("p.dim", { role: "status" });
  let answer = null; // what the node found; null while the frames have every topic
  let turn = 0; // goes up with each question: an answer for an older one is dropped
  let waiting = false; // for the answer to the last question
  let askedAt = -Infinity;
  let typed = 0;

  // A frame has the busiest topics alone: what is beyond them the node is asked for.
  const search = async () => {
    turn += 1;
    askedAt = performance.now();
    const mine = turn;
    waiting = true;
    try {
      const said = await ask("GET", `/topics?text=${enc(filter.value.trim())}&by=${by}&down=${down}`);
      if (mine !== turn) return;
      answer = said;
    } catch (fault) {
      if (mine === turn) put(told, `The topics could not be read: ${sayFault(fault)}`);
      return;
    } finally {
      if (mine === turn) waiting = false;
    }
    show(answer.topics, answer.found, answer.total, answer.aged);
  };

  // What a frame says of a topic is newer than the answer.
  const list = (found) => {
    const live = new Map((page.frame.topics || []).map((row) => [row.topic, row]));
    rows.update(found.map((row) => live.get(row.topic) || row));
  };

  const show = (shown, matching, all, aged) => {
    list(shown);
    const part = matching > shown.length ? `The first ${count(shown.length)} of ` : "";
    const which = plural(all, "topic");
    const found = filter.value.trim() ? `${count(matching)} that match, of ${which}` : which;
    const scope = "The filter and the order look at all of them; one that was drained stays for an hour.";
    const unaged = aged ? "" : " So many match that only the ages of the busiest are compared: filter for fewer.";
    put(told, `${part}${found}. ${scope}${unaged}`);
  };

  const fromFrame = () => {
    const all = page.frame.topics || [];
    const text = filter.value.trim().toLowerCase();
    const found = all.filter((row) => row.topic.toLowerCase().includes(text));
    show(found, found.length, all.length, true);
  };

  const pause = () => AGAIN_MS * (answer?.total > VERY_MANY ? 4 : 1);

  const draw = (anew) => {
    if (!page.frame.mailbox?.unfollowed) fromFrame();
    else if (anew || (!waiting && performance.now() - askedAt > pause())) search();
    else if (answer) list(answer.topics);
  };
  filter.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => page.frame && draw(true), TYPING_MS);
  });
  const form = h("form.row", h("label", "Topic", filter), h("button", { type: "submit" }, "Open"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (filter.value.trim()) location.hash = `#/${toTopic(filter.value.trim())}`;
  });
  return {
    series: ["topic.in:", "topic.out:"],
    points: POINTS,
    nodes: [
      heading("Topics", spanTabs(), h("button.main", { type: "button", onclick: () => sendTo("") }, "Send a message")),
      h("section.card", form, told, rows),
    ],
    update: () => draw(false),
  };
}
