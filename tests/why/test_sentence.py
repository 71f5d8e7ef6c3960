"""The sentences say what the document says: read back, every writer, side, token, count and direction is checked."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from said import Said, SaidWriter, read
from tiny import VARIANTS, tiny

from headwise.contrast.roles import ROLES, HeadRole, HeadRoles, head_roles
from headwise.randomness import keyed
from headwise.show.why.terminal import explanation
from headwise.types import Estimate, Head
from headwise.why.explain import Explanation, explain

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
            seen = {
                role: Estimate(mean, mean - 0.01, mean + 0.01, n=4, clusters=4)
                for role, mean in zip(ROLES, clear, strict=True)
            }
            heads.append(HeadRole(Head(layer, index), seen))
    return HeadRoles(why.model, why.weight_hash, 4, 6, 0, tuple(heads))


def _near(said: float, number: float, digits: int) -> bool:
    return abs(said - number) <= 0.5 * 10**-digits + 1e-9


def _check_transfer(said: Said, tried: list[dict[str, Any]]) -> None:
    known = [one for one in tried if one["holds"]["said"] is not None]
    if not tried:
        assert said.transfers is None
        return
    assert said.transfers == (sum(one["holds"]["said"] for one in known) if known else "unknown")
    assert len(said.elsewhere) == min(4, len(known))
    for (after, before, share, p), one in zip(said.elsewhere, known, strict=False):
        assert _near(after, one["after"]["attention"], 2) and _near(before, one["before"]["attention"], 2)
        assert _near(share, one["holds"]["value"], 2) and _near(p, one["holds"]["p"], 3)


def _told(role: str | None) -> str | None:
    """To rest on the first token is a role that sentences do not name."""
    return None if role == "first token" else role


def _check_writer(said: SaidWriter, rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = [row for row in rows if (row["writer"], row["reads"]) == (said.writer, said.reads)]
    assert len(found) == 1, said
    row = found[0]
    assert said.log_odds is not None and _near(said.log_odds, row["log_odds"], 1)
    assert said.role == _told(row["role"])
    if said.after is not None:
        sign = 1 if row["log_odds"] > 0 else -1
        shares = [one for one in row["through"] if one["writer"] != "others"]
        best = max(shares, key=lambda one: sign * one["log_odds"])
        assert (said.after, said.after_reads) == (best["writer"], best["reads"])
        assert said.after_role == _told(best["role"])
        assert sign * best["log_odds"] >= 0.25 * abs(row["log_odds"])
    return row


def check(said: Said, document: dict[str, Any]) -> None:
    """Whatever the sentences say is in the document."""
    assert (said.query, said.head, said.key) == (document["query"], document["head"], document["key"])
    assert said.role == _told(document["role"])
    assert _near(said.attention, document["attention"], 2)
    total, cause = document["log_odds"]["total"], document["cause"]
    if document["log_odds"]["keys"] == 1:
        assert said.parts is None and said.side is None and not said.moved and said.without is None
        return
    if said.parts is None:
        assert abs(total) < 0.1
        assert said.side is None and said.without is None
    else:
        place = document["place"]
        numbers = (place["content"], place["place"], place["interaction"], total)
        assert all(_near(one, number, 1) for one, number in zip(said.parts, numbers, strict=True))
        if total > 0:
            named = {"content": "for what it is", "place": "for where it is"}
            parts = {name: place[name] for name in ("content", "place", "interaction")}
            main = max(parts, key=parts.__getitem__)
            assert said.reason is not None and parts[main] > 0
            assert said.reason.startswith(named.get(main, "for what it is at this place"))
        else:
            assert said.reason is not None and said.reason.startswith("less than an even share")
        assert (said.side is None) == (cause["headline"] is None)
    if said.side is not None:
        found = cause[said.side]
        members = {(one["writer"], one["reads"]) for one in found["writers"]}
        assert said.side == cause["headline"] == document["proof"]["side"]
        rows = [row for row in document["who"] if row["side"] == said.side and row["writer"] != "others"]
        for one in said.cause:
            assert _check_writer(one, rows)["cause"]
            assert (one.writer, one.reads) in members
        if found["diffuse"]:
            assert said.needed == len(members) > 12 and len(said.cause) == 3
        else:
            assert said.needed is None and len(said.cause) + said.more == len(members)
        # The named ones are the largest of the set.
        parts = sorted((row["log_odds"] for row in rows if row["cause"]), key=abs, reverse=True)
        assert [abs(one.log_odds or 0) for one in said.cause] == pytest.approx(
            [abs(part) for part in parts[: len(said.cause)]], abs=0.05001
        )
        if said.against is not None:
            assert _check_writer(said.against, rows)["log_odds"] == min(row["log_odds"] for row in rows) < 0
        signed = document["log_odds"][said.side]
        assert said.totals is not None
        assert _near(said.totals[0], signed["helps"], 1) and _near(said.totals[1], signed["hinders"], 1)
    direct = document["consequence"]["direct"]
    assert (said.direct is None) == (direct is None)
    if said.direct is not None:
        name, number = said.direct
        assert name == ("lead" if document["answer"]["measured_by"] == "lead" else "answer")
        assert _near(number, direct[name], 1)
    for word, some in (("raises", "raised"), ("lowers", "lowered")):
        listed = document["consequence"][some]
        if word in said.moved:
            token, number = said.moved[word]
            assert token == listed[0]["token"] and _near(number, listed[0]["logit"], 1)
        else:
            assert not listed or abs(listed[0]["logit"]) < 0.05
    if said.without is None:
        assert abs(total) < 0.1 or cause["headline"] is None
        assert said.transfers is None
        return
    _check_transfer(said, document["transfer"])
    proof, words = document["proof"], document["verdict"]
    members = cause[proof["side"]]["writers"]
    assert said.without_side == proof["side"]
    if isinstance(said.without, int):
        assert said.without == len(members) > 4
    else:
        assert [{"writer": one.writer, "reads": one.reads} for one in said.without] == members
    assert said.attends is not None
    assert _near(said.attends[0], proof["before"]["attention"], 2)
    assert _near(said.attends[1], proof["after"]["attention"], 2)
    by, digits = ("lead", 1) if document["answer"]["measured_by"] == "lead" else ("probability", 3)
    before, after = (round(proof[when][by], digits) for when in ("before", "after"))
    expected = "stays" if before == after else "falls" if after < before else "rises"
    assert said.direction == expected
    assert said.numbers == pytest.approx((before,) if before == after else (before, after))
    assert set(said.words) == {
        name
        for name, word in words.items()
        if word["said"] is not None and (name != "redundant" or proof["next"] is not None)
    }
    for name, (yes, text) in said.words.items():
        assert yes == words[name]["said"]
        if name == "specific":
            worst = max(document["controls"], key=lambda control: control["p"])
            number = round(worst["p"] * (1 + worst["draws"])) - 1
            assert text.startswith(f"{number or 'none'} of {worst['draws']} ")
        elif name == "redundant":
            share = float(re.search(r"takes? (-?\d+\.\d\d) of that", text)[1])  # type: ignore[index]
            assert _near(share, words[name]["value"], 2)
            count = re.search(r"next-best (\d+) writers", text)
            assert len(proof["next"]["writers"]) == (1 if count is None else int(count[1]))
        else:
            assert _near(float(text.split()[-1]), words[name]["value"], 2)


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
