// SPDX-License-Identifier: Apache-2.0
// The cluster as a picture: racks side by side, their servers below each other, links from each server to its rack (as wide as they are
// loaded), and over it the ring of each job.
import { holds, look, rate, state, svg, titled } from "./state.js";

const WIDTH = 150, HEIGHT = 44, GAP = 10, HEAD = 46, PAD = 12;
const MOST_RINGS = 60;  // more are a tangle: the servers' bars say what is taken

function share(server) {
  let most = 0;
  for (const [name, amount] of Object.entries(server.capacity)) if (amount > 0) most = Math.max(most, (server.held[name] ?? 0) / amount);
  return most;
}

/// Racks in columns, as many rows as make the picture about as wide as its place.
function places(servers, width, height) {
  const racks = new Map();
  for (const server of servers) {
    const rack = server.rack ?? "";
    if (!racks.has(rack)) racks.set(rack, []);
    racks.get(rack).push(server);
  }
  const longest = Math.max(...[...racks.values()].map((rack) => rack.length));
  let best = null;
  for (let across = 1; across <= Math.min(longest, 24); ++across) {  // servers side by side within a rack
    const rack_width = across * (WIDTH + GAP) + PAD, rack_height = HEAD + Math.ceil(longest / across) * (HEIGHT + GAP) + PAD;
    for (let columns = 1; columns <= racks.size; ++columns) {
      const w = columns * (rack_width + GAP), h = Math.ceil(racks.size / columns) * (rack_height + GAP);
      const scale = Math.min(width / w, height / h);
      if (!best || scale > best.scale) best = { scale, across, columns, rack_width, rack_height, w, h };
    }
  }
  return { ...best, racks };
}

export function draw_cluster(place) {
  const { cluster, jobs } = state;
  if (!cluster) return;
  const plan = places(cluster.servers, Math.max(place.clientWidth, 300), Math.max(place.clientHeight, 200));
  const scale = Math.min(plan.scale, 2.2);
  const root = svg("svg", { viewBox: `0 0 ${plan.w} ${plan.h}`, role: "img", "aria-label": `${cluster.servers.length} servers` });
  root.style.maxWidth = `${plan.w * scale}px`;
  const at = new Map(), rows = [];
  let index = 0;
  for (const [rack, servers] of plan.racks) {
    const x = (index % plan.columns) * (plan.rack_width + GAP) + GAP / 2, y = Math.floor(index / plan.columns) * (plan.rack_height + GAP) + GAP / 2;
    ++index;
    root.append(svg("rect", { class: "rack", x, y, width: plan.rack_width, height: plan.rack_height, rx: 8 }));
    root.append(svg("text", { class: "weak", x: x + PAD, y: y + 18 }, rack ? `rack ${rack}` : "this machine"));
    at.set(`rack ${rack}`, [x + plan.rack_width / 2, y + 26]);
    servers.forEach((server, k) => {
      const sx = x + PAD + (k % plan.across) * (WIDTH + GAP), sy = y + HEAD + Math.floor(k / plan.across) * (HEIGHT + GAP);
      at.set(server.id, [sx + WIDTH / 2, sy + HEIGHT / 2]);
      rows.push([server, sx, sy]);
    });
  }
  const switches = new Map((cluster.switches ?? []).map((each) => [each.id, each.rack]));
  const where = (id) => at.get(id) ?? at.get(`rack ${switches.get(id)}`);
  for (const link of cluster.links ?? []) {
    const from = where(link.from), to = where(link.to);
    const load = link.bandwidth ? link.reserved / link.bandwidth : 0;
    const text = `${link.id}: ${rate(link.reserved)} reserved${link.bandwidth ? ` of ${rate(link.bandwidth)} (${Math.round(load * 100)} %)` : ""}`;
    if (from && to && (from !== to)) {
      root.append(titled(svg("line", { class: load > 0.9 ? "link full" : "link", x1: from[0] + (link.from < link.to ? 3 : -3), y1: from[1], x2: to[0] + (link.from < link.to ? 3 : -3), y2: to[1], "stroke-width": 0.6 + 6 * load }), text));
    } else if (from || to) {  // from a rack to what is not drawn: a short line
      const [x, y] = from ?? to, side = from ? 4 : -4;
      root.append(titled(svg("line", { class: load > 0.9 ? "link full" : "link", x1: x + side, y1: y, x2: x + side, y2: y - 24, "stroke-width": 0.6 + 6 * load }), text));
    }
  }
  for (const [server, x, y] of rows) {
    const used = share(server);
    root.append(titled(svg("rect", { class: server.closed ? "box closed" : "box", x, y, width: WIDTH, height: HEIGHT, rx: 5 }), server.closed ?? server.id));
    root.append(svg("rect", { class: "used", x, y: y + HEIGHT - 5, width: WIDTH * Math.min(used, 1), height: 5 }));
    root.append(svg("text", { x: x + 7, y: y + 16 }, server.id.slice(0, 16)));
    const count = server.jobs.length, text = server.closed ? "closed" : `${Math.round(used * 100)} % · ${count} job${count === 1 ? "" : "s"}`;
    root.append(svg("text", { class: "weak", x: x + 7, y: y + 31 }, text));
  }
  const running = [...jobs.values()].filter(holds);
  running.slice(0, MOST_RINGS).forEach((job, k) => draw_ring(root, job, at, k));
  if (running.length > MOST_RINGS) root.append(svg("text", { class: "weak", x: GAP, y: plan.h - 2 }, `rings of ${MOST_RINGS} of ${running.length} jobs are drawn`));
  place.replaceChildren(root);
}

function draw_ring(root, job, at, k) {
  const { colour, dash } = look(job);
  const shift = ((k % 6) - 2.5) * 5;
  const stops = job.ring.filter((server, i) => i === 0 || server !== job.ring[i - 1]).map((server) => at.get(server)).filter(Boolean);
  if (stops.length === 0) return;
  const group = titled(svg("g"), `job ${job.id} ${job.name}: ${job.ring.join(" → ")}`);
  const [x, y] = [stops[0][0] + WIDTH / 2 - 14 - (k % 5) * 22, stops[0][1] - 8];
  if (new Set(job.ring).size > 1) {
    const path = stops.map(([sx, sy], i) => `${i ? "L" : "M"}${sx + 40 + shift} ${sy + shift / 2}`).join(" ") + " Z";
    group.append(svg("path", { class: "ring", d: path, stroke: colour, "stroke-dasharray": dash, "stroke-linejoin": "round" }));
  }
  group.append(svg("circle", { class: "ring", cx: x, cy: y, r: 9, stroke: colour, "stroke-dasharray": dash }));
  group.append(svg("text", { x, y: y + 4, "text-anchor": "middle" }, job.id.slice(-3)));
  root.append(group);
}
