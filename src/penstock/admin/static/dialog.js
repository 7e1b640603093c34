// A question in a dialog, with fields.

import { sayFault } from "./ask.js";
import { $, h, put } from "./element.js";

// A question in a dialog: fields in, values out; null when it was left. With `act` the dialog stays open until that has
// succeeded, and shows why it has not: nothing that was typed is lost.
export function question(title, text, fields, label, bad = false, act = null) {
  const box = $("ask");
  return new Promise((done) => {
    let busy = false;
    const end = (answer) => {
      done(answer);
      // Whoever left meanwhile may be in the next question by now.
      if (box.contains(form)) box.close();
    };
    const told = h("p.bad", { role: "alert" });
    const form = h(
      "form",
      { method: "dialog" },
      h("h1", { id: "ask-title" }, title),
      text && h("p.dim", text),
      fields.map((f) => f.row || f),
      told,
      h(
        ".acts",
        label !== "Close" && h("button", { type: "button", onclick: () => end(null) }, "Cancel"),
        h("button", { type: "submit", class: bad ? "bad" : "main" }, label),
      ),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (busy) return;
      const values = Object.fromEntries(new FormData(form));
      busy = true;
      put(told, "");
      try {
        await act?.(values);
        end(values);
      } catch (fault) {
        put(told, sayFault(fault));
      } finally {
        busy = false;
      }
    });
    box.replaceChildren(form);
    // Esc closes it too. The event of the question before may come when this one is open already.
    box.onclose = () => {
      if (box.open) return;
      box.replaceChildren(); // a token that was typed stays nowhere
      done(null);
    };
    box.showModal();
    // A browser puts the cursor at the end, and the beginning of a long text out of sight.
    for (const each of form.querySelectorAll("textarea")) {
      each.setSelectionRange(0, 0);
      each.scrollTop = 0;
    }
  });
}

export function field(name, label, options = {}) {
  const { tag = "input", choices, value = "", note, ...rest } = options;
  const input = h(
    choices ? "select" : tag,
    { name, ...rest },
    (choices || []).map((each) => [each].flat()).map(([each, words = each]) =>
      h("option", { value: each, selected: each === value }, words),
    ),
  );
  if (!choices) input.value = value;
  return { row: h("label", label, input, note && h("small.dim", note)), input };
}

export function tick(name, label, checked, kind = {}) {
  const input = h("input", { type: "checkbox", name, checked, ...kind });
  return { row: h("label.tick", input, h("span", label)), input };
}

// Several ticks under one heading, for a screen reader too.
export const group = (title, ...ticks) => h("fieldset", h("legend", title), h(".acts", ticks.map((each) => each.row)));
