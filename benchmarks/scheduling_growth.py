# SPDX-License-Identifier: Apache-2.0
"""How a slot's time grows with servers and with jobs: rows of bench/scheduling.json as one SVG, both axes logarithmic."""

from __future__ import annotations

import math

WIDTH, HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 26, 34, 46
COLOURS = {"slack": "#2563a8", "tight": "#b4481e"}
NAMES = {"slack": "links are slack", "tight": "links bind"}
PANELS = (
    ("Servers (half as many jobs)", "servers", {"slack": "speed-slack", "tight": "speed-tight"}),
    ("Jobs on 1,000 servers", "jobs", {"slack": "speed-jobs-slack", "tight": "speed-jobs-tight"}),
)


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1e3:g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:g} us"


def panel(left: int, title: str, field: str, series: dict[str, list[dict]]) -> list[str]:
    rows = [row for some in series.values() for row in some]
    x_least, x_most = min(row[field] for row in rows), max(row[field] for row in rows)
    decades = [math.log10(row["decision_p50_s"]) for row in rows]
    y_least, y_most = math.floor(min(decades)), math.ceil(max(decades))

    def x(value: float) -> float:
        span = math.log(x_most / x_least) or 1
        return left + LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / x_least) / span

    def y(seconds: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(seconds) - y_least) / ((y_most - y_least) or 1)

    lines = [f'<text x="{left + LEFT}" y="20" font-weight="bold">{title}</text>']
    for decade in range(y_least, y_most + 1):
        at = y(10.0**decade)
        lines.append(f'<line x1="{left + LEFT}" x2="{left + WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#d4d4d4"/>')
        lines.append(f'<text x="{left + LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{duration(10.0**decade)}</text>')
    values = sorted({row[field] for row in rows})
    for value in values:
        lines.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:,}</text>')
        lines.append(f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}" stroke="#666"/>')
    for kind, some in series.items():
        points = [(x(row[field]), y(row["decision_p50_s"])) for row in sorted(some, key=lambda row: row[field])]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[kind]}" stroke-width="2"/>')
        lines += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{COLOURS[kind]}"/>' for a, b in points]
    return lines


def growth_svg(rows: list[dict]) -> str:
    """The picture, or nothing where too few sizes were measured."""
    drawn: list[str] = []
    for number, (title, field, cases) in enumerate(PANELS):
        series = {kind: [row for row in rows if row["case"] == case and row["decision_p50_s"]] for kind, case in cases.items()}
        series = {kind: some for kind, some in series.items() if len(some) > 1}
        if series:
            drawn += panel(number * WIDTH, title, field, series)
    if not drawn:
        return ""
    for number, (kind, name) in enumerate(NAMES.items()):
        at = LEFT + 190 * number
        drawn.append(f'<line x1="{at}" x2="{at + 22}" y1="{HEIGHT - 10}" y2="{HEIGHT - 10}" stroke="{COLOURS[kind]}" stroke-width="2"/>')
        drawn.append(f'<text x="{at + 28}" y="{HEIGHT - 6}">{name}</text>')
    style = "<style>text{font:12px sans-serif;fill:#333}</style>"
    box = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" role="img">'
    about = "<title>Time of a decision of gadget, median of three, against servers and jobs</title>"
    return "\n".join([box, about, style, f'<rect width="{2 * WIDTH}" height="{HEIGHT}" fill="white"/>', *drawn, "</svg>\n"])
