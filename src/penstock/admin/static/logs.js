// The last lines of the log, followed.

import { ask, enc, toast } from "./ask.js";
import { h, put } from "./element.js";
import { heading } from "./heading.js";
import { corrLink, fieldsOf } from "./message.js";
import { moment } from "./words.js";

const TYPING_MS = 150; // who pauses for so long has typed what is meant

export default function logs(_, query) {
  const least = h(
    "select",
    { "aria-label": "Least level" },
    ["debug", "info", "warning", "error"].map((each) => h("option", { value: each, selected: each === "info" }, each)),
  );
  const text = h("input", {
    type: "search",
    id: "filter",
    placeholder: "text, topic, corr_id",
    "aria-label": "Text",
    value: query.get("text") || "",
  });
  const box = h(".log", { tabindex: "0", role: "log", "aria-label": "Log lines" });
  const none = h("p.none", { hidden: true }, "No line matches.");
  let seen = 0; // the number of the last line that is shown; 0: the next answer begins anew
  let paused = false;
  let turn = 0; // goes up with each filter: an answer for an older one is dropped
  let under = -1; // the turn that is being asked for
  let wanted = "";
  let typed = 0;
  const pause = h(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      onclick: () => {
        paused = !paused;
        pause.setAttribute("aria-pressed", String(paused));
        put(pause, paused ? "Go on" : "Pause");
        if (!paused) load();
      },
    },
    "Pause",
  );
  const load = async () => {
    if (under === turn) return;
    const mine = (under = turn);
    try {
      const said = await ask("GET", `/logs?after=${seen}&${wanted}`);
      if (mine !== turn) return;
      if (!seen) box.replaceChildren();
      for (const line of said.lines) {
        const id = line.fields.corr_id;
        box.prepend(
          h(
            "div",
            h("span.dim", moment(line.at)),
            h(
              "span",
              { class: line.level === "error" ? "bad" : line.level === "warning" ? "warn" : "dim" },
              line.level,
            ),
            h("b", line.service),
            h(
              "span.said",
              h("span", { class: "ink" }, `${line.event} `),
              fieldsOf(line).replace(` corr_id=${id}`, "").replace(`corr_id=${id}`, ""),
              id ? [" ", corrLink(id)] : "",
              line.fields.stack ? h("pre", { tabindex: "0" }, line.fields.stack) : "",
            ),
          ),
        );
      }
      while (box.children.length > 500) box.lastChild.remove();
      seen = said.last;
      none.hidden = box.children.length > 0;
    } catch (fault) {
      toast(fault.message, true);
    } finally {
      if (under === mine) under = -1;
    }
  };
  const filter = () => {
    turn += 1;
    seen = 0;
    wanted = `level=${least.value}&text=${enc(text.value.trim())}`;
    return load();
  };
  least.addEventListener("input", filter);
  text.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(filter, TYPING_MS);
  });
  filter();
  return {
    nodes: [heading("Logs", h("label.tick", "from", least), text, pause), h("section.card", box, none)],
    update() {
      if (!paused) load();
    },
  };
}
