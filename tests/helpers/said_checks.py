"""Whether what the sentences of an explanation say is in its document."""

from __future__ import annotations

import re
from typing import Any

import pytest
from said import Said, SaidWriter


def _near(said: float, number: float, digits: int) -> bool:
    return abs(said - number) <= 0.5 * 10**-digits + 1e-9


def _check_transfer(said: Said, tried: list[dict[str, Any]]) -> None:
    known = [one for one in tried if one["holds"]["said"] is not None]
    if not tried:
        assert said.transfers is None
        return
    assert said.transfers == (sum(one["holds"]["said"] for one in known) if known else "unknown")
    assert len(said.elsewhere) == min(4, len(known))
    for (after, before, share, p, q), one in zip(said.elsewhere, known, strict=False):
        assert _near(after, one["after"]["attention"], 2) and _near(before, one["before"]["attention"], 2)
        assert _near(share, one["holds"]["value"], 2) and _near(p, one["holds"]["p"], 3)
        assert _near(q, one["holds"]["claim"]["q"], 3)


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
