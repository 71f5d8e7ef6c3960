"""Draw the pictures of the documentation into docs/assets: ``python tools/draw_docs.py``.

Each is a card with its own pale ground, so that it can be read on light and dark pages alike.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

ASSETS = Path(__file__).parent.parent / "docs" / "assets"
INK, PALE, LINE = "#24292f", "#f6f8fa", "#8c959f"
BLUE, ORANGE, GREEN, RED = "#3b6fd4", "#d9822b", "#2a9d74", "#c8413b"


class Card:
    """One picture: boxes, arrows and words on a pale ground."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        text: str = "",
        *,
        fill: str = "#fff",
        edge: str = LINE,
        ink: str = INK,
        size: int = 13,
        bold: bool = False,
    ) -> None:
        place = f'x="{x}" y="{y}" width="{w}" height="{h}" rx="{min(6, h / 4)}"'
        self.parts.append(f'<rect {place} fill="{fill}" stroke="{edge}" stroke-width="1.3"/>')
        lines = text.split("\n") if text else []
        for number, line in enumerate(lines):
            at = y + h / 2 + (number - (len(lines) - 1) / 2) * (size + 4) + size * 0.35
            self.text(x + w / 2, at, line, ink=ink, size=size, bold=bold)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        ink: str = INK,
        size: int = 13,
        bold: bool = False,
        anchor: str = "middle",
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" fill="{ink}" font-size="{size}" text-anchor="{anchor}"{weight}>'
            f"{escape(text)}</text>"
        )

    def arrow(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        ink: str = LINE,
        width: float = 1.6,
        bend: float = 0,
        dashed: bool = False,
    ) -> None:
        middle = ((x1 + x2) / 2, (y1 + y2) / 2 + bend)
        path = f"M{x1},{y1} Q{middle[0]},{middle[1]} {x2},{y2}"
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{ink}" stroke-width="{width}"{dash} marker-end="url(#{ink[1:]})"/>'
        )

    def dot(self, x: float, y: float, r: float, fill: str) -> None:
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="{r}" fill="{fill}"/>')

    def write(self, name: str) -> None:
        heads = "".join(
            f'<marker id="{c[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{c}"/></marker>'
            for c in (INK, LINE, BLUE, ORANGE, GREEN, RED)
        )
        body = "\n".join(self.parts)
        (ASSETS / f"{name}.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" aria-label="{escape(self.title)}" '
            f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
            f"<title>{escape(self.title)}</title><defs>{heads}</defs>\n"
            f'<rect width="{self.width}" height="{self.height}" rx="10" fill="{PALE}"/>\n'
            f"{body}\n</svg>\n",
            encoding="utf-8",
        )


def tokens(
    card: Card, words: list[str], y: float, *, x: float = 30, w: float = 74, marked: dict[int, str]
) -> None:
    for i, word in enumerate(words):
        colour = marked.get(i)
        card.box(
            x + i * (w + 8), y, w, 30, word, edge=colour or LINE, fill="#fff", size=12, bold=bool(colour)
        )


def cell() -> None:
    card = Card(640, 190, "A cell: one head, one query, one key")
    words = ["When", "John", "and", "Mary", "…", "John", "to"]
    tokens(card, words, 124, marked={3: ORANGE, 6: BLUE})
    card.arrow(559, 120, 313, 120, ink=INK, width=2.4, bend=-92)
    card.box(392, 14, 90, 32, "L22H4", bold=True)
    card.text(560, 174, "query", ink=BLUE, size=12)
    card.text(313, 174, "key", ink=ORANGE, size=12)
    card.text(437, 66, "attention 0.68", size=12)
    card.write("concept-cell")


def channel() -> None:
    card = Card(640, 220, "Channels: a head's score as a sum of products")
    card.text(30, 34, "query", ink=BLUE, bold=True, anchor="start")
    card.text(30, 92, "key", ink=ORANGE, bold=True, anchor="start")
    query, key = [0.9, -0.5, 0.7, 0.2, -0.1], [0.8, 0.6, 0.5, -0.3, 0.2]
    for i in range(5):
        x = 120 + i * 78
        for y, value, colour in ((26, query[i], BLUE), (84, key[i], ORANGE)):
            h = abs(value) * 26
            card.box(x, y - (h if value > 0 else 0), 30, h, fill=colour, edge=colour)
        product = query[i] * key[i]
        h = abs(product) * 60
        card.box(
            x, 150 - (h if product > 0 else 0), 30, max(h, 2), fill=GREEN if product > 0 else RED, edge=LINE
        )
        card.text(x + 15, 205, f"channel {i}", size=11)
        card.text(x + 15, 62, "×", size=14)
    card.text(30, 152, "product", bold=True, anchor="start")
    card.text(570, 118, "sum =", size=13)
    card.text(570, 140, "the score", size=13, bold=True)
    card.write("concept-channel")


