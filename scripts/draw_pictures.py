"""Draw the pictures of docs/explanation: python -m scripts.draw_pictures writes docs/images/explanation/*.svg."""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "explanation"
CIRCLE, FAINT_LINE = "#c9302c", "#9aa5b1"
INK, PAPER, FAINT = "#1f2933", "#ffffff", "#e5e9ee"
KV, PREFIX, ADAPTER, FREE, STATE = "#4c8eda", "#9cc3ee", "#e8a33d", "#f2f4f7", "#7fb069"
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
    picture.text(20, 272, "free + kv + state + cached_prefix + adapter + reserved == total")
    picture.save("pool.svg")


def layer_groups() -> None:
    """Draw the layer groups of a hybrid model, and what pages of a layer group hold."""
    picture = Picture(760, 318, "Layer groups of a model with recurrent layers")
    picture.text(20, 28, "Layer groups: an attention layer and the recurrent layers beside it share page ids", size=14)
    for group in range(2):
        for index in range(4):
            recurrent = index < 3
            label = f"layer {4 * group + index}: " + ("recurrent" if recurrent else "attention")
            picture.box(20 + group * 190, 42 + index * 28, 170, 26, STATE if recurrent else KV, label)
    picture.text(410, 104, "…  8 layer groups in a model of 32 layers", size=13)
    picture.text(20, 184, "Pages of one layer group, by owner:")
    rows = (
        ("a sequence's keys and values, a page for each 16 tokens", ["K, V"] * 6),
        ("its state, the same number of pages at any length", ["state 0"] * 2 + ["state 1"] * 2 + ["state 2"] * 2),
        ("an adapter: rows of all four layers, one behind the other", ["A, B 0", "A, B 1", "A, B 2", "A, B 3"]),
    )
    for row, (text, labels) in enumerate(rows):
        fill = (KV, STATE, ADAPTER)[row]
        for index, label in enumerate(labels):
            picture.box(20 + index * 62, 194 + row * 38, 60, 28, fill, label)
        picture.text(410, 213 + row * 38, text, size=12)
    picture.save("layer-groups.svg")


def step() -> None:
    """Draw how scheduling of step N+1 overlaps the GPU's step N."""
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
    """Draw the tiers of an adapter's weights, from the store to the pool."""
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


if __name__ == "__main__":
    pool()
    layer_groups()
    step()
    tiers()
