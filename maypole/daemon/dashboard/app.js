// SPDX-License-Identifier: Apache-2.0
import { changed, connect, ended, state, subscribe } from "./state.js";
import { draw_cluster } from "./cluster.js";
import { draw_decisions } from "./decisions.js";
import { draw_job } from "./job.js";
import { draw_jobs } from "./jobs.js";

const by_id = (id) => document.getElementById(id);

function draw() {
  const link = by_id("link"), away = !state.connected || state.lost;
  link.textContent = away ? (state.lost || "the daemon does not answer: trying again") : "live";
  link.classList.toggle("lost", Boolean(away));
  if (!state.cluster) return;
  const jobs = [...state.jobs.values()];
  by_id("policy").textContent = `policy ${state.cluster.policy}, slots of ${state.cluster.slot_s} s`;
  by_id("counts").textContent = `${jobs.filter((job) => job.workers).length} running, ${jobs.filter((job) => !ended(job) && !job.workers).length} waiting, ${state.cluster.servers.length} servers`;
  const id = location.hash.startsWith("#job/") ? decodeURIComponent(location.hash.slice(5)) : "";
  draw_job(by_id("job"), id);
  draw_jobs(by_id("jobs"));
  if (!id) {
    draw_cluster(by_id("cluster").querySelector(".picture"));
    draw_decisions(by_id("decisions"));
  }
}

subscribe(draw);
addEventListener("hashchange", () => { changed(); scrollTo(0, 0); });
addEventListener("resize", changed);
setInterval(changed, 2000);  // times go on, and so does the output of the job that is shown
connect();
changed();