def signal() -> None:
    card = Card(640, 200, "A signal: what one writer put into some channels of a head's query or key")
    for i, (name, y) in enumerate((("embedding", 24), ("L20H0 ← John", 76), ("MLP 20", 128))):
        card.box(24, y, 130, 36, name, size=12, bold=i == 1, edge=BLUE if i == 1 else LINE)
        card.arrow(156, y + 18, 262, 96, ink=BLUE if i == 1 else LINE, width=2.6 if i == 1 else 1.3)
    card.box(264, 70, 120, 52, "query of L23H3\nat ‘ to’", size=12)
    for k in range(6):
        on = k in (1, 4)
        card.box(430 + k * 30, 82, 24, 28, fill=BLUE if on else "#fff", edge=BLUE if on else LINE)
    card.arrow(386, 96, 426, 96, ink=LINE)
    card.text(518, 138, "channels of L23H3", size=12)
    card.text(518, 64, "the signal: channels 1 and 4", size=12, ink=BLUE, bold=True)
    card.write("concept-signal")


def circuit() -> None:
    card = Card(640, 260, "A circuit: signals, traced recursively from the answer down")
    words = ["When", "John", "and", "Mary", "…", "John", "to"]
    tokens(card, words, 216, marked={1: LINE})
    places = {
        "L20H0": (470, 150, BLUE),
        "MLP 20": (560, 150, LINE),
        "L23H3": (560, 86, BLUE),
        "L6H2": (200, 150, BLUE),
    }
    for name, (x, y, edge) in places.items():
        card.box(x - 38, y - 16, 76, 32, name, size=12, edge=edge, bold=edge == BLUE)
    card.box(510, 18, 100, 32, "‘ Mary’", bold=True, edge=GREEN)
    card.arrow(560, 68, 560, 52, ink=GREEN, width=2)
    card.arrow(482, 132, 540, 104, ink=BLUE, width=2)
    card.arrow(560, 132, 560, 104, ink=LINE)
    card.arrow(240, 146, 430, 150, ink=BLUE, width=2, bend=-24)
    card.arrow(145, 212, 180, 168, ink=LINE)
    card.arrow(480, 212, 474, 168, ink=LINE)
    card.arrow(558, 212, 560, 168, ink=LINE)
    card.text(24, 40, "up: later layers", size=12, ink=LINE, anchor="start")
    card.write("concept-circuit")


def feature() -> None:
    card = Card(640, 220, "A feature: a subspace found by contrasting labelled keys")
    for i, (x, y) in enumerate(((120, 60), (150, 84), (132, 108), (168, 62), (180, 100))):
        card.dot(x, y, 7, ORANGE)
        card.dot(x + 150, y + 34 - 6 * i, 7, LINE)
    card.text(150, 150, "keys that are asked for", size=12, ink=ORANGE)
    card.text(310, 172, "other keys", size=12)
    card.arrow(150, 84, 300, 104, ink=INK, width=2.4)
    card.text(225, 74, "feature", bold=True)
    card.box(430, 40, 180, 60, "swap only this\nbetween two keys", size=13)
    card.arrow(520, 104, 520, 136, ink=LINE)
    card.box(430, 140, 180, 50, "attention follows?", size=13, bold=True, edge=GREEN)
    card.write("concept-feature")


def contrast() -> None:
    """From one prompt's query and keys to the feature's two subspaces."""
    card = Card(
        760, 330, "Contrastive covariance: from labelled keys to a feature's subspaces of queries and keys"
    )
    words = ("apple", "horse", "plum", "truck", "Fruits:")
    for i, word in enumerate(words):
        edge = ORANGE if i in (0, 2) else BLUE if i == 4 else LINE
        card.box(24 + 84 * i, 22, 76, 30, word, edge=edge, size=12, bold=edge != LINE)
    card.text(62, 72, "k₊", ink=ORANGE, bold=True)
    card.text(230, 72, "k₊", ink=ORANGE, bold=True)
    card.text(146, 72, "k₋", bold=True)
    card.text(314, 72, "k₋", bold=True)
    card.text(398, 72, "q", ink=BLUE, bold=True)
    card.text(600, 34, "one query, keys that are asked for", size=12)
    card.text(600, 51, "and keys that are not, per prompt", size=12)
    _covariance(card, 30, 118, {(0, 0): 5, (1, 1): 4, (2, 0): 1, (0, 2): 2, (2, 2): 3, (3, 3): 3}, ORANGE)
    card.text(70, 220, "C₊ = E[q k₊ᵀ]", size=12, ink=ORANGE)
    card.text(142, 163, "−", size=22)
    _covariance(card, 174, 118, {(2, 0): 1, (0, 2): 2, (2, 2): 3, (3, 3): 3}, LINE)
    card.text(214, 220, "C₋ = E[q k₋ᵀ]", size=12)
    card.text(286, 163, "=", size=22)
    _covariance(card, 318, 118, {(0, 0): 5, (1, 1): 4}, GREEN)
    card.text(358, 220, "ΔC", size=12, ink=GREEN, bold=True)
    card.text(446, 151, "SVD", size=12)
    card.arrow(418, 158, 474, 158)
    for row in range(4):
        for column in range(2):
            card.box(484 + 20 * column, 118 + 20 * row, 20, 20, fill=BLUE if row == column else "#fff")
    card.text(504, 220, "U", ink=BLUE, bold=True)
    for at, shade in ((0, GREEN), (1, GREEN)):
        card.box(546 + 20 * at, 138 + 20 * at, 20, 20, fill=shade)
    card.text(566, 220, "Σ", ink=GREEN, bold=True)
    for row in range(2):
        for column in range(4):
            card.box(608 + 20 * column, 138 + 20 * row, 20, 20, fill=ORANGE if row == column else "#fff")
    card.text(648, 220, "Vᵀ", ink=ORANGE, bold=True)
    card.box(130, 262, 240, 44, "span of U: the feature\nin what queries ask for", edge=BLUE, size=12)
    card.box(400, 262, 240, 44, "span of V: the feature\nin what keys offer", edge=ORANGE, size=12)
    card.arrow(496, 228, 300, 258, ink=BLUE)
    card.arrow(640, 228, 560, 258, ink=ORANGE)
    card.write("contrastive")


