"""Which box holds the jam? Clauses bind entities to labelled boxes; the last token must find the right label.

Keys are the box labels, the query is the last token. Three things can lead it there, and each has a contrast:

* ``order``: the queried entity is always the same one of a fixed set, the order is shuffled. The box at the
  queried order against the other boxes.
* ``lexical``: the queried entity is exchanged for another in a counterfactual prompt that is otherwise the
  same. Its box in the original against its box in the counterfactual: same place, same label, another
  entity. As a ``triplet`` both keys meet the query of the original; as a ``run`` each meets the query of its
  own prompt.
* ``reflexive``: the entity and its place are fixed and the labels shuffled: the answer's box against the
  others.

Testing prompts come in pairs that share the context and ask for two different boxes, so that each one's
query is the other's "query that asks for the target". Their entities and wording occur in no fitting prompt.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from headwise.errors import HeadwiseError
from headwise.tasks.labelled.formats import Format, Marked, check_format, locate
from headwise.tasks.labelled.types import Contrast, Example, Task
from headwise.tasks.labelled.words import ENTITIES, LABELS, check_words, halves

Variant = Literal["triplet", "run"]
VARIES = {"order": "order", "lexical": "entity", "reflexive": "label"}
"""Every contrast and the group that it is about."""

# The entity comes before its label: a label that comes first cannot know what it will be bound to.
# Twelve wordings each: below that, what prompts of one wording share cannot be told from what the feature is.
FIT_CLAUSES = (
    "The {e} is in Box {b}.",
    "You will find the {e} in Box {b}.",
    "The {e} was put in Box {b}.",
    "Someone left the {e} in Box {b}.",
    "We keep the {e} in Box {b}.",
    "The {e} belongs in Box {b}.",
    "They stored the {e} in Box {b}.",
    "The {e} has been moved to Box {b}.",
    "Look for the {e} in Box {b}.",
    "The {e} went into Box {b}.",
    "The place for the {e} is Box {b}.",
    "A friend placed the {e} in Box {b}.",
)
TEST_CLAUSES = (
    "I saw the {e} in Box {b}.",
    "The {e} can be found in Box {b}.",
    "The {e} ended up in Box {b}.",
    "She packed the {e} into Box {b}.",
    "The {e} sits in Box {b}.",
    "He dropped the {e} into Box {b}.",
    "The {e} now lies in Box {b}.",
    "My brother hid the {e} in Box {b}.",
    "You can get the {e} from Box {b}.",
    "The {e} is kept inside Box {b}.",
    "The label on the {e} says Box {b}.",
    "Nobody took the {e} out of Box {b}.",
)
ASK = " The {e} is in Box"
ASK_CHAT = " Which box is the {e} in? Answer with the letter alone."
FILLERS = ("Also,", "After that,", "In the same room,", "Look again:", "As far as we know,", "Then,")
SHOT = "The violin is in Box 7. The saddle is in Box 3. The saddle is in Box 3.\n"


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """One context: entities and labels in order, its wording, and the words that jitter positions."""

    entities: tuple[str, ...]
    labels: tuple[str, ...]
    clause: str
    template: str
    fillers: tuple[str, ...]


def _continued(clause: str) -> str:
    """A clause as it goes on after a filler.

    >>> _continued("The {e} is in Box {b}."), _continued("I saw the {e} in Box {b}.")
    ('the {e} is in Box {b}.', 'I saw the {e} in Box {b}.')
    """
    return clause if clause.startswith("I ") else clause[0].lower() + clause[1:]


class _PromptWriter:
    """Turns scenes into examples for one tokenizer and format."""

    def __init__(self, tokenizer: Any, format: Format, labels: Sequence[str]) -> None:
        self.tokenizer = tokenizer
        self.format: Format = format
        self.tokens_of = {b: tokenizer(f" {b}", add_special_tokens=False).input_ids[-1] for b in labels}

    def tokens(
        self, scene: _Scene, asked: int | None, until: int | None = None
    ) -> tuple[tuple[int, ...], list[int]]:
        """Token ids and label positions; ``until`` ends the text after that clause, nothing being asked."""
        text = Marked(SHOT if self.format == "few-shot" else "")
        count = len(scene.entities) if until is None else until + 1
        for i in range(count):
            filler = f"{scene.fillers[i]} " if scene.fillers[i] else ""
            clause = _continued(scene.clause) if filler else scene.clause
            text.add(" " if i else "").add(filler).fill(clause, scene.entities[i], scene.labels[i])
        reply = ""
        if asked is not None and until is None:
            chat = self.format == "chat"
            question = (ASK_CHAT if chat else ASK).replace("{e}", scene.entities[asked])
            text.add(question if chat else "")
            reply = "Box" if chat else question
        return locate(self.tokenizer, text, format=self.format, reply=reply)

    def example(self, scene: _Scene, asked: int) -> Example:
        tokens, keys = self.tokens(scene, asked)
        rest = [i for i in range(len(keys)) if i != asked]
        order = [asked, *rest]
        return Example(
            tokens=tokens,
            query=len(tokens) - 1,
            positive=(keys[asked],),
            negative=tuple(keys[i] for i in rest),
            groups={
                "entity": scene.entities[asked],
                "order": str(asked + 1),
                "label": scene.labels[asked],
                "template": scene.template,
            },
            key_groups={
                "entity": tuple(scene.entities[i] for i in order),
                "order": tuple(str(i + 1) for i in order),
                "label": tuple(scene.labels[i] for i in order),
            },
            answers=tuple(self.tokens_of[scene.labels[i]] for i in order),
        )

    def counterfactual(
        self, example: Example, scene: _Scene, asked: int, entity: str, variant: Variant
    ) -> Example:
        """The same example, its negative key read from the scene with another entity in the asked clause."""
        entities = (*scene.entities[:asked], entity, *scene.entities[asked + 1 :])
        changed = replace(scene, entities=entities)
        # A key depends on what comes before it alone, so a triplet needs the context only up to its box. In
        # a chat template, what comes after the text would be cut off with it.
        short = variant == "triplet" and self.format != "chat"
        tokens, keys = self.tokens(changed, asked, until=asked if short else None)
        if short:
            tokens = tokens[: keys[asked] + 1]
        key_groups = {g: (labels[0], labels[0]) for g, labels in example.key_groups.items()}
        key_groups["entity"] = (scene.entities[asked], entity)
        return replace(
            example,
            negative=(keys[asked],),
            key_groups=key_groups,
            answers=(),
            other=tokens,
            other_query=len(tokens) - 1 if variant == "run" else None,
        )


def contrast_names(given: Sequence[str]) -> tuple[str, ...]:
    """The contrasts that are asked for, if all are known."""
    for name in given:
        if name not in VARIES:
            raise HeadwiseError(f"contrast {name!r} is not known: write {', '.join(VARIES)}")
    return tuple(given)


def binding(
    tokenizer: Any,
    *,
    prompts: int = 600,
    test: int | None = None,
    scan: int | None = None,
    pairs: int = 9,
    contrasts: Sequence[str] = tuple(VARIES),
    variant: Variant = "triplet",
    jitter: bool = False,
    format: str = "plain",
    seed: int = 0,
) -> Task:
    """The binding task: ``prompts`` to fit each contrast, ``test`` and ``scan`` prompts (None: a third as many each).

    ``jitter`` puts fillers of different lengths between the clauses, so that order no longer is position.
    """
    form = check_format(format, tokenizer)
    if prompts < 4:
        raise HeadwiseError(f"{prompts} prompts are too few to fit and test a feature: give at least 4")
    if not 2 <= pairs <= 20:
        raise HeadwiseError(f"{pairs} pairs cannot be made: give 2 to 20")
    contrasts = contrast_names(contrasts)
    labels = check_words(tokenizer, LABELS, single=True, least=pairs, what="box labels")
    entities = check_words(tokenizer, ENTITIES, single=True, least=2 * pairs + 2, what="entities")
    fit_entities, test_entities = halves(entities)
    design = _BindingDesign(
        writer=_PromptWriter(tokenizer, form, labels),
        rng=random.Random(f"binding {seed}"),
        labels=labels,
        fit_entities=fit_entities,
        test_entities=test_entities,
        pairs=pairs,
        variant=variant,
        jitter=jitter,
    )
    test = max(4, prompts // 3) if test is None else test
    scan = max(4, prompts // 3) if scan is None else scan
    both = tuple(name for name in ("order", "lexical") if name in contrasts)
    # One generator draws them all, in this order.
    tested, scanned = design.tested(test), design.scanned(scan)
    return Task(
        name="binding",
        rule="accuracy",
        scan=Contrast("binding", scanned, "order"),
        fits=tuple(Contrast(name, design.fitted(name, prompts), VARIES[name]) for name in contrasts),
        test=Contrast("binding", tested, "order"),
        unions={"order+lexical": both} if len(both) == 2 else {},
        held_out=("entity", "template"),
        colours={**VARIES, "order+lexical": "order"},
        settings={
            "prompts": prompts,
            "test": test,
            "scan": scan,
            "pairs": pairs,
            "contrasts": list(contrasts),
            "variant": variant,
            "jitter": jitter,
            "format": form,
            "seed": seed,
        },
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _BindingDesign:
    """Draws scenes, and makes of them the prompts to scan, to fit and to test on."""

    writer: _PromptWriter
    rng: random.Random
    labels: Sequence[str]
    fit_entities: Sequence[str]
    test_entities: Sequence[str]
    pairs: int
    variant: Variant
    jitter: bool

    def scene(self, pool: Sequence[str], clauses: Sequence[str], kind: str) -> _Scene:
        rng = self.rng
        at = rng.randrange(len(clauses))
        fillers = [rng.choice((*FILLERS, "", "")) if self.jitter else "" for _ in range(self.pairs)]
        return _Scene(
            entities=tuple(rng.sample(list(pool), self.pairs)),
            labels=tuple(rng.sample(self.labels, self.pairs)),
            clause=clauses[at],
            template=f"{kind} {at + 1}",
            fillers=tuple(fillers),
        )

    def scanned(self, count: int) -> tuple[Example, ...]:
        """Prompts that ask for every place in turn."""
        return tuple(
            self.writer.example(self.scene(self.fit_entities, FIT_CLAUSES, "fit"), i % self.pairs)
            for i in range(count)
        )

    def fitted(self, name: str, count: int) -> tuple[Example, ...]:
        """The prompts of one contrast."""
        return tuple(self._lexical(i) if name == "lexical" else self._fixed(name, i) for i in range(count))

    def _lexical(self, number: int) -> Example:
        """Another entity takes the asked one's place in the counterfactual."""
        drawn, asked = self.scene(self.fit_entities, FIT_CLAUSES, "fit"), number % self.pairs
        new = self.rng.choice([e for e in self.fit_entities if e not in drawn.entities])
        return self.writer.counterfactual(self.writer.example(drawn, asked), drawn, asked, new, self.variant)

    def _fixed(self, name: str, number: int) -> Example:
        """The queried entity of a fixed set is always the same: bring it to the place that is asked for."""
        fixed = tuple(self.fit_entities[: self.pairs])
        drawn = self.scene(fixed, FIT_CLAUSES, "fit")
        asked = number % self.pairs if name == "order" else self.pairs // 2
        places = list(drawn.entities)
        here = places.index(fixed[0])
        places[here], places[asked] = places[asked], places[here]
        return self.writer.example(replace(drawn, entities=tuple(places)), asked)

    def tested(self, count: int) -> tuple[Example, ...]:
        """Pairs of prompts that share a scene and ask for each other's box."""
        made: list[Example] = []
        for _ in range((count + 1) // 2):
            drawn = self.scene(self.test_entities, TEST_CLAUSES, "test")
            asked = self.rng.sample(range(self.pairs), 2)
            for this, that in (asked, asked[::-1]):
                example, number = self.writer.example(drawn, this), len(made)
                target = example.keys[example.key_groups["order"].index(str(that + 1))]
                partner = number + 1 if number % 2 == 0 else number - 1
                made.append(replace(example, swap=(example.positive[0], target), partner=partner))
        return tuple(made)
