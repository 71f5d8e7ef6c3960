"""``headwise.find_names``: what heads, writers, signals, channels and features respond to, in words that were tested.

Levels, cells, rules, tests, controls: one pass over the texts gives the cells of every subject and of its rotated
counterpart; rules are found on one half and asked of the other; the swapped control goes the same way with the cells of
one text read in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.basis_names import BasisKind
from headwise.corpora.known import find_corpus
from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.naming.assemble import Fared, compared, fared, result_of
from headwise.naming.change import CausalEvidence
from headwise.naming.evidence import find_evidence
from headwise.naming.examine import Cases
from headwise.naming.halves import Half, Halves, halves_of, swapped
from headwise.naming.llm.choice import By, LlmChoice, llm_choice
from headwise.naming.llm.names import LlmNamer, asking, read_for_llm
from headwise.naming.llm.prompts import prompts_digest
from headwise.naming.predicates.lexicon import Lexicon, lexicon_of
from headwise.naming.predicates.library import library_digest
from headwise.naming.reservoir import Reservoir
from headwise.naming.result import KIND, Giver, NamesResult
from headwise.naming.sample import BATCH, PILOT, CellsJob, Levels, LevelsJob, NumberedText, Scored
from headwise.naming.signals import Subject
from headwise.naming.sources import SourceLike, Subjects, read_source
from headwise.naming.texts import Texts
from headwise.progress import Progress
from headwise.scale.cluster import WorkSharing
from headwise.scale.engines import engine_for
from headwise.scale.mapping import map_chunks
from headwise.scale.stages import Stages
from headwise.scale.study import run_study
from headwise.scale.work import Chunk

if TYPE_CHECKING:
    from headwise.model.model import Model

TEXTS = 1500
"""Texts of a corpus that are read, spread evenly over it."""
TOKENS = 64
"""Tokens of each of them."""
ALIKE = 0.95
"""A writer's signal that correlates more than this with its whole channel has no name of its own."""
TOP = 500
"""Subjects of circuits that are named unless more are asked for."""


