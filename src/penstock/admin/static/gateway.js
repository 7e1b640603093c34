// The gateway: what passes through it, and its routes with their upstreams.

import { chart, rate } from "./chart.js";
import { h, once, pill, put } from "./element.js";
import { heading, spanTabs } from "./heading.js";
import { panelsOf } from "./panels.js";
import { routeSettings } from "./routes.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { delay, perSecond, say } from "./words.js";

const ROUTE_COLUMNS = [
  {
    key: "route",
    title: "route",
    cell: (cell, row) =>
      once(cell, `${row.route} ${row.open}`, () =>
        [h("span", row.route), row.open ? [" ", pill("open to anyone", "amber")] : ""].flat(),
      ),
  },
  {
    key: "rate",
    title: "requests",
    kind: "rate",
    cell: (cell, row) => rate(cell, `route.rate:${row.route}`, "blue", say("rate", row.rate)),
  },
  { key: "s2", title: "2xx", kind: "rate" },
  { key: "s3", title: "3xx", kind: "rate" },
  { key: "s4", title: "4xx", kind: "rate" },
  { key: "s5", title: "5xx", kind: "rate", cell: (cell, row) => put(cell, say("rate", row.s5), row.s5 ? "bad" : "") },
  { key: "p50", title: "p50", kind: "delay" },
  { key: "p99", title: "p99", kind: "delay" },
  {
    key: "upstreams",
    title: "upstreams",
    sort: false,
    cell: (cell, row) =>
      once(cell, JSON.stringify(row.upstreams || row.kind), () =>
        row.upstreams
          ? row.upstreams.map((each) =>
              h(
                "div",
                pill(
                  each.state === "closed" ? "well" : each.state === "open" ? "left alone" : "tried again",
                  each.state === "closed" ? "green" : each.state === "open" ? "red" : "amber",
                ),
                ` ${each.url}`,
              ),
            )
          : h("span.dim", row.kind),
      ),
  },
];

export default function gateway() {
  const statuses = { "2xx": "teal", "3xx": "blue", "4xx": "amber", "5xx": "red" };
  const parts = Object.entries(statuses).map(([label, colour]) => ({ name: `gateway.${label}`, label, colour }));
  const flow = chart("Requests a second, by status", parts, { format: perSecond, stacked: true });
  const delays = chart(
    "Proxied requests",
    [
      { name: "proxy_p50", label: "p50", colour: "teal" },
      { name: "proxy_p99", label: "p99", colour: "amber" },
    ],
    { format: delay },
  );
  const routes = table("Routes", ROUTE_COLUMNS, {
    empty: "No route is configured. Add one below, or with penstock route add /shop http://127.0.0.1:8000",
  });
  const settings = routeSettings();
  const panels = panelsOf("gateway");
  settings.load();
  return {
    series: ["gateway.", "proxy_", "route.rate:"],
    nodes: [
      heading("Gateway", spanTabs()),
      h(".grid", flow, delays),
      h("section.card", h("h2", "Routes"), routes),
      settings,
      panels,
    ],
    update() {
      [flow, delays, panels].forEach((each) => each.update());
      routes.update(page.frame.routes || []);
    },
  };
}
