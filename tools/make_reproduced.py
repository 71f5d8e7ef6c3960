"""Write docs/results/reproduced.md, the paper and the talk made again, from runs of ``headwise reproduce``.

    python tools/make_reproduced.py RUN [RUN ...]     read finished runs, keep their tables
    python tools/make_reproduced.py                   write the page from the kept tables

Tables are kept in docs/results/data/reproduced-WORK-MODEL.json; a test holds the page against them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from headwise.research.reproduce import FILE
from make_research import table_cell
from wrap_docs import wrapped

PAGE = Path(__file__).parent.parent / "docs" / "results" / "reproduced.md"
DATA = PAGE.parent / "data"
VERDICTS = {True: "**yes**", False: "**no**", None: "shown"}
INTRODUCTION = """\
`headwise reproduce paper` and `headwise reproduce talk` make every figure and table of the two works again
([which command makes which](../reference/research.md)) and say, claim by claim, what came out. Below is what they said
of the models that fit on a laptop: the paper at **full size** on the default model, the rest at the **small size**
(`--quick`), which shows each command at work on few prompts: a "no" there may be want of prompts, and a "yes" may not
last. The pages of [filter](filter.md) and [binding](binding.md) heads have the paper's runs in full.

Larger runs have turned some of the talk's verdicts over, on the default model and in the toys. At the talk's own size
[singular vectors move first](toys.md#who-moves-first) and each alignment is a drop of the loss,
[behaviour changes while the stream barely does](ioi-circuit.md#over-four-tasks) in all four tasks, and there
[are circuit families](ioi-families.md); that [attention is sparse at the end of training](toys.md) because of features
does not hold.

*Holds here?* is **yes** or **no** by the rule that the run's report states with each claim: a test against a null where
the study has one, else a plain threshold. *Shown* is what a work shows without claiming anything that could fail, and
what no null has been measured for.
"""


def keep(run: Path) -> None:
    """Keep a run's table where the page is made from; its folder may have been anywhere."""
    document = json.loads((run / FILE).read_text(encoding="utf-8"))
    for part in document["parts"]:
        part["commands"] = [said.replace(str(run), f"runs/{document['work']}") for said in part["commands"]]
    kept = DATA / f"reproduced-{document['work']}-{document['model']}.json"
    kept.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def reproduced_page() -> str:
    """The whole page, from the kept tables."""
    documents = [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted(DATA.glob("reproduced-*.json"))
    ]
    parts = [part for document in documents for part in _part(document)]
    return wrapped(
        "\n".join(["# The paper and the talk, made again\n", INTRODUCTION, *parts]).rstrip() + "\n"
    )


def _part(document: dict[str, Any]) -> list[str]:
    work, size = document["work"], "small size" if document["quick"] else "full size"
    rows = [
        "| " + " | ".join((one["place"], *map(table_cell, _told(one)), _verdict(one))) + " |"
        for one in document["parts"]
    ]
    return [
        f"## The {work}, {document['model']}, {size}\n",
        f"{document['supported']} of {document['claims']} claims that could fail hold.\n",
        f"| where | the {work} says | its number | here | holds here? |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _told(one: dict[str, Any]) -> tuple[str, str, str]:
    """What the work says, its number, and what came out here."""
    return one["says"], one["number"], one["here"] if one["left_out"] is None else one["left_out"]


def _verdict(one: dict[str, Any]) -> str:
    return VERDICTS[one["supported"]] if one["left_out"] is None else "left out"


if __name__ == "__main__":
    for given in sys.argv[1:]:
        keep(Path(given))
    PAGE.write_text(reproduced_page(), encoding="utf-8")
