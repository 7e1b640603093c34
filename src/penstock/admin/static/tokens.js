// Tokens: issue, narrow, explain, revoke.

import { Refused, ask, doing, toast } from "./ask.js";
import { field, group, question, tick } from "./dialog.js";
import { bits, h, pill } from "./element.js";
import { heading } from "./heading.js";
import { panelsOf } from "./panels.js";
import { page } from "./state.js";
import { moment } from "./words.js";

const ROLES = [
  ["worker", "A worker: takes and settles messages"],
  ["producer", "A producer: sends messages"],
  ["other", "Something else: name services and operations"],
];
const UNITS = { s: 1, m: 60, h: 3600, d: 86400 };
const TARGETS = [
  ["tid", "one token, with all its narrowings (tid)"],
  ["subject_ref", "every token of a subject, and what was issued with those"],
  ["tenant", "every token of a tenant"],
  ["kid", "every token that a key signed (kid)"],
  ["rid", "one narrowing of a token (rid)"],
  ["epoch", "every token of an epoch below this number"],
];
const SAYS = {
  allows: ["allows it", "green"],
  refuses: ["refuses it", "red"],
  elsewhere: ["is about another service", "dim"],
  unknown: ["depends on more than was said", "amber"],
};

const words = (text) => text.split(/[\s,]+/).filter(Boolean);
const lines = (text) =>
  text
    .split("\n")
    .map((each) => each.trim())
    .filter(Boolean);

function seconds(text) {
  const [, n, unit] = /^(\d+)\s*([smhd]?)$/.exec(text.trim()) || [];
  if (!n) throw new Refused("Say how long it lives as 90s, 15m or 1h.");
  return Number(n) * UNITS[unit || "s"];
}

// What a role may do, each caveat bound to the service it is about, as `penstock token issue --for` writes it.
function scopeOf(said) {
  const topic = said.topic.trim();
  if (said.role === "other")
    return [words(said.audience), [words(said.op).length && `op=${words(said.op)}`, topic && `topic=${topic}`]];
  if (!topic) throw new Refused(`Name the topic that the ${said.role} works on.`);
  const ops = said.role === "producer" ? "send" : `recv,ack,nack${said.send ? ",send" : ""}`;
  const store = ["get", "put"].filter((each) => said[`store_${each}`]);
  return [
    ["svc-mailbox", ...(store.length ? ["svc-storage"] : [])],
    [`svc-mailbox:op=${ops}`, `svc-mailbox:topic=${topic}`, store.length && `svc-storage:op=${store}`],
  ];
}

async function issue(show) {
  const role = field("role", "What it is for", { choices: ROLES, value: "worker" });
  const below = "With a slash at its end: all topics below it.";
  const topic = field("topic", "Topic", { placeholder: "orders/", note: below });
  const send = tick("send", "It may send to the topic too", false);
  const store = group("It may use the store to", tick("store_get", "get objects"), tick("store_put", "put objects"));
  const audience = field("audience", "For services", { value: "svc-mailbox" });
  const all = "Empty: all but admin, issue and revoke.";
  const op = field("op", "Operations", { placeholder: "send, recv, ack, nack", note: all });
  const choose = () => {
    const other = role.input.value === "other";
    send.row.hidden = role.input.value !== "worker";
    store.hidden = other;
    topic.input.required = !other;
    audience.row.hidden = op.row.hidden = !other;
  };
  role.input.addEventListener("input", choose);
  choose();
  await question(
    "Issue a token",
    "It can do what is named here, and no more than yours. It is shown once.",
    [
      field("subject", "Whom it is for", { placeholder: "resizer", required: "" }),
      role,
      topic,
      send,
      store,
      audience,
      op,
      field("ttl", "Lives for", { value: "15m", required: "", note: "As 90s, 15m or 1h." }),
      h(
        "details",
        h("summary", "Narrow it further"),
        field("ip", "Only from these addresses", { placeholder: "10.0.0.0/8" }).row,
        field("rps", "Requests a second at most", { type: "number", min: "1" }).row,
        field("tenant", "Tenant whose quota it spends", { note: "Empty: one of its own." }).row,
        field("class", "Traffic class", { choices: ["anon", "authed", "internal"], value: "authed" }).row,
        field("more", "Further caveats, one a line", { tag: "textarea", rows: 2, placeholder: "budget.reqs=1000" }).row,
      ),
    ],
    "Issue",
    false,
    async (values) => {
      const [services, caveats] = scopeOf(values);
      const ip = words(values.ip).join();
      const issued = await ask("POST", "/api/passport/v1/passport/issue", {
        subject_ref: values.subject.trim(),
        audience: services,
        ttl_s: seconds(values.ttl),
        class: values.class,
        ...(values.tenant.trim() ? { tenant: values.tenant.trim() } : {}),
        caveats: [
          ...caveats,
          ip && `ip=${ip}`,
          values.rps && `rate.rps=${values.rps}`,
          ...lines(values.more),
        ].filter(Boolean),
      });
      show(issued, "Issued. Copy it now: it is not kept.");
    },
  );
}

