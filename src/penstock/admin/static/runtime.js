// The runtime: services and their gates, channels, tasks, phases, events.

import { heading } from "./heading.js";
import { POINTS } from "./history.js";
import { panelsOf } from "./panels.js";

export default function runtime() {
  const panels = panelsOf("runtime");
  return { series: ["answered."], points: POINTS, nodes: [heading("Runtime"), panels], update: panels.update };
}
