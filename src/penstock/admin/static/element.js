// Elements: made by one function, and kept in line with data. Text is never set as markup.

export const $ = (id) => document.getElementById(id);

// h("button.bad", {onclick}, "Delete"): an element, its classes, its attributes and what is in it.
export function h(name, ...rest) {
  const [tag, ...kinds] = name.split(".");
  const node = /^(svg|path)$/.test(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag || "div");
  if (kinds.length) node.setAttribute("class", kinds.join(" "));
  for (const part of rest.flat(2)) {
    if (part === null || part === undefined || part === false) continue;
    if (typeof part === "object" && !(part instanceof Node)) {
      for (const [key, value] of Object.entries(part)) {
        if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
        else if (value === true || value === false) node[key] = value;
        else if (value !== undefined) node.setAttribute(key, value);
      }
    } else node.append(part);
  }
  return node;
}

export function put(node, text, kind) {
  if (node.textContent !== text) node.textContent = text;
  if (kind !== undefined && node.getAttribute("class") !== kind) node.setAttribute("class", kind);
}

export function level(node, value) {
  if (node.dataset.level !== value) node.dataset.level = value;
}

// Bring the children of a box in line with data: what stays is the same element.
export function keyed(box, data, keyOf, begin, fill) {
  const old = box.known || new Map();
  const focused = box.contains(document.activeElement) && document.activeElement;
  const now = new Map();
  data.forEach((row, at) => {
    const key = keyOf(row);
    const node = old.get(key) || begin(row);
    fill(node, row);
    if (box.children[at] !== node) box.insertBefore(node, box.children[at] || null);
    now.set(key, node);
  });
  for (const [key, node] of old) if (now.get(key) !== node) node.remove();
  box.known = now;
  refocus(focused);
}

// What is moved or removed loses the focus: give it back, or to the view where nothing is left to give it to.
function refocus(focused, instead = $("view")) {
  if (focused && document.activeElement !== focused)
    (focused.isConnected ? focused : instead || $("view")).focus({ preventScroll: true });
}

// What a cell holds is made once and kept while its key is the same.
export function once(cell, key, make) {
  if (cell.made !== key) {
    cell.made = key;
    const focused = cell.contains(document.activeElement) && document.activeElement;
    cell.replaceChildren(...[make()].flat());
    refocus(focused, cell.querySelector("a, button"));
  }
  return cell.firstChild;
}

export const link = (to, text, kind = "") => h(`a${kind}`, { href: `#/${to}` }, text);

export const pill = (text, colour) => h(`span.pill.c-${colour}`, text);

export function bits(pairs) {
  return h(
    "dl.bits",
    pairs
      .filter((pair) => pair && pair[1] !== undefined && pair[1] !== null && pair[1] !== "")
      .map(([name, value]) => [h("dt", name), h("dd", value)]),
  );
}