async function copy(secret) {
  try {
    await navigator.clipboard.writeText(secret.textContent);
  } catch {
    // Without TLS and away from this machine a browser has no clipboard for pages.
    getSelection().selectAllChildren(secret);
    if (!document.execCommand("copy")) throw new Refused("It is selected: copy it with Ctrl-C.");
  }
  return "Copied.";
}

const tokenField = () =>
  field("token", "Token", { tag: "textarea", rows: 4, required: "", autocomplete: "off", spellcheck: "false" });

async function explain(out) {
  let told;
  let node;
  const said = await question(
    "Explain a token",
    "What it says, and whether this node accepts it.",
    [
      tokenField(),
      field("against", "Judge a request", {
        placeholder: "send images/x",
        note: "An operation and, for the mailbox, a topic. Empty: only what it says.",
      }),
    ],
    "Explain",
    false,
    async ({ token, against }) => {
      told = await ask("POST", "/tokens/explain", { token: token.trim(), against: against.trim() });
      node = await ask("POST", "/api/passport/v1/passport/verify", { token: token.trim(), context: {} });
    },
  );
  if (!said) return;
  const against = said.against.trim();
  const good = node.ok && told.allowed !== false;
  const [yes, no] = against ? ["allowed", "refused"] : ["good", "not accepted"];
  const verdict = good ? yes : no;
  const because = [
    !node.ok && `The node does not accept this token: ${node.reason}.`,
    node.ok && !against && "The node accepts this token: its issuer signed it, and it was not revoked.",
    against && told.allowed && `${node.ok ? "It" : "Otherwise it"} may ${against}: nothing in it refuses that.`,
    told.allowed === false && `It may not ${against}. ${told.why} ${told.hint}`,
    told.if_also.length && `It also depends on ${told.if_also.join(", ")}.`,
  ].filter(Boolean);
  out.replaceChildren(
    h(
      "section.card",
      h("h2", "What the token says", pill(verdict, good ? "green" : "red")),
      h("p", because.join(" ")),
      h(
        "ul.says",
        told.conditions.map(({ caveat, says }) => {
          const [text, colour] = SAYS[says] || [];
          return h("li", h("code", caveat), text ? [" ", pill(text, colour)] : "");
        }),
      ),
      told.conditions.length === 1 && h("p.dim", "No caveat: everything of its services but admin, issue and revoke."),
      bits([
        ["subject", told.subject],
        ["tenant", told.tenant],
        ["class", told.traffic_class],
        ["issued", moment(told.issued * 1000)],
        ["until", moment(told.expires * 1000)],
        ["tid", told.tid],
        ["key", told.kid],
      ]),
    ),
  );
}

async function narrow(show) {
  await question(
    "Narrow a token",
    "The result can do what the token can and what the new caveats allow. No issuer is needed to use it.",
    [
      tokenField(),
      field("caveats", "New caveats, one a line", { tag: "textarea", rows: 3, value: "op=recv,ack", required: "" }),
    ],
    "Narrow",
    false,
    async ({ token, caveats }) => {
      const narrowed = await ask("POST", "/tokens/narrow", { token: token.trim(), caveats: lines(caveats) });
      show(narrowed, "Narrowed. Copy it now: it is not kept.");
    },
  );
}

async function revoke() {
  const said = await question(
    "Revoke",
    "What is revoked is refused everywhere within a second. It cannot be undone.",
    [field("kind", "What", { choices: TARGETS }), field("value", "Which", { required: "" }), field("reason", "Why")],
    "Revoke",
    true,
    ({ kind, value, reason }) =>
      ask("POST", "/api/passport/v1/passport/revoke", {
        [kind]: kind === "epoch" ? Number(value) : value.trim(),
        reason,
      }),
  );
  if (said) toast("Revoked.");
}

export default function tokens() {
  const out = h("div");
  const draw = (made) => {
    const secret = h("pre", { tabindex: "0", "aria-label": "The token" }, made.token);
    out.replaceChildren(
      h(
        "section.card",
        h("h2", "A new token", h("small", "shown this once")),
        secret,
        bits([
          ["caveats", (made.caveats || []).join(" ")],
          ["until", made.exp && moment(made.exp * 1000)],
          ["tid", made.tid],
          ["key", made.kid],
        ]),
        h(
          ".acts",
          h("button", { type: "button", onclick: () => doing(() => copy(secret)) }, "Copy"),
          h("button", { type: "button", onclick: () => out.replaceChildren() }, "Hide"),
        ),
      ),
    );
  };
  // It is there even when its dialog was left before the answer came. Who has gone to another view finds it here.
  const show = (made, text) => {
    if (out.isConnected) {
      draw(made);
      return toast(text);
    }
    page.unseen = made;
    toast("The token is there: open Tokens to see it.");
  };
  if (page.unseen) draw(page.unseen);
  page.unseen = null;
  const acts = [
    ["Issue", () => issue(show), "button.main"],
    ["Narrow", () => narrow(show), "button"],
    ["Explain", () => explain(out), "button"],
    ["Revoke", revoke, "button.bad"],
  ].map(([label, act, kind]) => h(kind, { type: "button", onclick: act }, label));
  const panels = panelsOf("tokens");
  return { nodes: [heading("Tokens", acts), out, panels], update: panels.update };
}
