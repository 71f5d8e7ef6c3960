"""Which basis of the QK form needs the fewest channels, cancels least, and stays the same? Prints the tables of
docs/results/bases.md.

    python benchmarks/bases.py [--cells 288] [--heads 24]

Bases are fitted on one half of the pooled corpus and measured on attended cells (attention of at least 0.2, not to the
first token) of the other half: documentation, prompts and prose alike. Intervals (95 %) are percentiles over 1,000
draws with replacement of heads and of texts, each by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
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
DRAWS = 1000
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


Statistic = Callable[..., float]
"""A number, from how often each item's head (its text, and so on) was drawn: one array for each kind of label."""


def interval(statistic: Statistic, *labels: Sequence[object], digits: int = 2) -> str:
    """A number, and between what it lies when every kind of label (heads, texts) is drawn anew."""
    codes = [np.unique([str(one) for one in some], return_inverse=True)[1] for some in labels]
    sizes = [int(code.max()) + 1 for code in codes]
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(DRAWS):
        often = [
            np.bincount(generator.integers(size, size=size), minlength=size)[code]
            for code, size in zip(codes, sizes, strict=True)
        ]
        if np.prod(often, axis=0).any():
            drawn.append(statistic(*often))
    low, high = np.percentile(drawn, [2.5, 97.5])
    point = statistic(*(np.ones_like(code) for code in codes))
    return f"{point:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def of_heads(values: Sequence[float], heads: Sequence[Head]) -> Statistic:
    """The median over heads of each head's median over its cells."""
    found = np.asarray(values, dtype=float)
    codes = np.unique([str(head) for head in heads], return_inverse=True)[1]

    def statistic(head_often: np.ndarray, text_often: np.ndarray | int = 1) -> float:
        text_often = np.broadcast_to(text_often, found.shape)
        medians: list[float] = []
        for code in range(int(codes.max()) + 1):
            mine = codes == code
            if text_often[mine].any():
                medians += [float(np.median(np.repeat(found[mine], text_often[mine])))] * int(
                    head_often[mine][0]
                )
        return float(np.median(medians)) if medians else float("nan")

    return statistic


def mean_of(values: Sequence[float]) -> Statistic:
    found = np.asarray(values, dtype=float)
    return lambda *often: float(np.average(found, weights=np.prod(often, axis=0)))


def parsimony(cells: Sequence[Held], maps: dict[str, Callable[[Held], Tensor]]) -> None:
    rows = []
    heads, texts = [one.cell.head for one in cells], [one.text for one in cells]
    for name, split_by in maps.items():
        values = torch.stack([split_by(one) for one in cells])
        needed = channels_needed(values).double().tolist()
        cancel = (values.abs().sum(-1) / values.sum(-1).abs().clamp(min=1e-9)).tolist()
        rows.append(
            (
                name,
                interval(of_heads(needed, heads), heads, texts, digits=0),
                interval(of_heads(cancel, heads), heads, texts),
            )
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
        heads, texts = [], []
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
                    heads.append(one.cell.head)
                    texts.append(one.text)
                    by_signal.append(jaccard(moved(here[side], 0, True), moved(there[side], by, True)))
                    by_writer.append(jaccard(moved(here[side], 0, False), moved(there[side], by, False)))
        median = sorted(counts)[len(counts) // 2]
        means = (interval(mean_of(found), heads, texts) for found in (by_signal, by_writer))
        rows.append((name, str(median), *means))
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
        by_channel = torch.stack(found).mT.tolist()
        rows.append((name, *(interval(of_heads(values, heads), heads) for values in by_channel)))
    table("|correlation| of balanced channels 0 to 5, median over heads", ("", *"012345"), rows)


def circuit_sizes(model: headwise.Model, chosen: Sequence[BasisKind]) -> None:
    rows = []
    for basis in chosen:
        edges, signals, single, prompts = [], [], [], []
        for task in TASKS:
            for prompt in make_answers(task, model.tokenizer, prompts=3).prompts:
                circuit = headwise.trace(
                    model, prompt.prompt, answer=prompt.answer_id, wrong=prompt.wrong_id, basis=basis
                )
                causal = [len(edge.channels) for edge in circuit.edges if edge.channels]
                prompts.append(prompt.prompt)
                edges.append(len(causal))
                signals.append(sum(causal))
                single.append(causal.count(1))

        def share(often: np.ndarray, single: list[int] = single, edges: list[int] = edges) -> float:
            return float((np.asarray(single) * often).sum() / max(1, (np.asarray(edges) * often).sum()))

        rows.append(
            (
                basis,
                *(interval(mean_of(found), prompts, digits=0) for found in (edges, signals)),
                interval(share, prompts),
            )
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
