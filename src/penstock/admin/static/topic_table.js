// The columns of a table of topics.

import { enc } from "./ask.js";
import { rate } from "./chart.js";
import { h, link, once, pill } from "./element.js";
import { count, perSecond } from "./words.js";

export const toTopic = (name) => `topic/${enc(name)}`;

// A long name is broken after a slash, where there is one.
const breakable = (name) => name.split(/(?<=\/)/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));

export const TOPIC_COLUMNS = [
  {
    key: "topic",
    title: "topic",
    cell: (cell, row) => once(cell, row.topic, () => link(toTopic(row.topic), breakable(row.topic), ".name")),
  },
  { key: "ready", title: "waiting", kind: "count" },
  { key: "in", title: "sent", kind: "rate", cell: (cell, row) => rated(cell, "in", row, "blue") },
  { key: "out", title: "acked", kind: "rate", cell: (cell, row) => rated(cell, "out", row, "teal") },
  { key: "oldest_s", title: "oldest", kind: "seconds" },
  { key: "inflight", title: "in flight", kind: "count" },
  { key: "delayed", title: "delayed", kind: "count" },
  { key: "receivers", title: "receivers", kind: "count" },
  { key: "bytes", title: "size", kind: "bytes" },
  {
    key: "dead",
    title: "dead",
    kind: "bad",
    cell: (cell, row) => {
      const letters = () => link(`dead?topic=${enc(row.topic)}`, pill(count(row.dead), "red"));
      once(cell, row.dead, () => (row.dead ? letters() : "–"));
    },
  },
];

const rated = (cell, way, row, colour) =>
  rate(cell, `topic.${way}:${row.topic}`, colour, row[way] ? perSecond(row[way]) : "–");
