// The settings of the gateway's routes: shown, added, changed, removed. A change begins with what the route has now.

import { Refused, ask, doing, enc, toast } from "./ask.js";
import { field, group, question, tick } from "./dialog.js";
import { h, once, pill, put } from "./element.js";
import { table } from "./table.js";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const USUAL = { upstream: [], require: [], methods: METHODS.slice(0, 6), strip_prefix: true, timeout_ms: 5000 };

const words = (text) => text.split(/\s+/).filter(Boolean);
const plain = (prefix) => `/${prefix.trim().replace(/^\/+|\/+$/g, "")}`;
const read = async () => (await ask("GET", "/admin/routes")).routes;

export function routeSettings() {
  const rows = table(
    "Settings of the routes",
    [
      { key: "prefix", title: "prefix" },
      { key: "to", title: "upstreams" },
      {
        key: "needs",
        title: "a token must cover",
        cell: (cell, row) =>
          once(cell, row.needs, () => (row.needs ? h("code", row.needs) : pill("open to anyone", "amber"))),
      },
      { key: "takes", title: "methods" },
      { key: "path", title: "prefix is" },
      { key: "timeout_ms", title: "answers within", cell: (cell, row) => put(cell, `${row.timeout_ms / 1000} s`) },
      { key: "kept", title: "comes from" },
      {
        key: "id",
        title: "",
        kind: "acts",
        sort: false,
        cell: (cell, row) =>
          once(cell, `${row.prefix} ${row.source}`, () => (row.source === "file" ? "" : acts(row.prefix))),
      },
    ],
    { key: "prefix", empty: "None yet." },
  );
  const acts = (prefix) =>
    h(
      ".acts",
      h("button", { type: "button", "aria-label": `Change ${prefix}`, onclick: () => change(prefix) }, "Change"),
      h("button.bad", { type: "button", "aria-label": `Remove ${prefix}`, onclick: () => drop(prefix) }, "Remove"),
    );
  const add = h("button", { type: "button", onclick: () => edit(null).then(load) }, "Add a route");
  const none = h("p.dim", { hidden: true });
  const card = h("section.card", h("h2", "Settings of the routes", add), none, rows);

  async function load() {
    try {
      rows.update((await read()).map(shown));
    } catch (fault) {
      const fixed = fault.status === 404;
      put(none, fixed ? "Routes come from the configuration of this node." : fault.message);
      rows.hidden = add.hidden = fixed;
      none.hidden = false;
    }
  }

  // What the route has at this moment: somebody else may have changed it since the table was drawn.
  const change = async (prefix) => {
    let now;
    await doing(async () => {
      now = (await read()).find((each) => each.prefix === prefix);
      if (!now) throw new Refused(`There is no route ${prefix} any more.`);
    });
    if (now) await edit(now);
    await load();
  };

  const drop = async (prefix) => {
    if (await question(`Remove ${prefix}?`, "Requests under way finish; new ones get 404.", [], "Remove", true))
      await doing(async () => {
        await ask("DELETE", `/admin/routes?prefix=${enc(prefix)}`);
        return `${prefix} is gone.`;
      });
    await load();
  };
  card.load = load;
  return card;
}

function spoken(methods) {
  const without = METHODS.filter((each) => !methods.includes(each));
  if (!without.length) return "all";
  return without.length < 3 ? `all but ${without.join(", ")}` : methods.join(", ");
}

const shown = (row) => ({
  ...row,
  id: row.prefix,
  to: row.upstream.join(", "),
  needs: row.require.join(" "),
  takes: spoken(row.methods),
  path: row.strip_prefix ? "stripped" : "kept",
  kept: row.source === "file" ? "configuration" : "added here",
});

// Add a route, or change the one that is given: each field holds what it has, so that only what is edited changes.
async function edit(now) {
  const { prefix = "", upstream, require, methods, strip_prefix, timeout_ms } = now || USUAL;
  const need = field("require", "What a token must cover", {
    value: require.join(" "),
    placeholder: "op=get topic=orders",
    note: "Parted by spaces: op=, topic= or tenant=. Empty: the route is open to anyone.",
  });
  const open = tick("open", "Anyone who reaches the gateway may use this route; no token is asked for.", false);
  // What asks for a token, or is new, becomes open only if somebody says so in words.
  const opens = () => {
    const opening = !need.input.value.trim() && (!now || require.length > 0);
    open.row.hidden = !opening;
    return (open.input.required = opening);
  };
  need.input.addEventListener("input", opens);
  opens();
  let warnings = [];
  const said = await question(
    now ? `Change ${prefix}` : "Add a route",
    "It holds at once; requests under way finish as they began.",
    [
      field("prefix", "Prefix", { value: prefix, placeholder: "/shop", required: "", readonly: now ? "" : undefined }),
      field("upstream", "Upstreams, one a line", {
        tag: "textarea",
        rows: 2,
        value: upstream.join("\n"),
        placeholder: "http://127.0.0.1:8000",
        required: "",
      }),
      need,
      open,
      field("timeout", "Seconds until the upstream must have answered", {
        type: "number",
        min: "0.001",
        max: "600",
        step: "any",
        value: timeout_ms / 1000,
        required: "",
      }),
      group("Methods", ...METHODS.map((each) => tick(each, each, methods.includes(each)))),
      tick("keep", "Keep the prefix in the path", !strip_prefix),
    ],
    now ? "Change" : "Add the route",
    false,
    async (values) => {
      const route = routeOf(values);
      if (opens() && !values.open) throw new Refused("Name what a token must cover, or tick that anyone may use it.");
      if (!now && (await read()).some((each) => each.prefix === route.prefix))
        throw new Refused(`There is a route ${route.prefix} already: press Change in its row.`);
      warnings = (await ask("POST", "/admin/routes", route)).warnings;
    },
  );
  // That it is open was just said.
  const news = warnings.filter((each) => !/open to anyone/.test(each));
  if (said) toast([`${plain(said.prefix)} is live.`, ...news].join(" "));
}

const routeOf = (values) => ({
  prefix: plain(values.prefix),
  upstream: words(values.upstream),
  require: words(values.require),
  methods: Object.keys(values).filter((name) => values[name] === "on" && /^[A-Z]+$/.test(name)),
  strip_prefix: !values.keep,
  timeout_ms: Math.round(Number(values.timeout) * 1000),
});
