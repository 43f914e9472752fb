# SPDX-License-Identifier: Apache-2.0
"""Draws timelines of `maypole run --timeline` as one SVG: a panel a schedule, a few lanes a worker, one time scale for all."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

# Okabe and Ito's palette, which people with any colour vision can tell apart; waiting is hatched as well.
COLOURS = {
    "forward": "#56B4E9", "backward": "#0072B2", "reduce-scatter": "#E69F00", "all-gather": "#CC79A7", "update": "#009E73",
    "wait": "url(#waiting)",
}
LABELS = {
    "forward": "forward F", "backward": "backward B", "reduce-scatter": "reduce-scatter RS", "all-gather": "all-gather AG",
    "update": "update", "wait": "waiting: exposed communication",
}
# track -> (offset, height) of its lane within a worker's part
LANES = {"compute": (0, 22), "wait": (0, 22), "update": (22, 4), "reduce-scatter": (27, 12), "all-gather": (40, 12)}
WORKER_HEIGHT, PANEL_GAP, TITLE_HEIGHT = 62, 28, 24
LEFT, WIDTH, RIGHT, TOP = 170, 900, 40, 96


@dataclass
class Span:
    kind: str    # key of COLOURS
    track: str   # key of LANES
    begin: float  # seconds
    end: float
    name: str


@dataclass
class Panel:
    title: str
    workers: dict[int, list[Span]] = field(default_factory=dict)  # times from the panel's beginning
    iteration_ends: list[float] = field(default_factory=list)


def read_spans(path: Path) -> dict[int, list[Span]]:
    """Spans of each rank, times in seconds as recorded."""
    trace = json.loads(path.read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("ph") == "M" and e.get("name") == "thread_name"}
    workers: dict[int, list[Span]] = {}
    for e in events:
        track = tracks.get((e.get("pid"), e.get("tid")))
        if e.get("ph") != "X" or track not in LANES:
            continue
        kind = e["name"].split()[0] if track == "compute" else track
        if kind in COLOURS:
            begin = e["ts"] / 1e6
            workers.setdefault(int(e["pid"]), []).append(Span(kind, track, begin, begin + e["dur"] / 1e6, e["name"]))
    for spans in workers.values():
        spans.sort(key=lambda span: span.begin)
    return workers


def iteration_starts(spans: list[Span]) -> list[float]:
    """Where a forward begins that follows a backward, or nothing."""
    starts, last = [], None
    for span in spans:
        if span.track == "compute":
            if span.kind == "forward" and last != "forward":
                starts.append(span.begin)
            last = span.kind
    return starts


def make_panel(title: str, path: Path, iterations: int = 2) -> Panel:
    """The most ordinary run of `iterations` iterations in the second half of a timeline."""
    workers = read_spans(path)
    if not workers:
        raise ValueError(f"{path} holds no events of a worker")
    starts = iteration_starts(workers[min(workers)])
    windows = [starts[i : i + iterations + 1] for i in range(len(starts) // 2, len(starts) - iterations)]
    if not windows:
        raise ValueError(f"{path} holds {len(starts)} iterations: too few for a picture")
    usual = statistics.median(window[-1] - window[0] for window in windows)
    chosen = min(windows, key=lambda window: abs(window[-1] - window[0] - usual))
    begin, end = chosen[0], chosen[-1]
    panel = Panel(title, iteration_ends=[time - begin for time in chosen[1:]])
    for rank, spans in sorted(workers.items()):
        panel.workers[rank] = [
            Span(s.kind, s.track, max(s.begin, begin) - begin, min(s.end, end) - begin, s.name)
            for s in spans
            if s.begin < end and s.end > begin
        ]
    return panel


def draw(panels: list[Panel], heading: str, remark: str) -> str:
    """The SVG text. All panels share one scale, so a shorter one is a faster one."""
    longest = max(panel.iteration_ends[-1] for panel in panels)
    scale = WIDTH / longest
    out: list[str] = []
    y = TOP
    for panel in panels:
        out.append(f'<text x="20" y="{y + 14}" class="title">{escape(panel.title)}</text>')
        y += TITLE_HEIGHT
        height = WORKER_HEIGHT * len(panel.workers)
        out.append(f'<rect x="{LEFT}" y="{y - 2}" width="{panel.iteration_ends[-1] * scale:.1f}" height="{height - 6}" fill="#f6f6f6"/>')
        for rank, spans in panel.workers.items():
            out.append(f'<text x="20" y="{y + 15}">worker {rank}</text>')
            for text, offset in (("compute", 15), ("RS", 37), ("AG", 50)):
                out.append(f'<text x="{LEFT - 8}" y="{y + offset}" text-anchor="end" class="small">{text}</text>')
            for span in sorted(spans, key=lambda s: s.track == "wait"):
                offset, lane = LANES[span.track]
                out.append(
                    f'<rect x="{LEFT + span.begin * scale:.2f}" y="{y + offset}" width="{max((span.end - span.begin) * scale, 0.3):.2f}" '
                    f'height="{lane}" fill="{COLOURS[span.kind]}" stroke="white" stroke-width="0.3">'
                    f"<title>{escape(span.name)}: {(span.end - span.begin) * 1e3:.1f} ms</title></rect>"
                )
            y += WORKER_HEIGHT
        previous = 0.0
        for end in panel.iteration_ends:
            x = LEFT + end * scale
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - height - 6}" y2="{y + 8}" stroke="black" stroke-width="1.5"/>')
            out.append(f'<text x="{x - 4:.1f}" y="{y + 7}" text-anchor="end" class="small">{(end - previous) * 1e3:.0f} ms</text>')
            previous = end
        y += PANEL_GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{y + 30}" '
        'font-family="sans-serif" font-size="13">\n'
        "<style>.title{font-weight:bold;font-size:15px}.small{font-size:11px;fill:#333}</style>\n"
        '<defs><pattern id="waiting" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="6" height="6" fill="#e8e8e8"/><line x1="0" y1="0" x2="0" y2="6" stroke="#555" stroke-width="2"/></pattern></defs>\n'
        f'<rect width="100%" height="100%" fill="white"/>\n<text x="20" y="28" font-size="18" font-weight="bold">{escape(heading)}</text>\n'
        f'<text x="20" y="50">{escape(remark)}</text>\n{legend()}\n' + "\n".join(out) + f"\n{axis(longest, scale, y)}\n</svg>\n"
    )


def legend() -> str:
    out, x = [], 20
    for kind, label in LABELS.items():
        out.append(f'<rect x="{x}" y="64" width="16" height="14" fill="{COLOURS[kind]}"/><text x="{x + 22}" y="76">{label}</text>')
        x += 42 + 8 * len(label)
    return "".join(out)


def axis(longest: float, scale: float, y: float) -> str:
    step = next(s for s in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 1e9) if longest / s <= 10)
    out = [f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y}" y2="{y}" stroke="black"/>']
    for k in range(int(longest / step) + 1):
        x = LEFT + k * step * scale
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 5}" stroke="black"/>')
        out.append(f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle" class="small">{k * step * 1e3:g} ms</text>')
    return "".join(out)
