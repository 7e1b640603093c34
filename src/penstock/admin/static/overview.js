// The first look: what flows, what waits, what was refused, how the machine is.

import { bars, chart, gauge, last, now, tile } from "./chart.js";
import { h, link, put } from "./element.js";
import { heading, spanTabs } from "./heading.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { TOPIC_COLUMNS } from "./topic_table.js";
import { count, delay, lasting, perSecond, percent, short, size } from "./words.js";

const COLOURS = ["red", "amber", "violet", "blue", "teal", "dim"];

const FLOW = [
  { name: "sent", label: "sent", colour: "blue", fill: true },
  { name: "delivered", label: "delivered", colour: "violet" },
  { name: "acked", label: "acked", colour: "teal" },
];

// A reason keeps its colour, whichever others there are; the six most usual ones have one each.
const colourOf = (reason) => COLOURS[[...reason].reduce((sum, c) => (sum * 38 + c.charCodeAt(0)) % 997, 0) % 6];

const reasons = () =>
  Object.keys(page.lines)
    .filter((name) => name.startsWith("refused.") && page.lines[name].some(Boolean))
    .sort()
    .map((name) => ({ name, label: name.slice(8), colour: colourOf(name.slice(8)) }));

export default function overview() {
  const tiles = [
    tile("Waiting", () => now("waiting"), (n) => (n < 1e6 ? count(n) : short(n)), "waiting", "blue"),
    tile(
      "Oldest message",
      () => now("oldest_s"),
      (s) => (s ? lasting(s) : "–"),
      "oldest_s",
      "amber",
    ),
    tile("Send, p99", () => last(page.lines.send_p99 || []), delay, "send_p99", "teal"),
    tile("Gateway, p99", () => last(page.lines.proxy_p99 || []), delay, "proxy_p99", "teal"),
    tile("Refused", () => now("refused"), perSecond, "refused", "red"),
    tile("Loop lag, p99", () => last(page.lines.lag_p99 || []), delay, "lag_p99", "blue"),
  ];
  const machine = [
    ["CPU", "cpu", percent, "blue"],
    ["memory", "rss", size, "violet"],
    ["disk", "disk", (n) => `${percent(n)}, ${size(now("disk_free"))} free`, "amber"],
    ["commit p99", "commit_p99", delay, "teal"],
  ].map((each) => gauge(...each));
  const refused = h(".bars");
  const refusedSmall = h("small");
  const charts = [
    chart("Refused a second, by reason", reasons, { format: perSecond, stacked: true }),
    chart(
      "Backlog",
      [
        { name: "waiting", label: "waiting", colour: "blue", fill: true },
        { name: "inflight", label: "in flight", colour: "violet" },
        { name: "dead", label: "dead", colour: "red" },
      ],
      { format: short, least: 4 },
    ),
    chart(
      "Send and proxied requests",
      [
        { name: "send_p50", label: "send p50", colour: "blue" },
        { name: "send_p99", label: "send p99", colour: "violet" },
        { name: "proxy_p50", label: "gateway p50", colour: "teal" },
        { name: "proxy_p99", label: "gateway p99", colour: "amber" },
      ],
      { format: delay },
    ),
    chart(
      "Commit and loop lag",
      [
        { name: "commit_p50", label: "commit p50", colour: "teal" },
        { name: "commit_p99", label: "commit p99", colour: "amber" },
        { name: "lag_p99", label: "loop lag p99", colour: "blue" },
      ],
      { format: delay },
    ),
    chart("CPU, percent of a core", [{ name: "cpu", label: "CPU", colour: "blue", fill: true }], {
      format: percent,
      least: 20,
    }),
    chart("Memory", [{ name: "rss", label: "resident", colour: "violet", fill: true }], { format: size }),
  ];
  const flow = chart("Messages a second", FLOW, { format: perSecond });
  const topics = table("Busiest topics", TOPIC_COLUMNS, {
    sortable: false,
    empty: "No message has been sent yet. penstock send orders --data hello",
  });
  return {
    series: [
      "sent",
      "delivered",
      "acked",
      "refused",
      "waiting",
      "inflight",
      "dead",
      "oldest_s",
      "send_",
      "proxy_",
      "commit_",
      "lag_",
      "cpu",
      "rss",
      "disk",
    ],
    sparks: true,
    nodes: [
      heading("Overview", spanTabs()),
      h(".tiles", tiles),
      h(
        ".grid.wide",
        flow,
        h(
          "section.card",
          h("h2", "Refused", refusedSmall),
          refused,
          h("h2.next", "Machine"),
          h(
            ".bars",
            machine.flatMap((each) => each.parts),
          ),
        ),
      ),
      h(".grid", charts),
      h("section.card", h("h2", "Topics", link("topics", "all, filter, sort")), topics),
    ],
    update() {
      [...tiles, flow, ...charts].forEach((each) => each.update());
      const step = page.span === "1h" ? 10 : 1;
      const sums = reasons()
        .map((each) => [each.label, page.lines[each.name].reduce((sum, v) => sum + (v || 0), 0) * step, each.colour])
        .filter((each) => each[1] >= 0.5)
        .sort((a, b) => b[1] - a[1]);
      const total = sums.reduce((sum, each) => sum + each[1], 0);
      put(refusedSmall, total ? `${count(total)} in the last ${page.span === "1h" ? "hour" : "5 min"}` : "");
      bars(
        refused,
        sums.slice(0, 6).map(([label, n, colour]) => [label, n / sums[0][1], count(n), colour]),
        "Nothing was refused.",
      );
      machine.forEach((each) => each.update());
      topics.update((page.frame.topics || []).slice(0, 8));
    },
  };
}
