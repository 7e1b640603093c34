// The heading of a view, and the choice of the time shown.

import { h } from "./element.js";
import { refresh } from "./history.js";
import { page } from "./state.js";

export function heading(title, ...more) {
  return h(".head", h("h1", title), h(".acts", ...more));
}

export function spanTabs() {
  const node = h(
    ".tabs",
    { role: "group", "aria-label": "Time shown" },
    [
      ["5m", "5 min"],
      ["1h", "1 hour"],
    ].map(([value, label]) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(page.span === value),
          onclick: (event) => {
            page.span = value;
            for (const each of node.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
            page.linesAt = -Infinity;
            refresh();
          },
        },
        label,
      ),
    ),
  );
  return node;
}
