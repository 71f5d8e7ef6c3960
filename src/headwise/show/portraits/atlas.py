"""The pages of an atlas: one per head, and an index with a picture of each, filters and search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwise.files import write_text
from headwise.known_names import KnownNames, NamesLike
from headwise.show.kit.escape import attribute, text
from headwise.show.kit.page import page, script
from headwise.show.kit.picture import picture
from headwise.show.kit.terminal import quoted
from headwise.show.portraits.page import portrait_report
from headwise.strings import counted, percent

if TYPE_CHECKING:
    from headwise.portraits.portrait import HeadPortrait
    from headwise.portraits.result import Atlas

INDEX = "report.html"
TOKENS = 3
"""Tokens that are shown on a card."""


def write_pages(atlas: Atlas, folder: Path, names: NamesLike | None = None) -> Path:
    """Write the pages into a folder; the index. An atlas of one head is that head's page."""
    known = None if names is None else KnownNames.of(names)
    if len(atlas) == 1:
        (one,) = atlas.portraits
        return portrait_report(one, one.known(known)).write(folder / INDEX)
    for one in atlas.portraits:
        portrait_report(one, one.known(known), INDEX).write(folder / page_name(one))
    return write_text(folder / INDEX, index_page(atlas, known))


def page_name(one: HeadPortrait) -> str:
    """The file of a head's page, beside the index."""
    return f"{one.head}.html"


def index_page(atlas: Atlas, known: KnownNames | None = None) -> str:
    """The index as one string."""
    layers = sorted({one.head.layer for one in atlas.portraits})
    told = (
        f"{counted(atlas.texts, 'text')} ({atlas.config['corpus']}), {atlas.tokens:,} tokens. Each picture is the "
        f"head's attention over the first {len(atlas.pictured)} tokens of one text, a row per query; below it are the "
        "tokens that it attends to most apart from sinks. A click opens the head's page. The text that is pictured:"
    )
    parts = {
        "title": text(f"Atlas of {atlas.model}"),
        "intro": f"<p>{text(told)}</p><p><bdi>{text(''.join(atlas.pictured))}</bdi></p>",
        "facts": "".join(f"<div><dt>{text(k)}</dt><dd>{n}</dd></div>" for k, n in atlas.kinds.items()),
        "kinds": "".join(f"<option>{text(kind)}</option>" for kind in atlas.kinds),
        "layers": "".join(f"<option>{layer}</option>" for layer in layers),
        "heads": "\n".join(_card(one, one.known(known)) for one in atlas.portraits),
    }
    return page("portraits/index.html", parts, [script("kit/cards.js"), script("kit/framed.js")])


def _card(one: HeadPortrait, known: KnownNames | None) -> str:
    account = one.account
    numbers = {"beside": one.looks.most}
    if one.on_sinks is not None:
        numbers |= {"beside": 1 - one.on_sinks.mean, "sinks": one.on_sinks.mean}
    if account is not None:
        place = account.place
        numbers |= {
            "copies": account.does.copies.mean,
            "content": place.content.mean,
            "position": place.place.mean,
        }
    data = {"kind": one.kind, "layer": str(one.head.layer), "words": " ".join(_words(one, known))}
    data |= {name: f"{value:.4f}" for name, value in numbers.items()}
    marked = " ".join(f"data-{name}={attribute(value)}" for name, value in data.items())
    lines = [one.kind, " ".join(quoted(token.token) for token in one.looks.to[:TOKENS])]
    if one.on_sinks is not None:
        lines.append(f"{percent(one.on_sinks.mean)} on sinks")
    name = None if known is None else known.get(str(one.head))
    if name is not None and name.text is not None:
        lines.append(name.said)
    said = "".join(f"<small><bdi>{text(line)}</bdi></small>" for line in lines)
    shown = picture(one.picture, f"attention of {one.head}")
    return f"<li {marked}><a href={attribute(page_name(one))}>{shown}<b>{text(one.head)}</b>{said}</a></li>"


def _words(one: HeadPortrait, known: KnownNames | None) -> list[str]:
    """What a search finds a head by, beside what its card shows."""
    found = [token.token.strip() for token in one.looks.to]
    if one.role is not None and one.role.role is not None:
        found.append(one.role.role)
    if one.account is not None:
        found += [habit.writer.name for habit in one.account.writers]
        found += [token.token.strip() for token in one.account.does.raised]
    if known is not None:
        found += [name.text for name in known.chosen(one.subjects).values() if name.text is not None]
    return found