def find_names(
    model: Model,
    source: SourceLike = "all",
    *,
    corpus: str | Path | Corpus | None = None,
    texts: int = TEXTS,
    tokens: int = TOKENS,
    top: int | None = TOP,
    by: By = "rules",
    llm: str | Path | None = None,
    base_url: str | None = None,
    cap: int | None = None,
    words: Sequence[str | Path] = (),
    basis: BasisKind = "singular",
    rotated: bool = True,
    causal: bool = False,
    split_seed: int = 0,
    out: str | Path | None = None,
    workers: WorkSharing = 1,
    progress: Progress | None = None,
) -> NamesResult:
    """Name what heads attend to, or what signals respond to, and test every name on texts that it was not found on.

    Parameters
    ----------
    model:
        A loaded model.
    source:
        What to name: ``all`` heads, a head (``L23H3``), heads or signals separated by commas (``L23H3 key MLP18``,
        ``L23H3 key ch2 MLP18 ++``, ``L23H3 sink``), a circuit file, a folder of circuits or families, or a feature
        bank.
    corpus:
        Texts to find and test names on: a corpus, its name (``wikipedia-excerpt``), a folder or a file; None is the
        documentation of installed packages.
    texts:
        At most so many texts of it, spread evenly.
    tokens:
        At most so many tokens of each text.
    top:
        At most so many subjects, those of circuits strongest first; None is all.
    by:
        Who gives names: ``rules``, a language model (``llm``), which explains and judges, or ``both``, side by side
        on the same cells. A language model must pass an exam first.
    llm:
        Which language model: its name at an endpoint, a ``.gguf`` file, which is served on this machine
        (``headwise[local]``), or the folder, hub id or known name of a transformers model, which judges by P(yes).
    base_url:
        An endpoint that speaks OpenAI's protocol (``headwise[llm]``); its key is read from the environment variable
        ``OPENAI_API_KEY``. Texts of the corpus are sent there, and nowhere unless it is given.
    cap:
        Tokens that may be sent: a run that would need more is refused before the first (default: 5 million).
    words:
        Word lists that rules may use: files of one word per line, a folder of WordNet's database files, or
        ``textblob`` for the nouns, verbs, adjectives and adverbs of its lexicon (``headwise[words]``).
    basis:
        Which channels the numbers of a subject mean that was written by hand; circuits say theirs.
    rotated:
        Whether every subject's rotated counterpart is named too, as a control.
    causal:
        Whether texts are changed for every name that passed its test: made false, made true, and the signal taken
        away, each beside a matched change (a *sham*), to see whether the signal follows the name.
    split_seed:
        Another split of the texts. After test results were seen, names that are to be tested again need one, and are
        labelled a second look.
    out:
        A folder that keeps the run; one that was interrupted is continued.
    workers:
        Processes that share the work; above 1, each loads the model anew (in a script, call this under
        ``if __name__ == "__main__":``). Or a :class:`~headwise.scale.cluster.RayCluster`. What is found does not depend
        on it.
    progress:
        Told the stage, how many of its texts or subjects are done, and how many there are.

    Returns
    -------
    NamesResult
        Every subject with its verdict, the shares, and the controls beside them.
    """
    choice = llm_choice(by, llm, base_url, cap, causal=causal)
    if tokens < 16:
        raise HeadwiseError(f"tokens={tokens} leaves too little of each text: give 16 or more")
    lexicon = lexicon_of(words)
    chosen = read_source(model, source, basis=basis, top=top)
    if not len(chosen):
        raise HeadwiseError(f"top={top} leaves nothing to name: give 1 or more")
    held = (corpus if isinstance(corpus, Corpus) else find_corpus(corpus)).first(texts)
    read = Texts.of(model, held, tokens=tokens)
    halves = halves_of(read, split_seed)
    engine = engine_for(model, workers)
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "dtype": str(model.dtype).removeprefix("torch."),
        "subjects": [str(one) for one in chosen.subjects],
        "basis": chosen.basis.kind,
        "frame": chosen.basis.frame,
        "basis_hash": chosen.basis.hash,
        "unstable": chosen.unstable,
        "corpus": held.name,
        "corpus_sha256": held.digest,
        "texts": len(held),
        "tokens": tokens,
        "split_seed": split_seed,
        "predicates": library_digest(lexicon),
        "by": by,
        "rotated": rotated,
        **({"causal": True} if causal else {}),
    }
    if choice is not None:
        config |= {"llm": choice.name, "llm_at": choice.place, "prompts": prompts_digest()}
    return run_study(
        KIND,
        config,
        lambda run: _found(model, chosen, read, halves, lexicon, choice, config, run),
        NamesResult.load,
        engine=engine,
        out=out,
        progress=progress,
    )


def _found(
    model: Model,
    chosen: Subjects,
    texts: Texts,
    halves: Halves,
    lexicon: Lexicon,
    choice: LlmChoice | None,
    config: dict[str, Any],
    run: Stages,
) -> NamesResult:
    """What is found with the language model that was chosen at hand, if one was."""
    if choice is None:
        return _names(model, chosen, texts, halves, lexicon, None, config, run)
    families = 3 if config["rotated"] else 2
    with asking(choice, texts, halves.explore, len(chosen), families, config["split_seed"], run) as asked:
        return _names(model, chosen, texts, halves, lexicon, asked, config, run)


