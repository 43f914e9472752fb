// SPDX-License-Identifier: Apache-2.0
// One job: what it is, its ring, its workers over time, its decisions, and the end of what its workers wrote.
import { ask, element, look, state, svg } from "./state.js";
import { decision_text, line_chart } from "./decisions.js";

const TAIL = 16384;
let shown = "";
let rank = 0;
let log_offset = 0;
let log_epoch = "";
let log_text = "";
let busy = false;

function ring(job) {
  const { colour, dash } = look(job), count = job.ring.length, size = 200;
  const root = svg("svg", { viewBox: "0 0 320 220", role: "img", "aria-label": `ring of ${count} workers` });
  root.style.height = "12rem";
  root.append(svg("circle", { class: "ring", cx: 160, cy: 110, r: size / 2 - 25, stroke: colour, "stroke-dasharray": dash }));
  job.ring.forEach((server, k) => {
    const angle = 2 * Math.PI * k / count - Math.PI / 2, x = 160 + (size / 2 - 25) * Math.cos(angle), y = 110 + (size / 2 - 25) * Math.sin(angle);
    root.append(svg("circle", { class: "box", cx: x, cy: y, r: 12 }), svg("text", { x, y: y + 4, "text-anchor": "middle" }, String(k)));
    if (count <= 16) root.append(svg("text", { class: "weak", x: x + (Math.cos(angle) < -0.1 ? -16 : 16), y: y + 4 + 14 * Math.sin(angle), "text-anchor": Math.cos(angle) < -0.1 ? "end" : "start" }, server.slice(0, 14)));
  });
  return root;
}

async function read_log(job) {
  for (let parts = 0; parts < 8; ++parts) {
    const answer = await fetch(`/v1/jobs/${job.id}/logs?rank=${rank}&offset=${log_offset}`);
    if (!answer.ok || shown !== job.id) return;
    const epoch = answer.headers.get("X-Maypole-Epoch");
    if (epoch !== log_epoch) { log_epoch = epoch; log_text = ""; if (log_offset) { log_offset = 0; continue; } }
    const bytes = await answer.arrayBuffer();
    if (bytes.byteLength === 0) return;
    log_offset = Number(answer.headers.get("X-Maypole-Start")) + bytes.byteLength;
    log_text = (log_text + new TextDecoder().decode(bytes)).slice(-TAIL);
  }
}

export async function draw_job(section, id) {
  const job = state.jobs.get(id);
  if (id !== shown) { shown = id; rank = 0; log_offset = 0; log_epoch = ""; log_text = ""; }
  section.hidden = !id;
  document.body.classList.toggle("one", Boolean(id));
  if (!id || busy || !state.cluster) return;
  if (!job) { section.replaceChildren(element("p", {}, `There is no job ${id}. `, element("a", { href: "#" }, "Back"))); return; }
  busy = true;
  try {
    const [history, decisions] = await Promise.all([ask(`/v1/jobs/${id}/history`), ask(`/v1/decisions?job=${id}`), read_log(job)]);
    if (shown === id) show(section, job, history, decisions.decisions);
  } catch { /* the daemon is away: what is shown stays, and the head of the page says so */ } finally { busy = false; }
}

function show(section, job, history, decisions) {
  const fields = { state: job.state + (job.reason ? `: ${job.reason}` : ""), owner: job.owner, workers: `${job.workers} (${job.min_workers} to ${job.max_workers})`,
    servers: job.servers.join(", ") || "none", submitted: new Date(job.submitted_s * 1000).toLocaleString(), "exit code": job.exit_code ?? "none yet", retries: job.retries, resizes: job.resizes };
  const list = element("dl");
  for (const [name, value] of Object.entries(fields)) list.append(element("dt", {}, name), element("dd", {}, String(value)));
  const points = [...history.workers];
  if (points.length) points.push([Date.now() / 1000, points[points.length - 1][1]]);
  const logs = element("pre", {}, log_text || "nothing written yet");
  const chooser = element("nav", {}, ...Array.from({ length: Math.min(job.max_workers, 32) }, (_, k) => {
    const button = element("button", { type: "button", "aria-pressed": String(k === rank) }, `rank ${k}`);
    button.onclick = () => { rank = k; log_offset = 0; log_text = ""; draw_job(section, job.id); };
    return button;
  }));
  section.replaceChildren(element("h2", {}, element("a", { href: "#" }, "← cluster"), ` job ${job.id} ${job.name}`), list,
    ...(job.workers ? [element("h3", {}, "Ring"), ring(job)] : []),
    element("h3", {}, `Workers over time (since ${new Date(history.since_s * 1000).toLocaleTimeString()} at the earliest)`), element("div", { class: "chart" }, line_chart(points, "workers over time", true)),
    element("h3", {}, "Output"), ...(job.max_workers > 1 ? [chooser] : []), logs,
    element("h3", {}, "Decisions that changed it"), element("ol", {}, ...decisions.slice(-20).reverse().map((each) => element("li", {}, decision_text(each)))));
  logs.scrollTop = logs.scrollHeight;
}
