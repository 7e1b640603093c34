// Tokens: issue, narrow, explain, revoke.

import { ask, doing } from "./ask.js";
import { field, question } from "./dialog.js";
import { bits, h, pill } from "./element.js";
import { heading } from "./heading.js";
import { panelsOf } from "./panels.js";
import { moment } from "./words.js";

const CONTEXT = [
  ["op", "op"],
  ["topic", "topic"],
  ["tenant", "tenant"],
];

export default function tokens() {
  const out = h("div", { role: "status" });
  const issue = async () => {
    const said = await question(
      "Issue a token",
      "It is shown once. It can do what its caveats allow, and no more than yours.",
      [
        field("subject", "Subject", { value: "worker", required: "" }),
        field("audience", "For services", { value: "svc-mailbox", required: "" }),
        field("op", "Operations (empty: all but admin)", { value: "send,recv,ack,nack" }),
        field("topic", "Topics (a prefix ends with /)"),
        field("ttl", "Lasts for seconds", { type: "number", value: "900", min: "1" }),
        field("more", "Further caveats, one a line", { tag: "textarea" }),
      ],
      "Issue",
    );
    if (!said) return;
    await doing(async () => {
      const caveats = [
        said.op.trim() && `op=${said.op.replace(/\s/g, "")}`,
        said.topic.trim() && `topic=${said.topic.trim()}`,
        ...said.more.split("\n").map((each) => each.trim()),
      ].filter(Boolean);
      const issued = await ask("POST", "/api/passport/v1/passport/issue", {
        subject_ref: said.subject.trim(),
        audience: said.audience.split(/[\s,]+/).filter(Boolean),
        ttl_s: Number(said.ttl),
        caveats,
      });
      showToken(issued);
      return "Issued. Copy it now: it is not kept.";
    });
  };
  const showToken = (issued) =>
    out.replaceChildren(
      h(
        "section.card",
        h("h2", "A new token"),
        h("pre", { tabindex: "0" }, issued.token),
        bits([
          ["caveats", (issued.caveats || []).join(", ")],
          ["until", issued.exp && moment(issued.exp * 1000)],
          ["tid", issued.tid],
          ["key", issued.kid],
        ]),
        h(
          ".acts",
          h(
            "button",
            {
              type: "button",
              onclick: () =>
                doing(async () => {
                  await navigator.clipboard.writeText(issued.token);
                  return "Copied.";
                }),
            },
            "Copy",
          ),
        ),
      ),
    );
  const explain = async () => {
    const said = await question(
      "Explain a token",
      "Leave the fields below empty to see only what it says.",
      [
        field("token", "Token", { tag: "textarea", required: "" }),
        ...CONTEXT.map(([key, label]) => field(key, label)),
        field("aud", "service", { value: "svc-mailbox" }),
      ],
      "Explain",
    );
    if (!said) return;
    await doing(async () => {
      const context = Object.fromEntries(
        [...CONTEXT.map(([key]) => key), "aud"].filter((key) => said[key].trim()).map((key) => [key, said[key].trim()]),
      );
      const told = await ask("POST", "/api/passport/v1/passport/verify", { token: said.token.trim(), context });
      const claims = told.claims || {};
      out.replaceChildren(
        h(
          "section.card",
          h(
            "h2",
            "What the token says",
            pill(told.ok ? "allowed" : `refused: ${told.reason}`, told.ok ? "green" : "red"),
          ),
          bits([
            ["subject", claims.sub],
            ["tenant", claims.tenant],
            ["for", (claims.aud || []).join(", ")],
            ["class", claims.class],
            ["issued", claims.iat && moment(claims.iat * 1000)],
            ["until", claims.exp && moment(claims.exp * 1000)],
            ["tid", claims.tid],
            ["key", claims.kid],
            ["caveats", (claims.caveats || []).join(", ")],
            ["not checked", (told.warnings || []).join(", ")],
          ]),
        ),
      );
      return "";
    });
  };
  const narrow = async () => {
    const said = await question(
      "Narrow a token",
      "The result can do what the token can and what the new caveats allow. No issuer is needed to use it.",
      [
        field("token", "Token", { tag: "textarea", required: "" }),
        field("caveats", "New caveats, one a line", { tag: "textarea", value: "op=recv,ack", required: "" }),
      ],
      "Narrow",
    );
    if (said)
      await doing(async () => {
        showToken(
          await ask("POST", "/tokens/narrow", {
            token: said.token.trim(),
            caveats: said.caveats
              .split("\n")
              .map((each) => each.trim())
              .filter(Boolean),
          }),
        );
        return "Narrowed.";
      });
  };
  const revoke = async () => {
    const said = await question(
      "Revoke",
      "What is revoked is refused everywhere within a second. It cannot be undone.",
      [
        field("kind", "What", { choices: ["tid", "subject_ref", "tenant", "kid", "rid", "epoch"] }),
        field("value", "Which", { required: "" }),
        field("reason", "Why"),
      ],
      "Revoke",
      true,
    );
    if (said)
      await doing(async () => {
        await ask("POST", "/api/passport/v1/passport/revoke", {
          [said.kind]: said.kind === "epoch" ? Number(said.value) : said.value.trim(),
          reason: said.reason,
        });
        return "Revoked.";
      });
  };
  const acts = [
    ["Issue", issue, "button.main"],
    ["Narrow", narrow, "button"],
    ["Explain", explain, "button"],
    ["Revoke", revoke, "button.bad"],
  ].map(([label, act, kind]) => h(kind, { type: "button", onclick: act }, label));
  const panels = panelsOf("tokens");
  return { nodes: [heading("Tokens", acts), out, panels], update: panels.update };
}
