// All topics: filter, sort, open one.

import { h, put } from "./element.js";
import { heading, spanTabs } from "./heading.js";
import { POINTS } from "./history.js";
import { sendTo } from "./message.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { TOPIC_COLUMNS, toTopic } from "./topic_table.js";
import { count } from "./words.js";

export default function topics() {
  const filter = h("input", {
    type: "search",
    placeholder: "Filter by name",
    "aria-label": "Filter topics by name",
    id: "filter",
  });
  const rows = table("Topics", TOPIC_COLUMNS, { sort: "ready", empty: "No topic matches." });
  const told = h("p.dim");
  filter.addEventListener("input", () => page.shown.update());
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
      h("section.card", form, rows, told),
    ],
    update() {
      const found = (page.frame.topics || []).filter((row) => row.topic.includes(filter.value.trim()));
      rows.update(found.slice(0, 200));
      const all = page.frame.mailbox?.topics || 0;
      const most = (page.frame.topics || []).length;
      const some = `The busiest ${most} of ${count(all)} topics. Type the whole name of another one and open it.`;
      put(told, all > most ? some : "Topics that were drained stay here for an hour.");
    },
  };
}
