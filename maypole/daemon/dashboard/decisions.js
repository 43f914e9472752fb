// SPDX-License-Identifier: Apache-2.0
// What the policy decided: how long it took, how far it may be from the best, and what it changed.
import { element, seconds, state, svg } from "./state.js";

const SHOWN = 40;

/// A line through values over time, from 0 to the largest.
export function line_chart(points, label, steps = false) {
  if (points.length === 0) return element("p", { class: "weak" }, "nothing yet");
  const first = points[0][0], last = Math.max(points[points.length - 1][0], first + 1), most = Math.max(...points.map((point) => point[1]), 1e-12);
  const x = (time) => 2 + 296 * (time - first) / (last - first), y = (value) => 56 - 48 * value / most;
  let path = "";
  points.forEach(([time, value], i) => { path += i === 0 ? `M${x(time)} ${y(value)}` : (steps ? `H${x(time)}V${y(value)}` : `L${x(time)} ${y(value)}`); });
  return svg("svg", { viewBox: "0 0 300 60", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("line", { class: "axis", x1: 0, x2: 300, y1: 56, y2: 56 }), svg("path", { class: "value", d: path, "vector-effect": "non-scaling-stroke" }));
}

export function decision_text(decision) {
  const gap = decision.gap === null ? "" : ` · gap ${(100 * decision.gap).toFixed(1)} %`;
  const changes = decision.changes.map(({ id, from, to }) => `job ${id}: ${from} → ${to}`);
  const more = changes.length > 4 ? `${changes.slice(0, 4).join(", ")} and ${changes.length - 4} more` : changes.join(", ");
  return `${new Date(decision.at_s * 1000).toLocaleTimeString()} · ${seconds(decision.seconds)}${gap}${decision.limited ? " · cut short" : ""} · ${decision.jobs} jobs · ${decision.refused ?? (more || "no change")}`;
}

export function draw_decisions(section) {
  const { decisions } = state;
  const last = decisions[decisions.length - 1];
  section.querySelector("h2").textContent = last ? `Decisions: the last took ${seconds(last.seconds)}${last.gap === null ? "" : `, gap ${(100 * last.gap).toFixed(1)} %`}` : "Decisions";
  section.querySelector(".chart").replaceChildren(line_chart(decisions.map((each) => [each.at_s, each.seconds]), "seconds of each decision"),
    element("div", { class: "weak" }, `seconds of each decision${decisions.length ? `, at most ${seconds(Math.max(...decisions.map((each) => each.seconds)))}` : ""}`));
  section.querySelector("ol").replaceChildren(...decisions.slice(-SHOWN).reverse().map((each) => element("li", each.refused ? { class: "bad" } : {}, decision_text(each))));
}