def _names(
    model: Model,
    chosen: Subjects,
    texts: Texts,
    halves: Halves,
    lexicon: Lexicon,
    asked: LlmNamer | None,
    config: dict[str, Any],
    run: Stages,
) -> NamesResult:
    """Levels, then cells, then names and their tests, of the subjects and of their controls."""
    seed = config["split_seed"]
    measured = Scored(chosen.subjects, seed if config["rotated"] else None, chosen.basis, chosen.features)
    # a signal's channel is looked at beside it: where the two go together, the name is the channel's
    channels = tuple(dict.fromkeys(one.channel for one in chosen.subjects if one.level == "signal"))
    looking = replace(measured, beside=channels)
    looked = run("levels", LevelsJob(looking, seed), _chunks(texts, halves.explore[:PILOT]))
    scores = np.concatenate([one.scores for one in looked], axis=1)
    levels = Levels.of(measured.every, scores[: len(measured.every)])
    alike = _alike(chosen, channels, scores[: len(chosen)], scores[len(measured.every) :])
    job = CellsJob(measured, levels, seed)
    kept: dict[Half, Reservoir] = {}
    for half in ("explore", "test"):
        kept[half] = Reservoir(half, len(measured.every))
        for drawn in _streamed(run, f"cells to {half}", job, _chunks(texts, halves.of(half))):
            kept[half].add(drawn)
    cases = Cases(texts, kept["explore"], kept["test"], lexicon=lexicon)
    other = swapped(texts, halves)
    results: dict[Giver, dict[str, list[Fared]]] = {}
    if config["by"] != "llm":
        results["rules"] = fared(Cases.tried, cases, replace(cases, other=other), config, run)
    if asked is not None:
        shown, false = read_for_llm(cases), read_for_llm(cases, other)
        results["llm"] = fared(asked.tried, shown, false, config, run, "llm ")
    changed: dict[int, CausalEvidence] = {}
    if config.get("causal"):
        rules = enumerate(results["rules"]["names"])
        named = {n: one.tried.rule for n, one in rules if one.judged.verdict == "named"}
        changed = find_evidence(run, chosen, cases, levels, named, seed)
    told = _texts(texts, halves)
    found = {
        giver: result_of(
            model,
            chosen,
            cases,
            levels,
            alike,
            config,
            some,
            giver,
            changed if giver == "rules" else {},
            told,
        )
        for giver, some in results.items()
    }
    if "llm" not in found:
        return found["rules"]
    by_llm = replace(found["llm"], exam=None if asked is None else asked.exam)
    if "rules" not in found:
        return by_llm
    return replace(found["rules"], beside=compared(by_llm, cases, results))


def _alike(
    chosen: Subjects, channels: tuple[Subject, ...], scores: np.ndarray, beside: np.ndarray
) -> list[bool]:
    """Whether each signal goes with its whole channel over explored cells, so that the name is the channel's."""
    place = {channel: number for number, channel in enumerate(channels)}
    made = []
    for subject, row in zip(chosen.subjects, scores, strict=True):
        if subject.level != "signal":
            made.append(False)
            continue
        other = beside[place[subject.channel]]
        known = np.isfinite(row) & np.isfinite(other)
        made.append(bool(np.corrcoef(row[known], other[known])[0, 1] > ALIKE) if known.sum() > 2 else False)
    return made


def _texts(texts: Texts, halves: Halves) -> dict[str, int]:
    used = np.concatenate([halves.explore, halves.test])
    return {
        "explore": len(halves.explore),
        "test": len(halves.test),
        "groups": halves.groups,
        "left_out": halves.left_out,
        "tokens": int(texts.lengths[used].sum()),
    }


def _chunks(texts: Texts, numbers: np.ndarray) -> list[Chunk[NumberedText]]:
    """Batches of one half, in its order; a last one of a single text would have nobody to compare it with."""
    items: list[NumberedText] = [(int(number), tuple(texts.ids_of(int(number)))) for number in numbers]
    cuts = list(range(0, len(items), BATCH))
    if len(cuts) > 1 and len(items) - cuts[-1] == 1:
        cuts.pop()
    ends = [*cuts[1:], len(items)]
    return [Chunk(start, tuple(items[start:end])) for start, end in zip(cuts, ends, strict=True)]


def _streamed(run: Stages, name: str, job: CellsJob, chunks: list[Chunk[NumberedText]]) -> Any:
    """What a job makes of chunks, one at a time: as :class:`Stages` does it, without keeping the parts."""
    keeper = run.folder.keeper(run.number) if run.folder else None
    run.number += 1
    tick = run.begin(name, sum(len(chunk) for chunk in chunks))
    with closing(map_chunks(job, chunks, engine=run.engine, keeper=keeper, tick=tick)) as made:
        for part in made:
            run.done += 1
            yield part
