// The gateway: its routes and upstreams, and adding or removing a route.

import { ask, doing, enc } from "./ask.js";
import { chart, rate } from "./chart.js";
import { question } from "./dialog.js";
import { h, once, pill, put } from "./element.js";
import { heading, spanTabs } from "./heading.js";
import { panelsOf } from "./panels.js";
import { page } from "./state.js";
import { table } from "./table.js";
import { delay, perSecond } from "./words.js";

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
    cell: (cell, row) => rate(cell, `route.rate:${row.route}`, "blue", perSecond(row.rate)),
  },
  { key: "s2", title: "2xx", kind: "rate", opt: true },
  { key: "s3", title: "3xx", kind: "rate", opt: true },
  { key: "s4", title: "4xx", kind: "rate" },
  { key: "s5", title: "5xx", kind: "rate", cell: (cell, row) => put(cell, perSecond(row.s5), row.s5 ? "bad" : "") },
  { key: "p50", title: "p50", kind: "delay", opt: true },
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
  const live = h("div");
  const reload = async () => {
    try {
      const kept = (await ask("GET", "/admin/routes")).routes;
      const rows = table(
        "Live routes",
        [
          { key: "prefix", title: "prefix" },
          { key: "to", title: "upstreams" },
          { key: "source", title: "kept in" },
          {
            key: "id",
            title: "",
            kind: "acts",
            sort: false,
            cell: (cell, row) =>
              once(cell, row.prefix, () =>
                row.source === "file"
                  ? ""
                  : h(
                      ".acts",
                      h("button.bad", { type: "button", onclick: () => dropRoute(row.prefix).then(reload) }, "Remove"),
                    ),
              ),
          },
        ],
        { key: "prefix", empty: "None yet." },
      );
      rows.update(
        kept.map((each) => ({
          ...each,
          id: each.prefix,
          to: [].concat(each.upstream || each.upstreams || []).join(", "),
        })),
      );
      const prefix = h("input", { name: "prefix", placeholder: "/shop", required: "" });
      const upstream = h("input", { name: "upstream", placeholder: "http://127.0.0.1:8000", required: "" });
      const need = h("input", { name: "require", placeholder: "op=get, or empty: open to anyone" });
      const keep = h("input", { name: "keep", type: "checkbox" });
      const form = h(
        "form.row",
        h("label", "Prefix", prefix),
        h("label", "Upstreams, parted by spaces", upstream),
        h("label", "What a token must cover", need),
        h("label.tick", keep, "Keep the prefix in the path"),
        h("button.main", { type: "submit" }, "Add the route"),
      );
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        doing(async () => {
          const said = await ask("POST", "/admin/routes", {
            prefix: prefix.value.trim(),
            upstream: words(upstream),
            require: words(need),
            strip_prefix: !keep.checked,
          });
          return [`${prefix.value.trim()} is live.`, ...[].concat(said.warnings || [])].join(" ");
        }).then((good) => good && reload());
      });
      live.replaceChildren(rows, form);
    } catch (fault) {
      live.replaceChildren(
        h("p.dim", fault.status === 404 ? "Routes come from the configuration of this node." : fault.message),
      );
    }
  };
  const panels = panelsOf("gateway");
  reload();
  return {
    series: ["gateway.", "proxy_", "route.rate:"],
    nodes: [
      heading("Gateway", spanTabs()),
      h(".grid", flow, delays),
      h("section.card", h("h2", "Routes"), routes),
      h("section.card", h("h2", "Add or change a route"), live),
      panels,
    ],
    update() {
      [flow, delays, panels].forEach((each) => each.update());
      routes.update(page.frame.routes || []);
    },
  };
}

const words = (input) => input.value.split(/\s+/).filter(Boolean);

const dropRoute = async (prefix) => {
  if (await question(`Remove ${prefix}?`, "Requests under way finish; new ones get 404.", [], "Remove", true))
    await doing(async () => {
      await ask("DELETE", `/admin/routes?prefix=${enc(prefix)}`);
      return `${prefix} is gone.`;
    });
};
