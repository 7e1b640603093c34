// Tables by columns; headings sort, rows keep their elements. What does not fit is tightened, then stacked.

import { h, keyed, put } from "./element.js";
import { say } from "./words.js";

const NARROW = 560; // below so many pixels every row is a block of its own

// No column is ever cut off: without room the small pictures go first, then each row becomes a block of named values.
function fitted(box, grid) {
  const fits = () => grid.offsetWidth <= box.clientWidth - 32;
  box.classList.remove("tight", "stacked");
  if (!fits()) box.classList.add("tight");
  if (box.clientWidth < NARROW || !fits()) box.classList.replace("tight", "stacked") || box.classList.add("stacked");
}

const shapes = new ResizeObserver((seen) => {
  for (const { target } of seen) fitted(target, target.firstChild);
});

// A table by columns: {key, title, kind, cell(node, row), sort}. Its headings sort; rows keep their elements.
export function table(caption, columns, options = {}) {
  const { key = columns[0].key, sort = null, empty = "Nothing here.", sortable = true, order = null } = options;
  let by = sort;
  let down = true;
  let rows = [];
  let due = 0;
  const text = ({ kind }) => (kind === undefined || kind === "text" ? "text" : "");
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
                order?.(by, down);
              },
            },
            column.title,
          )
        : column.title;
    return column.title ? h("th", { role: "columnheader", scope: "col", class: text(column) }, inner) : h("td");
  });
  const body = h("tbody", { role: "rowgroup" });
  const none = h("p.none", empty);
  const grid = h(
    "table",
    { role: "table" },
    h("caption", caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)),
    body,
  );
  const box = h(".scroll", grid);
  const node = h("div", box, none);
  grid.hidden = none.hidden = true; // before the first rows nobody knows whether there are any
  shapes.observe(box);
  const cellOf = (column, at) =>
    h("td", { role: "cell", class: text(column), "data-label": at && column.title ? column.title : undefined });
  node.update = (data) => {
    const grew = data.length !== rows.length;
    box.classList.toggle("few", data.length < 6); // nobody sorts those on a phone
    rows = data;
    const shown = by === null ? data : [...data].sort((a, b) => (down ? -1 : 1) * compare(a[by], b[by]));
    heads.forEach((head, at) =>
      columns[at].key === by
        ? head.setAttribute("aria-sort", down === (text(columns[at]) === "text") ? "ascending" : "descending")
        : head.removeAttribute("aria-sort"),
    );
    none.hidden = data.length > 0;
    grid.hidden = !data.length;
    keyed(
      body,
      shown,
      (row) => String(row[key]),
      () => h("tr", { role: "row" }, columns.map(cellOf)),
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
          const nil = /^\s*–?\s*$/.test(cell.textContent) && !cell.querySelector("[role=meter]");
          cell.toggleAttribute("data-nil", nil);
        });
      },
    );
    if (grew && box.isConnected) fitted(box, grid);
    // A text that has grown may not fit any more: that is known once the browser has laid everything out.
    due ||= requestAnimationFrame(() => {
      due = 0;
      if (box.scrollWidth > box.clientWidth) fitted(box, grid);
    });
  };
  return node;
}

const compare = (a, b) =>
  typeof a === "number" || typeof b === "number"
    ? (a ?? -1) - (b ?? -1)
    : String(b ?? "").localeCompare(String(a ?? ""));
