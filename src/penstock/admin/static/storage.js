// Stored objects: how many there are; putting and getting one.

import { Refused, ask, doing, enc } from "./ask.js";
import { tile } from "./chart.js";
import { h } from "./element.js";
import { heading } from "./heading.js";
import { panelsOf } from "./panels.js";
import { page } from "./state.js";
import { count, size } from "./words.js";

export default function storage() {
  const tiles = [
    ["Objects", "objects", count],
    ["Bytes", "bytes", size],
    ["Promised to puts under way", "reserved", size],
    ["Uploads open", "uploads", count],
  ].map(([title, key, format]) => tile(title, () => page.frame.storage?.[key], format));
  const told = h("p", { role: "status" });
  const file = h("input", { type: "file", required: "", "aria-label": "File" });
  const putForm = h("form.row", h("label", "Store a file", file), h("button.main", { type: "submit" }, "Put"));
  putForm.addEventListener("submit", (event) => {
    event.preventDefault();
    doing(async () => {
      const said = await ask("PUT", "/api/storage/o", file.files[0]);
      told.replaceChildren("Stored as ", h("code", said.address || said.addr || JSON.stringify(said)));
    });
  });
  const address = h("input", { placeholder: "b3:…", required: "" });
  const getForm = h("form.row", h("label", "Get an object", address), h("button", { type: "submit" }, "Download"));
  getForm.addEventListener("submit", (event) => {
    event.preventDefault();
    doing(async () => {
      const answer = await fetch(`/api/storage/o/${enc(address.value.trim())}`);
      if (!answer.ok) throw new Refused((await answer.json()).detail);
      const url = URL.createObjectURL(await answer.blob());
      h("a", { href: url, download: address.value.trim().replace(":", "-") }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    });
  });
  const panels = panelsOf("storage");
  return {
    nodes: [
      heading("Storage"),
      h(".tiles", tiles),
      h(".grid", h("section.card", putForm, told), h("section.card", getForm)),
      h("p.dim", "An object is found by its address alone: the store keeps no list of names."),
      panels,
    ],
    update() {
      [...tiles, panels].forEach((each) => each.update());
    },
  };
}
