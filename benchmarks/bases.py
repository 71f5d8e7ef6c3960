"""Which basis of the QK form needs the fewest channels, cancels least, and stays the same? Prints the tables of
docs/results/bases.md.

    python benchmarks/bases.py [--cells 288] [--heads 24]

Bases are fitted on one half of the pooled corpus and measured on attended cells (attention of at least 0.2, not to the
first token) of the other half: documentation, prompts and prose alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import torch
from torch import Tensor

import headwise
from headwise.bases.basis import Bases, Basis
from headwise.bases.calibrate import calibrate, pooled_corpus
from headwise.bases.calibration import Calibration, store
from headwise.bases.moments import ATTENDED
from headwise.bases.relative import channels_needed, relative
from headwise.bases.stability import channel_agreement
from headwise.basis_names import BasisKind
from headwise.corpus import Corpus
from headwise.model.stream import split
from headwise.randomness import keyed
from headwise.tasks.answers.make import make_answers
from headwise.tracing.search import LayerSearch, Rules
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Head, Signal

PREFIXES = ("Well. ", "As we all know by now, ")
TOKENS = 48
TASKS = ("ioi", "greater-than", "pronouns", "facts")


@dataclass(frozen=True, eq=False)
class Held:
    """One held-out cell: its text, and its query before rotation with its key less the mean of its rivals."""

    text: int
    cell: Cell
    q: Tensor
    key: Tensor
    absolute_q: Tensor
    absolute_key: Tensor


def halves(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Two halves of a corpus with as many texts of each kind."""
    places: dict[str, int] = {}
    first, second = [], []
    for text, kind in zip(corpus.texts, corpus.kinds, strict=True):
        places[kind] = places.get(kind, -1) + 1
        (first if places[kind] % 2 == 0 else second).append((text, kind))
    return tuple(  # pyright: ignore[reportReturnType]
        Corpus(name, tuple(t for t, _ in part), tuple(k for _, k in part))
        for name, part in (("first half", first), ("second half", second))
    )


