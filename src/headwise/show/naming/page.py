"""The page of a naming run: every subject with its name, the cells that it holds at, and where it fails.

Everything from the corpus is text: a page shows markup, instructions and marks of any text as they are.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.files import write_text
from headwise.known_names import anchor
from headwise.show.kit.context import in_context
from headwise.show.kit.escape import attribute, text
from headwise.show.kit.page import page, script

if TYPE_CHECKING:
    from headwise.naming.change import CausalEvidence
    from headwise.naming.result import CellExample, NamedSubject, NamesResult
    from headwise.naming.statistics import NamedShare
    from headwise.types import Estimate

BANDS = {"top": "above 99.9 %", "upper": "99–99.9 %", "middle": "95–99 %"}
KINDS = {
    "strongest": "Strongest cells of the test texts",
    "missed": "Where the name fails: it acts, and the name does not hold",
    "false alarm": "Where the name fails: the name holds, and it does not act",
}


def names_page(result: NamesResult) -> str:
    """The whole page as one string."""
    kinds = Counter(one.level for one in result.signals)
    parts = {
        "title": text(f"Names in {result.model}"),
        "intro": _intro(result),
        "facts": "".join(f"<div><dt>{text(k)}</dt><dd>{v}</dd></div>" for k, v in _facts(result).items()),
        "levels": "",
        "kinds": "".join(f"<option>{text(kind)}</option>" for kind in kinds),
        "subjects": "\n".join(_card(*some) for some in _side_by_side(result)),
    }
    return page("naming/page.html", parts, [script("kit/cards.js")])


def _side_by_side(result: NamesResult) -> list[tuple[NamedSubject, ...]]:
    """Every subject, with what a language model said of it where both gave names."""
    if result.beside is None:
        return [(one,) for one in result.signals]
    return list(zip(result.signals, result.beside.signals, strict=True))


def write_names_page(result: NamesResult, place: Path) -> Path:
    """Write the page into a file."""
    return write_text(place, names_page(result))


GIVERS = {
    "rules": "A name is a rule about the two tokens of a cell. ",
    "llm": "A name is what a language model wrote about the two tokens of cells, and a judge that passed an exam said "
    "where it holds. ",
    "both": "A name is a rule about the two tokens of a cell, or what a language model wrote about them; a judge that "
    "passed an exam said where that holds. ",
}


def _intro(result: NamesResult) -> str:
    told = result.texts
    corpus = result.config["corpus"]
    lines = [
        GIVERS[result.config["by"]] + "It was found on one half of the texts and tested, once, on "
        "the other; “named” means a balanced accuracy above 0.65 beyond doubt, “beyond chance” only that it is better "
        "than guessing. A share of names means nothing without its controls: cells read in another text (swapped), and "
        "the same tests on directions or queries that were turned at random (rotated).",
        f"Corpus: {corpus}, {told['explore']} texts to explore and {told['test']} to test, "
        f"{result.tokens_scored:,} tokens scored. Names are as good as the texts: another corpus can give others.",
    ]
    judged = result if result.beside is None else result.beside
    if judged.exam is not None:
        lines.append(
            f"Language model: {result.config['llm']}, at {result.config['llm_at']}; "
            f"{judged.exam.balanced_accuracy:.0%} right in its exam of {judged.exam.questions} cells."
        )
    if result.second_look:
        lines.append(
            f"Second look: the texts were split anew (split seed {result.config['split_seed']}), because results of "
            "an earlier split had been seen."
        )
    marks = "In cells, <mark class=to>this token</mark> attends to <mark class=from>this one</mark>."
    return "".join(f"<p>{text(line)}</p>" for line in lines) + f"<p>{marks}</p>"


def _facts(result: NamesResult) -> dict[str, str]:
    facts = {
        "named": _share(result.share_named),
        "beyond chance": _share(result.share_beyond_chance),
        "named, swapped": _share(result.swapped),
    }
    if result.rotated is not None:
        facts["named, rotated"] = _share(result.rotated)
    if result.difference is not None:
        facts["named less rotated"] = _interval(result.difference)
    if result.beside is not None:
        facts |= {f"{word} (language model)": said for word, said in _facts(result.beside).items()}
    return facts


def _share(share: NamedShare) -> str:
    return f"{share.mean:.0%} <small>({share.low:.0%} to {share.high:.0%}, n = {share.n})</small>"


def _interval(value: Estimate) -> str:
    return f"{value.mean:+.0%} <small>({value.low:+.0%} to {value.high:+.0%})</small>"


def _card(one: NamedSubject, other: NamedSubject | None = None) -> str:
    accuracy = one.balanced_accuracy
    data = {
        "verdict": one.verdict,
        "level": one.level,
        "accuracy": "" if accuracy is None else f"{accuracy.mean:.4f}",
        "matched": "" if one.position_matched is None else f"{one.position_matched.mean:.4f}",
    }
    marked = " ".join(f"data-{name}={attribute(value)}" for name, value in data.items())
    verdict = f'<span class="verdict {one.verdict.split()[0]}">{text(one.verdict)}</span>'
    head = f"<h2><bdi>{text(one.subject)}</bdi> {verdict}</h2><p class=name>{_name(one)}</p>"
    own = f"{head}{_numbers(one)}{_details(one)}"
    place = attribute(anchor(str(one.subject)))
    return f"<article id={place} {marked}>{own}{'' if other is None else _beside(other)}</article>"


def _beside(one: NamedSubject) -> str:
    """What a language model said of the same subject."""
    verdict = f'<span class="verdict {one.verdict.split()[0]}">{text(one.verdict)}</span>'
    said = f"<h3>By the language model {verdict}</h3><p class=name>{_name(one)}</p>"
    return f"{said}{_numbers(one)}{_details(one)}"


def _name(one: NamedSubject) -> str:
    if one.name is not None:
        return text(one.name.text)
    return "no rule explains more than it costs" if one.by == "rules" else "no name was given"


def _numbers(one: NamedSubject) -> str:
    said: list[str] = []
    if one.balanced_accuracy is not None:
        a = one.balanced_accuracy
        said.append(f"balanced accuracy {a.mean:.2f} ({a.low:.2f} to {a.high:.2f})")
        said.append(f"q {one.q:.2g}")
    if one.position_matched is not None:
        said.append(f"at matched positions {one.position_matched.mean:.2f}")
    if one.positives is not None:
        said.append(f"{one.positives} test texts")
    said += [f"flag: {flag}" for flag in one.flags]
    if one.occurrences is not None:
        said.append(f"occurs {one.occurrences} times")
    if one.agreement is not None:
        said.append(f"κ with the rule {one.agreement:.2f}")
    if one.unread:
        said.append(f"{one.unread} answers not read")
    if one.causal is None and one.name is not None:
        said.append("observational")
    numbers = f"<p class=numbers>{text(' · '.join(said))}</p>"
    return numbers if one.causal is None else f"{numbers}<p class=evidence>{text(_told(one.causal))}</p>"


def _told(evidence: CausalEvidence) -> str:
    """One plain sentence of what changing the texts showed."""
    return f"{evidence.sentence[0].upper()}{evidence.sentence[1:]}."


def _details(one: NamedSubject) -> str:
    parts = []
    for kind, title in KINDS.items():
        found = [example for example in one.examples if example.kind == kind]
        if found:
            parts.append(f"<h3>{text(title)}</h3><ul>{''.join(_example(example) for example in found)}</ul>")
    parts.append("" if one.causal is None else _changes(one))
    parts.append(_bands(one))
    if one.name is not None and one.name.equally_good:
        others = "".join(f"<li>{text(other)}</li>" for other in one.name.equally_good)
        parts.append(f"<h3>Equally good on the explored texts</h3><ul>{others}</ul>")
    if one.name is not None and one.name.falsified_by:
        parts.append(f"<h3>What would show it to be wrong</h3><p>{text(one.name.falsified_by)}</p>")
    parts.append(_controls(one))
    failures = sum(example.kind != "strongest" for example in one.examples)
    title = (
        f"cells, {failures} where the name fails, {'changes, ' * (one.causal is not None)}bands and controls"
    )
    return f"<details><summary>{text(title)}</summary>{''.join(parts)}</details>"


def _example(example: CellExample) -> str:
    shown = in_context(example.tokens, example.destination, example.source)
    holds = "the name holds" if example.holds else "the name does not hold"
    return f"<li>{shown} <small>{example.score:+.2f}, {holds}</small></li>"


def _bands(one: NamedSubject) -> str:
    test = one.test
    if test is None or not test.positives or not test.recall_by_band:
        return ""
    found = test.recall_by_band
    rows = [(label, found[band].recall if found[band].n else None) for band, label in BANDS.items()]
    rows += [("80–95 % (near misses)", one.near)]
    rows += [(f"negatives: {kind}", share) for kind, share in test.false_alarms.items()]
    body = "".join(
        f"<tr><th scope=row>{text(label)}</th><td class=n>{'–' if share is None else f'{share:.2f}'}</td></tr>"
        for label, share in rows
    )
    return _table("Does it hold only at the very top?", ("cells", "share where the name holds"), body)


CHANGES = {
    "break": "the name made false",
    "make": "the name made true",
    "remove": "the signal removed",
}


def _changes(one: NamedSubject) -> str:
    """What was changed, what that did, and what the sham did."""
    assert one.causal is not None
    unit = "log-odds" if one.level in ("head", "sink") else "logits"
    does = {
        "break": f"the signal falls by ({unit})",
        "make": "share of texts where it then acts",
        "remove": "attention falls by",
    }
    rows, words = [], []
    for test, q in zip(one.causal.tests, one.causal.q, strict=True):
        numbers = [_span(test.effect), _span(test.sham), f"{q:.2g}", f"{test.n}"]
        cells = "".join(f"<td class=n>{number}</td>" for number in numbers)
        rows.append(
            f"<tr><th scope=row>{text(CHANGES[test.kind])}</th><td>{text(does[test.kind])}</td>{cells}</tr>"
        )
        words += [(CHANGES[test.kind], *example) for example in test.examples]
    columns = ("change", "what it does", "effect (95 %)", "matched change (95 %)", "q", "texts")
    made = _table("Does it follow the name where texts are changed?", columns, "".join(rows))
    if not words:
        return made
    body = "".join(
        f"<tr>{''.join(f'<td><bdi>{text(word)}</bdi></td>' for word in row)}</tr>" for row in words
    )
    return made + _table("Words that were changed", ("change", "word", "became", "matched change"), body)


def _span(value: Estimate | None) -> str:
    return "–" if value is None else f"{value.mean:.2f} ({value.low:.2f} to {value.high:.2f})"


def _controls(one: NamedSubject) -> str:
    rows = []
    for word, outcome in (("swapped", one.swapped), ("rotated", one.rotated)):
        if outcome is None:
            continue
        accuracy = "–" if outcome.balanced_accuracy is None else f"{outcome.balanced_accuracy:.2f}"
        rows.append(
            f"<tr><th scope=row>{word}</th><td>{text(outcome.verdict)}</td><td class=n>{accuracy}</td>"
            f"<td>{text(outcome.name or '–')}</td></tr>"
        )
    return _table("Its controls", ("control", "verdict", "accuracy", "name"), "".join(rows))


def _table(title: str, columns: tuple[str, ...], body: str) -> str:
    head = "".join(f"<th scope=col>{text(column)}</th>" for column in columns)
    inside = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<h3>{text(title)}</h3><div class=scroll>{inside}</div>"
