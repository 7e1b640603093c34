// Tables by columns; headings sort, rows keep their elements.

import { h, keyed, put } from "./element.js";
import { say } from "./words.js";

// A table by columns: {key, title, kind, opt, cell(node, row), sort}. Its headings sort; rows keep their elements.
export function table(caption, columns, options = {}) {
  const { key = columns[0].key, sort = null, empty = "Nothing here.", sortable = true } = options;
  let by = sort;
  let down = true;
  let rows = [];
  const text = (column) =>
    (column.kind === undefined || column.kind === "text" ? "text" : "") + (column.opt ? " opt" : "");
  const heads = columns.map((column) => {
    const inner =
      sortable && column.title && column.sort !== false
        ? h(
            "button",
            {
              type: "button",
              onclick: () => {
                down = by === column.key ? !down : true;
                by = column.key;
                node.update(rows);
              },
            },
            column.title,
          )
        : column.title;
    return column.title ? h("th", { scope: "col", class: text(column) }, inner) : h("td");
  });
  const body = h("tbody");
  const none = h("p.none", empty);
  const grid = h("table", h("caption", caption), h("thead", h("tr", heads)), body);
  const node = h("div", h(".scroll", { tabindex: "0", role: "region", "aria-label": caption }, grid), none);
  node.update = (data) => {
    rows = data;
    const shownRows = by === null ? data : [...data].sort((a, b) => (down ? -1 : 1) * compare(a[by], b[by]));
    heads.forEach((head, at) =>
      columns[at].key === by
        ? head.setAttribute("aria-sort", down ? "descending" : "ascending")
        : head.removeAttribute("aria-sort"),
    );
    none.hidden = data.length > 0;
    grid.hidden = !data.length;
    keyed(
      body,
      shownRows,
      (row) => String(row[key]),
      () =>
        h(
          "tr",
          columns.map((column) => h("td", { class: text(column) })),
        ),
      (line, row) => {
        columns.forEach((column, at) => {
          const cell = line.children[at];
          if (column.cell) column.cell(cell, row);
          else
            put(
              cell,
              say(column.kind, row[column.key]),
              `${text(column)}${column.kind === "bad" && row[column.key] ? " bad" : ""}`.trim(),
            );
        });
      },
    );
  };
  return node;
}

const compare = (a, b) =>
  typeof a === "number" && typeof b === "number" ? a - b : String(b ?? "").localeCompare(String(a ?? ""));
