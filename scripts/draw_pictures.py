"""Draw the pictures of docs/explanation: python -m scripts.draw_pictures writes docs/images/explanation/*.svg.

The imports of a commit of the past are drawn from the file that scripts.import_graph wrote of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from itertools import pairwise
from typing import Any

from scripts.import_graph import FOLDER, measure

# The last commit before packages were split and moved.
BEFORE = "ee9d5ac"
CIRCLE, FAINT_LINE = "#c9302c", "#9aa5b1"
INK, PAPER, FAINT = "#1f2933", "#ffffff", "#e5e9ee"
KV, PREFIX, ADAPTER, FREE = "#4c8eda", "#9cc3ee", "#e8a33d", "#f2f4f7"
TIPS = {INK: "tip", CIRCLE: "circle-tip", FAINT_LINE: "faint-tip"}


class Picture:
    """An SVG with a white ground, readable on light and dark pages."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(title)}" font-family="sans-serif" font-size="13">'
        )
        self.parts = [f'<rect width="{width}" height="{height}" fill="{PAPER}" rx="6"/>']

    def box(self, x: float, y: float, width: float, height: float, fill: str, text: str = "") -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{INK}" '
            'stroke-width="0.8" rx="2"/>'
        )
        if text:
            self.text(x + width / 2, y + height / 2 + 4.5, text, "middle")

    def text(self, x: float, y: float, text: str, anchor: str = "start", size: int = 13) -> None:
        self.parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{INK}">{escape(text)}</text>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, color: str = INK, width: float = 1.2) -> None:
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}" stroke-width="{width}" '
            f'marker-end="url(#{TIPS[color]})"/>'
        )

    def save(self, name: str) -> None:
        tip = "".join(
            f'<defs><marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{color}"/></marker></defs>'
            for color, name in TIPS.items()
        )
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text("\n".join([self.head, tip, *self.parts, "</svg>\n"]))


