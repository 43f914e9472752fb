// SPDX-License-Identifier: Apache-2.0
// What the daemon says: asked for once, then kept by its events. Whoever draws subscribes and is called at most once a frame.

export const state = { jobs: new Map(), cluster: null, decisions: [], connected: false, lost: "" };
const listeners = [];
let drawn = true;

export function subscribe(listener) { listeners.push(listener); }
export function changed() {
  if (!drawn) return;
  drawn = false;
  requestAnimationFrame(() => { drawn = true; for (const listener of listeners) listener(); });
}

export async function ask(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(answer.status === 401 ? "logged out: run `maypole dashboard` and open its link" : `${path}: ${answer.status}`);
  return answer.json();
}

const KEPT_DECISIONS = 512;

function replace(list, news) {
  const at = new Map(list.map((each, index) => [each.id, index]));
  for (const each of news) if (at.has(each.id)) list[at.get(each.id)] = each;
}

const take = {
  job(job) { state.jobs.set(job.id, job); },
  gone({ id }) { state.jobs.delete(id); },
  decision(decision) {
    state.decisions.push(decision);
    if (state.decisions.length > KEPT_DECISIONS) state.decisions.shift();
  },
  cluster({ servers, links }) {
    replace(state.cluster.servers, servers);
    replace(state.cluster.links, links);
  },
};

// What comes while everything is asked for is taken after it: each event is a whole value, so one that is taken twice does no harm.
let waiting = null;

async function load() {
  waiting = [];
  const mine = waiting;
  try {
    const [cluster, jobs, decisions] = await Promise.all([ask("/v1/cluster"), ask("/v1/jobs"), ask("/v1/decisions")]);
    if (mine !== waiting) return;
    state.cluster = cluster;
    state.jobs = new Map(jobs.jobs.map((job) => [job.id, job]));
    state.decisions = decisions.decisions;
    const known = state.decisions.length ? state.decisions[state.decisions.length - 1].number : 0;
    for (const [kind, data] of mine) if (kind !== "decision" || data.number > known) take[kind](data);
    waiting = null;
    state.lost = "";
  } catch (error) {
    state.lost = error.message;
    setTimeout(() => { if (mine === waiting) load(); }, 1000);
  }
  changed();
}

export function connect() {
  const events = new EventSource("/v1/events");
  events.onopen = () => { state.connected = true; changed(); };
  events.onerror = () => {
    state.connected = false;
    changed();
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 1000);  // it answered something else than events
  };
  events.addEventListener("start", load);
  for (const kind of Object.keys(take)) {
    events.addEventListener(kind, (event) => {
      const data = JSON.parse(event.data);
      if (waiting) waiting.push([kind, data]);
      else if (state.cluster) take[kind](data);
      changed();
    });
  }
}

export const ended = (job) => ["finished", "failed", "cancelled"].includes(job.state);
export const holds = (job) => job.workers > 0;

// A job's look: a colour and a dash pattern, so that a ring is told from another without colour.
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "12 4", "1 4"];
export function look(job) {
  const number = Number(job.id);
  return { colour: `hsl(${(number * 137.5) % 360} 65% 48%)`, dash: DASHES[number % DASHES.length] };
}

export function seconds(value) {
  if (value < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(1)} ms`;
  if (value < 100) return `${value.toFixed(1)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export function rate(bytes) {
  const bits = bytes * 8;
  return bits >= 1e9 ? `${(bits / 1e9).toFixed(2)} Gbit/s` : `${(bits / 1e6).toFixed(0)} Mbit/s`;
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
export function titled(node, text) { node.append(svg("title", {}, text)); return node; }