def _covariance(card: Card, x: float, y: float, filled: dict[tuple[int, int], int], ink: str) -> None:
    """A matrix of four by four squares, some of them filled more or less."""
    for row in range(4):
        for column in range(4):
            card.box(x + 20 * column, y + 20 * row, 20, 20)
            if (row, column) in filled:
                inset = 8 - 1.4 * filled[row, column]
                side = 20 - 2 * inset
                card.box(x + 20 * column + inset, y + 20 * row + inset, side, side, fill=ink, edge=ink)


def sink() -> None:
    card = Card(640, 180, "A sink: a token on which heads park their attention")
    words = ["The", "cat", "sat", "on", "the", "mat", "."]
    tokens(card, words, 130, marked={0: RED})
    for i in range(2, 7):
        card.arrow(30 + i * 82 + 37, 126, 70, 126, ink=RED if i > 2 else LINE, width=1.8, bend=-46 - 14 * i)
    card.text(70, 32, "sink", ink=RED, bold=True)
    card.text(430, 24, "nothing to look for here: park", size=12)
    card.write("concept-sink")


def family() -> None:
    card = Card(640, 200, "Families: prompts whose circuits share their signals")
    for cx, colour, name in ((130, BLUE, "family 1"), (330, ORANGE, "family 2")):
        for dx, dy in ((-40, -20), (0, -36), (36, -10), (-18, 18), (22, 26), (-50, 22)):
            card.dot(cx + dx, 90 + dy, 8, colour)
        card.text(cx, 160, name, ink=colour, bold=True)
    card.dot(230, 62, 8, LINE)
    card.text(520, 60, "one dot: the circuit", size=12)
    card.text(520, 78, "of one prompt", size=12)
    card.text(520, 112, "near: mostly the", size=12)
    card.text(520, 130, "same signals", size=12)
    card.write("concept-family")


def house() -> None:
    card = Card(860, 512, "The rooms of headwise, from left to right")
    columns = [
        ("input", LINE, {"tasks": "prompts with labels\nor answers", "corpus": "ordinary text"}),
        ("model", BLUE, {"model": "load, capture, edit,\nsplit, check"}),
        (
            "coordinates",
            BLUE,
            {"bases": "channels of a head", "contrast": "features from labels", "tracing": "who wrote it"},
        ),
        ("answers", ORANGE, {"why": "one attention", "circuits": "one answer"}),
        (
            "studies",
            ORANGE,
            {
                "survey": "thousands of prompts",
                "families": "circuits that agree",
                "sinks": "parked attention",
                "sparsity": "how few channels",
                "naming": "names that are tested",
                "portraits": "one head, all heads",
            },
        ),
        (
            "people",
            GREEN,
            {"show": "terminal, pages,\nnotebooks", "app": "in the browser", "cli": "the command"},
        ),
    ]
    for column, (title, colour, rooms) in enumerate(columns):
        x = 20 + column * 140
        card.text(x + 62, 36, title, bold=True, ink=colour if colour != LINE else INK)
        for row, (name, what) in enumerate(rooms.items()):
            y = 56 + row * 66
            card.box(x, y, 124, 54, edge=colour)
            card.text(x + 62, y + 19, name, bold=True, size=13)
            for number, line in enumerate(what.split("\n")):
                card.text(x + 62, y + 34 + 13 * number, line, size=11)
        if column < len(columns) - 1:
            card.arrow(x + 126, 83, x + 138, 83, ink=INK)
    card.box(
        20,
        464,
        824,
        32,
        "types · tokens · files · jsons · validation · randomness · intervals · progress      "
        "scale: long work in a folder",
        size=12,
    )
    card.text(432, 454, "below every room: value types and small helpers", size=11)
    card.write("house")


if __name__ == "__main__":
    for draw in (cell, channel, signal, circuit, feature, contrast, sink, family, house):
        draw()
