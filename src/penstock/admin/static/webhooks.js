// Webhooks: how many come and what becomes of them; the endpoints, and the inbox with the last deliveries.

import { chart } from "./chart.js";
import { heading, spanTabs } from "./heading.js";
import { panelsOf } from "./panels.js";
import { perSecond } from "./words.js";

const OUTCOMES = { accepted: "teal", duplicate: "blue", handshake: "violet", refused: "amber", failed: "red" };

export default function webhooks() {
  const parts = Object.entries(OUTCOMES).map(([label, colour]) => ({ name: `webhooks.${label}`, label, colour }));
  const flow = chart("Webhooks a second", parts, { format: perSecond, stacked: true });
  const panels = panelsOf("webhooks");
  return {
    series: ["webhooks."],
    nodes: [heading("Webhooks", spanTabs()), flow, panels],
    update() {
      flow.update();
      panels.update();
    },
  };
}
