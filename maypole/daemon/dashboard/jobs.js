// SPDX-License-Identifier: Apache-2.0
// The list of jobs. Only the rows that are seen exist, so 3 jobs and 30,000 cost the same.
import { element, ended, look, seconds, state, svg } from "./state.js";

const FILTERS = {
  active: (job) => !ended(job), running: (job) => job.workers > 0, waiting: (job) => job.state === "queued" || job.state === "suspended",
  ended, all: () => true,
};
let filter = "active";
let rows = [];
let height = 0;

export function badge(job) {
  const { colour, dash } = look(job);
  return svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("circle", { cx: 10, cy: 10, r: 7.5, fill: "none", stroke: job.workers ? colour : "currentColor", "stroke-width": job.workers ? 3 : 1, "stroke-dasharray": job.workers ? dash : "" }));
}

function when(job) {
  const now = Date.now() / 1000;
  if (ended(job)) return `${seconds(Math.max(0, now - job.finished_s))} ago`;
  return job.started_s && job.workers ? `for ${seconds(Math.max(0, now - job.started_s))}` : `waits ${seconds(Math.max(0, now - job.submitted_s))}`;
}

function row_of(job, index) {
  const row = element("a", { class: "row", href: `#job/${job.id}` }, badge(job),
    element("span", {}, `${job.id} ${job.name}`), element("span", { class: job.state === "failed" ? "bad" : "" }, job.state),
    element("span", { class: "weak" }, job.reason || `${job.owner}${job.servers.length ? ` on ${job.servers.join(", ")}` : ""}`),
    element("span", { class: "weak" }, `${job.workers} of ${job.min_workers}–${job.max_workers} · ${when(job)}`));
  row.style.top = `${index * height}px`;
  return row;
}

function fill(list) {
  const from = Math.max(0, Math.floor(list.scrollTop / height) - 4);
  const to = Math.min(rows.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + 4);
  const space = list.firstElementChild;
  space.style.height = `${rows.length * height}px`;
  space.replaceChildren(...rows.slice(from, to).map((job, k) => row_of(job, from + k)));
}

export function draw_jobs(section) {
  const list = section.querySelector(".list"), nav = section.querySelector("nav");
  height = 2.9 * parseFloat(getComputedStyle(document.documentElement).fontSize);
  if (!list.onscroll) list.onscroll = () => fill(list);
  const all = [...state.jobs.values()];
  nav.replaceChildren(...Object.entries(FILTERS).map(([name, test]) => {
    const button = element("button", { "aria-pressed": String(name === filter), type: "button" }, `${name} ${all.filter(test).length}`);
    button.onclick = () => { filter = name; list.scrollTop = 0; draw_jobs(section); };
    return button;
  }));
  // What runs first, then what waits in the order in which it came; of those that have ended the last first.
  const order = (job) => ended(job) ? 2 : job.workers ? 0 : 1;
  rows = all.filter(FILTERS[filter]).sort((a, b) => order(a) - order(b) || (ended(a) ? b.finished_s - a.finished_s : Number(a.id) - Number(b.id)));
  fill(list);
}
