"""The sentences say what the document says: read back, every writer, side, token, count and direction is checked."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from said import read
from said_checks import check
from tiny import VARIANTS, tiny

from headwise.contrast.roles import ROLES, HeadRole, HeadRoles, Role, head_roles
from headwise.randomness import keyed
from headwise.show.why.terminal import explanation
from headwise.types import Estimate, Head
from headwise.why.explain import explain
from headwise.why.explanation import Explanation

CELLS = 200


@pytest.fixture(scope="module")
def why() -> Explanation:
    return explain(tiny("llama"), [3, 14, 15, 9, 2, 6, 5, 35, 8], head="L3H1", query=-1, draws=19)


def made_up_roles(why: Explanation, generator: torch.Generator) -> HeadRoles:
    """Every head of the tiny models with a role of its own, or none: drawn, not measured."""
    heads = []
    for layer in range(4):
        for index in range(4):
            chosen = int(torch.randint(len(ROLES) + 1, (1,), generator=generator))
            clear = [0.9 if n == chosen else 0.05 for n in range(len(ROLES))]
            seen: dict[Role, Estimate] = {
                role: Estimate(mean, mean - 0.01, mean + 0.01, n=4, clusters=4)
                for role, mean in zip(ROLES, clear, strict=True)
            }
            heads.append(HeadRole(Head(layer, index), seen))
    return HeadRoles(why.model, why.weight_hash, 4, 6, 0, tuple(heads))


@pytest.mark.slow
def test_the_sentences_of_many_cells_say_what_their_documents_say() -> None:
    seen = {
        "diffuse": 0,
        "even": 0,
        "negative": 0,
        "unresolved": 0,
        "through": 0,
        "twice": 0,
        "roles": 0,
        "elsewhere": 0,
    }
    done = 0
    for number in range(CELLS):
        generator = keyed(0, "sentence", number)

        def draw(low: int, high: int, generator: torch.Generator = generator) -> int:
            return int(torch.randint(low, high, (1,), generator=generator))

        model = tiny(list(VARIANTS)[draw(0, len(VARIANTS))], seed=draw(0, 3))
        length = draw(2, 16)
        # Few different tokens, so that many occur twice.
        ids = torch.randint(3, 3 + draw(2, 50), (length,), generator=generator).tolist()
        head, query = f"L{draw(0, 4)}H{draw(0, 4)}", draw(0, length)
        answer, wrong = (7, 50) if draw(0, 2) else (None, None)
        # Sometimes with another prompt of the same length, and with one that has two tokens more before it.
        others = [ids[::-1], [9, 9, *ids]][: draw(0, 3)] if draw(0, 4) == 0 else ()
        why = explain(
            model, ids, head=head, query=query, answer=answer, wrong=wrong, draws=19, transfer=others
        )
        if draw(0, 2):
            why.__dict__["roles"] = made_up_roles(why, generator)
        document = why.to_json()
        check(read(why.sentence, list(why.tokens)), document)
        done += 1
        seen["even"] += "about an even share" in why.sentence
        seen["negative"] += "less than an even share" in why.sentence
        seen["unresolved"] += "No set of writers" in why.sentence
        seen["through"] += ", after " in why.sentence
        seen["twice"] += len(set(ids)) < length
        seen["roles"] += why.roles is not None and any(role in why.sentence for role in ROLES)
        seen["elsewhere"] += "transfer" in why.sentence
        seen["diffuse"] += "No few writers" in why.sentence
    assert done == CELLS
    assert seen["through"] > 10 and seen["twice"] > 50 and seen["roles"] > 30, seen
    assert seen["elsewhere"] > 10, seen


def test_the_roles_of_the_named_heads_are_those_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path))
    model, ids = tiny("llama"), [3, 14, 15, 9, 2, 6, 5, 35, 8]
    before = explain(model, ids, head="L3H1", query=-1, draws=19)
    assert before.roles is None and before.to_json()["role"] is None
    measured = head_roles(model)
    file = next((tmp_path / "roles").iterdir())
    known = explain(model, ids, head="L3H1", query=-1, draws=19)
    assert known.roles is not None and known.roles.to_json() == measured.to_json()
    # Nobody has a role in a model of random weights; the file says who has one, and for which weights.
    text = json.loads(file.read_text())
    for one in text["heads"]:
        one["induction"] |= {"mean": 0.9, "ci": [0.8, 0.95]}
    file.write_text(json.dumps(text))
    unsupported = explain(model, ids, head="L3H1", query=-1, draws=19)
    assert unsupported.to_json()["role"] is None and "induction" not in unsupported.sentence
    for one in text["heads"]:
        one["induction"]["claim"]["supported"] = True
    file.write_text(json.dumps(text))
    why = explain(model, ids, head="L3H1", query=-1, draws=19)
    document = why.to_json()
    check(read(why.sentence, list(why.tokens)), document)
    assert "L3H1 (induction) reads" in why.sentence and document["role"] == "induction"
    heads = [row for row in document["who"] if re.fullmatch(r"L\d+H\d+", row["writer"])]
    assert heads and all(row["role"] == "induction" for row in heads)
    assert all(row["role"] is None for row in document["who"] if row not in heads)
    assert "Why does L3H1 (induction) at" in _printed(why)
    assert any(f"{row['writer']}, induction" in _printed(why) for row in heads)
    for damage in (
        {"heads": []},
        {"heads": text["heads"][:1] * 2},
        {"model": text["model"] | {"weight_hash": "0" * 64}},
    ):
        file.write_text(json.dumps(text | damage))
        assert explain(model, ids, head="L3H1", query=-1, draws=19).roles is None
    file.write_text("{")
    again = explain(model, ids, head="L3H1", query=-1, draws=19)
    assert again.roles is None and again.sentence == before.sentence


def _printed(why: Explanation) -> str:
    wide = Console(width=140, file=io.StringIO())
    with wide.capture() as shown:
        wide.print(explanation(why))
    return shown.get()


def test_a_set_of_many_is_called_diffuse() -> None:
    """Nearly all of an attention takes many writers: three are named, the others counted."""
    for seed in range(40):
        why = explain(tiny("llama", seed=seed), [*range(3, 18)], head="L3H1", query=-1, draws=19, tau=1e-4)
        cause = why.who.headline
        if cause is None or not cause.diffuse:
            continue
        said, document = read(why.sentence, list(why.tokens)), why.to_json()
        check(said, document)
        assert said.needed == len(cause) > 12 and len(said.cause) == 3
        assert document["cause"][cause.side]["diffuse"]
        assert f"No few writers cause it: {len(cause)} are needed" in why.sentence
        return
    raise AssertionError("no cause was diffuse")


def test_a_wrong_sentence_is_found(why: Explanation) -> None:
    """The test above can fail: each change of the text that a reader would mind is noticed."""
    document, spoken, tokens = why.to_json(), why.sentence, list(why.tokens)
    check(read(spoken, tokens), document)
    swapped = (
        spoken.replace("the keys", "its query")
        if "the keys" in spoken
        else spoken.replace("its query", "the keys")
    )
    first = re.search(r"because (MLP \d+|L\d+H\d+|the embedding)", spoken)
    assert first
    other = spoken.replace(first[1], "MLP 1" if first[1] != "MLP 1" else "MLP 2", 1)
    turned = spoken.replace("falls", "rises") if "falls" in spoken else spoken.replace("rises", "falls")
    attention = spoken.replace(f"attention {why.attention:.2f}", f"attention {why.attention - 0.1:.2f}")
    token = spoken.replace(f"reads {why.tokens[why.key]!r}", f"reads {why.tokens[why.query]!r}")
    role = spoken.replace("L3H1 reads", "L3H1 (induction) reads")
    brought = re.sub(r"directly (adds|takes) (\d)", r"directly \1 1\2", spoken)
    for wrong in (swapped, other, turned, attention, token, role, brought):
        assert wrong != spoken
        with pytest.raises(AssertionError):
            check(read(wrong, tokens), document)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (0.308, 0.357, "rises from 0.3 to 0.4:"),
        (0.31, 0.26, "stays at 0.3:"),
        (0.04, -0.04, "stays at 0.0:"),
        (6.12, 4.80, "falls from 6.1 to 4.8:"),
    ],
)
def test_leads_are_compared_as_they_are_printed(
    why: Explanation, before: float, after: float, said: str
) -> None:
    proof = why.proof
    assert proof.after is not None
    changed = replace(
        proof, before=replace(proof.before, lead=before), after=replace(proof.after, lead=after)
    )
    spoken = replace(why, proof=changed, answer=replace(why.answer, compared=True)).sentence
    assert said in spoken


def test_a_token_that_occurs_again_is_told_by_its_position(why: Explanation) -> None:
    assert f"At {why.tokens[why.query]!r}, L3H1 reads {why.tokens[why.key]!r} with" in why.sentence
    tokens = tuple("cat" for _ in why.tokens)
    assert (
        f"At 'cat' ({why.query}), L3H1 reads 'cat' ({why.key}) with" in replace(why, tokens=tokens).sentence
    )


def test_the_terminal_shows_one_table_with_its_sums(why: Explanation) -> None:
    text = _printed(why)
    total = f"{why.what.log_odds:+.2f}"
    together = [line for line in text.splitlines() if line.strip().startswith("together")]
    assert len(together) == 2 and all(total in line for line in together)
    assert together[0].split()[1:] == together[1].split()[1:]  # the same sums by channel on both sides
    for side in ("query", "key"):
        cause = why.who.sets[side]  # pyright: ignore[reportArgumentType]
        marked = text.split(f"{side} side")[1].split("together")[0].count("* ")
        assert marked - 1 == len(cause)  # one star explains the others
