// Discovery: who provides a key, and what this node knows of the network.

import { ask, doing, enc } from "./ask.js";
import { h } from "./element.js";
import { heading } from "./heading.js";
import { panelsOf } from "./panels.js";
import { table } from "./table.js";
import { plural } from "./words.js";

export default function discovery() {
  const key = h("input", { placeholder: "a key, or b3:…", required: "", "aria-label": "Key" });
  const found = h("div");
  const form = h("form.row", h("label", "Who provides a key?", key), h("button.main", { type: "submit" }, "Look up"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    doing(async () => {
      const said = await ask("GET", `/api/dht/v1/dht/providers/${enc(key.value.trim())}`);
      const rows = table(
        "Providers",
        [
          { key: "node_id", title: "node" },
          { key: "where", title: "addresses" },
        ],
        { empty: "Nobody provides it, as far as the network knows." },
      );
      rows.update((said.providers || []).map((each) => ({ ...each, where: (each.addrs || []).join(" ") })));
      const effort = [plural(said.hops || 0, "hop"), plural(said.messages || 0, "message")];
      found.replaceChildren(h("p.dim", `${effort.join(", ")}, ${(said.elapsed_ms || 0).toFixed(1)} ms.`), rows);
    });
  });
  const panels = panelsOf("discovery");
  return { nodes: [heading("Discovery"), h("section.card", form, found), panels], update: panels.update };
}
