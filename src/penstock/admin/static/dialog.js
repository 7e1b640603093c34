// A question in a dialog, with fields.

import { $, h } from "./element.js";

// A question in a dialog: fields in, values out; null when it was left.
export function question(title, text, fields, label, bad = false) {
  const box = $("ask");
  return new Promise((done) => {
    const form = h(
      "form",
      { method: "dialog" },
      h("h1", { id: "ask-title" }, title),
      text && h("p.dim", text),
      fields.map((f) => f.row || f),
      h(
        ".acts",
        label !== "Close" && h("button", { type: "button", onclick: () => box.close("") }, "Cancel"),
        h("button", { type: "submit", class: bad ? "bad" : "main" }, label),
      ),
    );
    form.addEventListener("submit", () => box.close("ok"));
    box.replaceChildren(form);
    box.addEventListener(
      "close",
      () => done(box.returnValue === "ok" ? Object.fromEntries(new FormData(form)) : null),
      { once: true },
    );
    box.returnValue = "";
    box.showModal();
    // A browser puts the cursor at the end, and the beginning of a long text out of sight.
    for (const each of form.querySelectorAll("textarea")) {
      each.setSelectionRange(0, 0);
      each.scrollTop = 0;
    }
  });
}

export function field(name, label, options = {}) {
  const { tag = "input", choices, value = "", ...rest } = options;
  const input = h(
    choices ? "select" : tag,
    { name, ...rest },
    (choices || []).map((each) => h("option", { value: each, selected: each === value }, each)),
  );
  if (!choices) input.value = value;
  return { row: h("label", label, input), input };
}