def pool() -> None:
    """Pages of one pool, by what they hold, and how a page of a layer is read in two ways."""
    picture = Picture(760, 300, "The unified page pool")
    kinds = "KKKKPPAAAKKAAFKKFFAAKPPFFKKKAAFFFFKKAFFF"
    fills = {"K": KV, "P": PREFIX, "A": ADAPTER, "F": FREE}
    picture.text(20, 28, "One pool of equal pages; a page id means the same page in every layer", size=14)
    for index, kind in enumerate(kinds):
        picture.box(20 + index % 20 * 36, 42 + index // 20 * 36, 34, 34, fills[kind])
    legend = (("K", "KV cache"), ("P", "cached prefix"), ("A", "adapter weights"), ("F", "free"))
    for index, (kind, text) in enumerate(legend):
        picture.box(20 + index * 150, 128, 16, 16, fills[kind])
        picture.text(42 + index * 150, 141, text)
    picture.text(20, 182, "A page as KV cache: keys and values of its tokens")
    for row, label in enumerate(("keys", "values")):
        for token in range(8):
            picture.box(20 + token * 42, 192 + row * 26, 40, 24, KV, f"{label[0]}{token}")
    picture.text(400, 182, "As adapter weights: rows of A and B as pool rows")
    rows = ["A0", "A0", "A1", "A1", "B0", "B1", "", ""]
    for index, label in enumerate(rows * 2):
        fill = ADAPTER if label else FREE
        picture.box(400 + index % 8 * 42, 192 + index // 8 * 26, 40, 24, fill, label)
    picture.text(20, 272, "free + kv + cached_prefix + adapter + reserved == total")
    picture.save("pool.svg")


def step() -> None:
    """Scheduling of step N+1 overlaps the GPU's step N."""
    picture = Picture(760, 190, "Steps of the engine")
    picture.text(20, 28, "The host works one step ahead of the GPU", size=14)
    host = [("schedule 1", 70, 85, FAINT), ("schedule 2", 160, 85, FAINT), ("commit 1", 344, 75, PREFIX),
            ("schedule 3", 424, 85, FAINT), ("commit 2", 534, 75, PREFIX), ("schedule 4", 614, 85, FAINT)]  # fmt: skip
    gpu = [("step 1", 160, 184, KV), ("step 2", 348, 182, KV), ("step 3", 534, 184, KV)]
    for name, y, blocks in (("host", 50, host), ("GPU", 110, gpu)):
        picture.text(20, y + 24, name)
        for label, x, width, fill in blocks:
            picture.box(x, y, width, 38, fill, label)
    picture.text(70, 174, "Sampled tokens stay on the GPU as input of the next step; the host reads them a step later.")
    picture.save("step.svg")


def tiers() -> None:
    """Where an adapter's weights are, from the store to the pool."""
    picture = Picture(760, 150, "Adapter tiers")
    places = (
        ("artifact store", "folder or bucket, by SHA-256", FAINT),
        ("disk of the host", "verified, memory-mapped", FAINT),
        ("host memory", "packed, pinned", PREFIX),
        ("pool pages", "used by the batch", ADAPTER),
    )
    picture.text(20, 28, "An adapter moves right when it is needed, and back when pages are short", size=14)
    for index, (name, text, fill) in enumerate(places):
        x = 20 + index * 186
        picture.box(x, 50, 150, 44, fill, name)
        picture.text(x + 75, 114, text, "middle", 11)
        if index:
            picture.arrow(x - 34, 72, x - 2, 72)
    picture.save("tiers.svg")


def levels(packages: Iterable[str], edges: Mapping[str, list[str]], circles: list[list[str]]) -> list[list[str]]:
    """Rows of packages, each above all that it imports; packages of one circle share a row."""
    group = {name: tuple(circle) for circle in circles for name in circle}
    members = {group.get(name, (name,)) for name in packages}
    height: dict[tuple[str, ...], int] = {}

    def measured(key: tuple[str, ...]) -> int:
        if key not in height:
            below = {group.get(target, (target,)) for name in key for target in edges[name]} - {key}
            height[key] = 1 + max(map(measured, below), default=-1)
        return height[key]

    rows: list[list[str]] = [[] for _ in range(1 + max(map(measured, members)))]
    for key in sorted(members):
        rows[-1 - height[key]] += sorted(key)
    return rows


def imports(found: Mapping[str, Any], name: str, title: str) -> None:
    """Packages as boxes, imports as arrows downwards; circles in red."""
    row, line, column = 34, 84, 104
    pictures = []
    for root in ("control_plane", "lora_engine"):
        packages = [package for package in found["packages"] if package.startswith(root)]
        pairs = [(a, b) for a, b, _ in found["package_imports"] if a.startswith(root) and b.startswith(root)]
        edges = {package: [b for a, b in pairs if a == package] for package in packages}
        circles = [circle for circle in found["package_circles"] if circle[0].startswith(root)]
        pictures.append((root, levels(packages, edges, circles), pairs, circles))
    rows = [split for _, levels_, _, _ in pictures for row_ in levels_ for split in wrapped(row_)]
    picture = Picture(40 + 10 * column, 150 + line * len(rows), title)
    picture.text(20, 28, title, size=16)
    y = 60
    for root, levels_, pairs, circles in pictures:
        picture.text(20, y, root, size=14)
        y += 14
        red = {package: index for index, circle in enumerate(circles) for package in circle}
        at: dict[str, tuple[float, float]] = {}
        for packages in [split for row_ in levels_ for split in wrapped(row_)]:
            left = 20 + (10 - len(packages)) * column / 2
            at |= {package: (left + index * column, y) for index, package in enumerate(packages)}
            y += line
        for same in (False, True):  # those of circles last, above the others
            for a, b in pairs:
                if (a in red and red[a] == red.get(b)) != same:
                    continue
                (x1, y1), (x2, y2) = at[a], at[b]
                color = CIRCLE if same else FAINT_LINE
                start, end = (y1 + row, y2) if y1 < y2 else (y1, y2 + row) if y1 > y2 else (y1 + row, y2 + row)
                picture.arrow(x1 + 47, start, x2 + 47, end, color, 1.0 if same else 0.5)
        for package, (x, top) in at.items():
            label = package.removeprefix(f"{root}.")
            picture.box(x, top, 94, row, "#f6d5d4" if package in red else FAINT)
            picture.text(x + 47, top + 21, label, "middle", 11 if len(label) < 15 else 9)
        y += 20
    circled = [f"{len(circle)} packages" for circle in found["package_circles"]]
    picture.text(
        20,
        y,
        f"{found['modules']} modules, {found['imports']} imports; circles of modules: {len(found['module_circles'])}; "
        f"circles of packages: {len(circled)}" + (f" (of {' and of '.join(circled)})" if circled else ""),
    )
    picture.save(name)


def wrapped(packages: list[str], most: int = 10) -> list[list[str]]:
    """Lines of at most ten boxes, of about equal length."""
    lines = -(-len(packages) // most)
    cuts = [round(index * len(packages) / lines) for index in range(lines + 1)]
    return [packages[a:b] for a, b in pairwise(cuts)]


if __name__ == "__main__":
    before = json.loads((FOLDER / f"imports_{BEFORE}.json").read_text())
    imports(before, "imports_before.svg", f"Imports at {BEFORE}, before the packages were split")
    imports(measure(), "imports_now.svg", "Imports now")
    pool()
    step()
    tiers()