def held_out(
    model: headwise.Model, corpus: Corpus, heads: Sequence[Head], cells: int
) -> tuple[list[Held], dict[int, PromptWrites]]:
    """Attended cells, the same number per head and spread over the texts."""
    found: dict[Head, list[Held]] = {head: [] for head in heads}
    ups: dict[int, PromptWrites] = {}
    # Kinds of text in turns, so that every head has cells of each.
    by_kind = [[i for i, kind in enumerate(corpus.kinds) if kind == one] for one in sorted(set(corpus.kinds))]
    for number in (i for some in zip_longest(*by_kind) for i in some if i is not None):
        text = corpus.texts[number]
        ids = model.token_ids(text)[0][:TOKENS]
        if len(ids) < 8:
            continue
        up = ups[number] = PromptWrites(split(model, ids), 0)
        for head in heads:
            pattern = up.stream.whole_pattern(head)
            rows, keys = (pattern[4:, 1:] >= ATTENDED).nonzero().T
            if not len(rows):
                continue
            at = int(torch.randint(len(rows), (1,), generator=keyed(0, "cell", number, str(head))))
            d, s = int(rows[at]) + 4, int(keys[at]) + 1
            found[head].append(one_cell(up, number, Cell(head, d, s)))
    each = max(1, cells // len(heads))
    chosen = [one for head in heads for one in found[head][:each]]
    return chosen, {one.text: ups[one.text] for one in chosen}


def one_cell(up: PromptWrites, text: int, cell: Cell) -> Held:
    head, d, s = cell
    q, keys = up.q[head.layer, head.index, d].double(), up.k[head.layer, head.index // up.group].double()
    key = relative(keys, s, up.visible(head.layer)[d])
    rotary = up.stream.rotary(head.layer, 0)
    if rotary is None:
        return Held(text, cell, q, key, q, key)
    here = rotary.at_positions([d]).double()
    return Held(
        text,
        cell,
        here.undo(q[None, None, None])[0, 0, 0],
        here.transposed(key[None, None, None])[0, 0, 0],
        q,
        key,
    )


def principal(moments: Calibration, head: Head) -> tuple[Tensor, Tensor]:
    """Principal components of the keys as a basis."""
    _, vectors = torch.linalg.eigh(moments.moments.key[head.layer, head.index])
    return vectors.flip(-1), vectors.flip(-1).mT


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def parsimony(cells: Sequence[Held], maps: dict[str, Callable[[Held], Tensor]]) -> None:
    rows = []
    for name, split_by in maps.items():
        by_head: dict[Head, list[Tensor]] = {}
        for one in cells:
            by_head.setdefault(one.cell.head, []).append(split_by(one))
        needed, cancel = [], []
        for parts in by_head.values():
            values = torch.stack(parts)
            needed.append(channels_needed(values).double().median())
            cancel.append((values.abs().sum(-1) / values.sum(-1).abs().clamp(min=1e-9)).median())
        rows.append(
            (name, f"{float(torch.stack(needed).median()):.0f}", f"{float(torch.stack(cancel).median()):.2f}")
        )
    table(
        "Parsimony (median over heads of the median over cells)",
        ("basis", "channels needed (10 %)", "Σ|v| / |Σv|"),
        rows,
    )


def searched(up: PromptWrites, cell: Cell) -> dict[str, list[Signal]]:
    found = LayerSearch(up.bases, cell.head.layer, Rules(), up.dtype).run(up, [cell])[0]
    return {side: signals.signals for side, signals in found.items()}


def moved(signals: Sequence[Signal], by: int, channels: bool) -> set[object]:
    """Signals without their positions' offset; by writer alone, or by writer and channel."""
    return {
        (replace(one.writer, source=one.writer.source - by) if one.writer.source >= 0 else one.writer)
        if not channels
        else (one.writer.name, one.writer.source - by if one.writer.source >= 0 else -1, one.channels)
        for one in signals
    }


def jaccard(a: set, b: set) -> float:
    return len(a & b) / len(a | b) if a | b else 1.0


def prefixes(model: headwise.Model, corpus: Corpus, cells: Sequence[Held], chosen: dict[str, Bases]) -> None:
    rows = []
    for name, bases in chosen.items():
        counts, by_signal, by_writer = [], [], []
        plain: dict[tuple[int, str], PromptWrites] = {}
        for one in cells:
            for prefix in ("", *PREFIXES):
                if (one.text, prefix) not in plain:
                    ids = model.token_ids(prefix + corpus.texts[one.text])[0]
                    by = len(ids) - len(model.token_ids(corpus.texts[one.text])[0])
                    plain[one.text, prefix] = PromptWrites(split(model, ids[: TOKENS + by]), 0, bases)
            here = searched(plain[one.text, ""], one.cell)
            counts += [len(signals) for signals in here.values()]
            for prefix in PREFIXES:
                up = plain[one.text, prefix]
                by = up.tokens - plain[one.text, ""].tokens
                there = searched(up, Cell(one.cell.head, one.cell.query + by, one.cell.key + by))
                for side in here:
                    by_signal.append(jaccard(moved(here[side], 0, True), moved(there[side], by, True)))
                    by_writer.append(jaccard(moved(here[side], 0, False), moved(there[side], by, False)))
        means = (sum(by_signal) / len(by_signal), sum(by_writer) / len(by_writer))
        median = sorted(counts)[len(counts) // 2]
        rows.append((name, str(median), f"{means[0]:.2f}", f"{means[1]:.2f}"))
    table(
        f"Signals of {len(cells)} cells, and the same cells behind a neutral prefix",
        ("basis", "signals per side, median", "Jaccard of signals", "of writers"),
        rows,
    )


def corpora(
    model: headwise.Model, heads: Sequence[Head], pooled: Calibration, kinds: dict[str, Calibration]
) -> None:
    """How far two corpora, and two halves of one, agree on the first channels."""
    rows = []
    one, other = (Bases.of(model, "balanced", calibration=kind) for kind in kinds.values())
    between, within = [], []
    for head in heads:
        moments = pooled.moments.at(head.layer).at(head.index).shrunk()
        agreement = channel_agreement(one.head(head), other.head(head), moments)  # pyright: ignore[reportArgumentType]
        between.append(agreement.amax(-1)[:6])
        within.append(pooled.halves[head.layer, head.index][:6])
    for name, found in ((" against ".join(kinds), between), ("halves of the pooled corpus", within)):
        rows.append((name, *(f"{x:.2f}" for x in torch.stack(found).median(0).values.tolist())))
    table("|correlation| of balanced channels 0 to 5, median over heads", ("", *"012345"), rows)


def circuit_sizes(model: headwise.Model, chosen: Sequence[BasisKind]) -> None:
    rows = []
    for basis in chosen:
        edges, channels, one = [], [], []
        for task in TASKS:
            for prompt in make_answers(task, model.tokenizer, prompts=3).prompts:
                circuit = headwise.trace(
                    model, prompt.prompt, answer=prompt.answer_id, wrong=prompt.wrong_id, basis=basis
                )
                causal = [edge for edge in circuit.edges if edge.channels]
                edges.append(len(causal))
                channels += [len(edge.channels) for edge in causal]
        one = sum(n == 1 for n in channels) / max(1, len(channels))
        rows.append(
            (basis, f"{sum(edges) / len(edges):.0f}", f"{sum(channels) / len(edges):.0f}", f"{one:.2f}")
        )
    table(
        f"Circuits of {3 * len(TASKS)} prompts ({', '.join(TASKS)})",
        ("basis", "causal edges", "signals (channels)", "edges of one channel"),
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=288)
    parser.add_argument("--heads", type=int, default=24)
    parser.add_argument("--searched", type=int, default=60, help="cells whose signals are searched")
    given = parser.parse_args()
    model = headwise.load()
    first, second = halves(pooled_corpus(model))
    with torch.no_grad():
        pooled = calibrate(model, first)
        docs = calibrate(model, first.of_kind("documentation"))
        rest = calibrate(
            model,
            Corpus(
                "others",
                *zip(
                    *[(t, k) for t, k in zip(first.texts, first.kinds, strict=True) if k != "documentation"],
                    strict=True,
                ),
            ),
        )  # pyright: ignore[reportArgumentType]
        enough = [
            head
            for head in model.heads
            if head.layer >= 4 and float(pooled.moments.cells[head.layer, head.index]) >= 10 * model.d_head
        ]
        order = torch.randperm(len(enough), generator=keyed(0, "heads")).tolist()
        heads = sorted(enough[i] for i in order[: given.heads])
        cells, _ = held_out(model, second, heads, given.cells)
        texts = len({one.text for one in cells})
        kinds = sorted({second.kinds[one.text] for one in cells})
        named = ", ".join(map(str, heads))
        print(f"{len(cells)} cells of {len(heads)} heads ({named}) in {texts} texts of {', '.join(kinds)}")
        chosen = {
            "singular, query's frame": Bases.of(model),
            "rotated, query's frame": Bases.of(model, "rotated"),
            "balanced, salience first": Bases.of(model, "balanced", calibration=pooled),
        }

        def by(bases: Bases) -> Callable[[Held], Tensor]:
            return lambda one: bases.head(one.cell.head).split(one.q, one.key)

        def absolute(one: Held) -> Tensor:
            basis: Basis = chosen["singular, query's frame"].head(one.cell.head)
            return basis.split(one.absolute_q, one.absolute_key)

        def by_principal(one: Held) -> Tensor:
            query_map, key_map = principal(pooled, one.cell.head)
            return (one.q @ query_map) * (key_map @ one.key)

        def surrogate(bases: Bases) -> Callable[[Held], Tensor]:
            """Queries and keys drawn from a Gaussian of the same moments, with a positive product, as attended ones."""

            def drawn(one: Held) -> Tensor:
                m = pooled.moments.at(one.cell.head.layer).at(one.cell.head.index)
                generator = keyed(0, "surrogate", one.text, str(one.cell))
                centred = m.query - m.query_mean[:, None] * m.query_mean
                noise = torch.randn(2, 64, m.query.shape[-1], generator=generator, dtype=torch.float64)
                q = m.query_mean + noise[0] @ _root(centred)
                k = noise[1] @ _root(m.key)
                at = int((q * k).sum(-1).gt(0).to(torch.uint8).argmax())
                return bases.head(one.cell.head).split(q[at], k[at])

            return drawn

        parsimony(
            cells,
            {
                "singular, absolute": absolute,
                **{name: by(bases) for name, bases in chosen.items()},
                "principal components of keys": by_principal,
                "Gaussian surrogate, singular": surrogate(chosen["singular, query's frame"]),
                "Gaussian surrogate, balanced": surrogate(chosen["balanced, salience first"]),
            },
        )
        corpora(model, heads, pooled, {"documentation": docs, "prompts and prose": rest})
        some = cells[:: max(1, len(cells) // given.searched)]
        prefixes(model, second, some, {"singular, absolute": Bases.of(model, frame="absolute"), **chosen})
        store(pooled)
        circuit_sizes(model, ("singular", "rotated", "balanced"))


def _root(moment: Tensor) -> Tensor:
    value, vector = torch.linalg.eigh(moment)
    return (vector * value.clamp(min=0).sqrt()) @ vector.mT


if __name__ == "__main__":
    main()
