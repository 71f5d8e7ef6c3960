"""Run the explanations of docs/results/explanations.md and put what they print and their numbers into that page.

    python tools/make_explanations.py [NAME ...]     run these cases (default: all) and write their numbers
    python tools/make_explanations.py --page         write the page's blocks from the numbers that are kept

Numbers are kept in docs/results/data/explanations.json. The page's prose is written by hand between its blocks; a test
reads every sentence back and compares it with the table that is kept beside it.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "explanations.md"
DATA = ROOT / "docs" / "results" / "data" / "explanations.json"
LONGEST = 100
ROWS = 5
"""Writers shown per case."""
KEPT = (
    *(
        "model",
        "prompt",
        "tokens",
        "head",
        "role",
        "query",
        "key",
        "attention",
        "answer",
        "chosen_because",
        "notices",
    ),
    *("log_odds", "place", "what", "cause", "consequence", "proof", "verdict", "transfer", "sentence"),
)
"""What is kept of a document as it is; of writers and controls only what sentences speak of."""


@dataclass(frozen=True)
class Case:
    """One explanation: its name in the page, and what is asked."""

    name: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        """As one would type it."""
        return f"headwise explain {' '.join(map(quoted, self.arguments))}"


IOI = "When John and Mary went to the store, John gave a drink to"
NAMES = ("--answer", " Mary", "--wrong", " John")
GEMMA = ("--model", "gemma3-270m")
CASES = (
    Case("ioi", (IOI, *NAMES)),
    Case("ioi-other-order", ("When Mary and John went to the store, John gave a drink to", *NAMES)),
    Case("ioi-well", (f"Well. {IOI}", *NAMES)),
    Case("brackets", ("f(g(x), h(y",)),
    Case("agreement", ("The keys on the table", "--answer", " are", "--wrong", " is")),
    Case("induction", ("Mr. Dursley was thin. Mrs. Potter was kind. Mr. Durs",)),
    Case("fact", ("The capital city of Portugal is",)),
    Case("list", ("Shopping list: milk, bread, eggs. I bought milk, bread and",)),
    Case("quote", ('He whispered, "Stay here," and she whispered, "Stay',)),
    Case("code", ("def add(first, second):\n    return first +",)),
    Case("arithmetic", ("5 + 1 = 6, 5 + 2 = 7, 5 + 3 = ",)),
    Case("chat", ("What is the capital of France?", "--chat")),
    Case("gemma-ioi", (IOI, *NAMES, *GEMMA)),
    Case("gemma-induction", ("Mr. Dursley was thin. Mrs. Potter was kind. Mr. Durs", *GEMMA)),
    Case("gemma-code", ("def add(first, second):\n    return first +", *GEMMA)),
)


def quoted(word: str) -> str:
    r"""A word of a command as a shell reads it, in the quotes that read best.

    >>> quoted(" Mary"), quoted('say "hi"'), quoted("a\n b"), quoted("--chat")
    ('" Mary"', '\'say "hi"\'', "$'a\\n b'", '--chat')
    """
    if "\n" in word:
        return "$'" + word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
    if shlex.quote(word) == word or any(sign in word for sign in '"$`\\!'):
        return shlex.quote(word)
    return f'"{word}"'


def run(case: Case) -> dict[str, Any]:
    """The document of one case, from the command itself."""
    program = "import sys; from headwise.cli.main import run; sys.argv[0] = 'headwise'; run()"
    words = [sys.executable, "-c", program, "explain", *case.arguments, "--json"]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"{case.command}\n{made.stderr}")
    return kept(json.loads(made.stdout))


def kept(document: dict[str, Any]) -> dict[str, Any]:
    """What the page needs of a document, with numbers of six digits."""
    made = {name: document[name] for name in KEPT}
    made["who"] = [
        {
            **{name: row[name] for name in ("side", "writer", "reads", "log_odds", "count", "cause", "role")},
            "through": [
                {name: one[name] for name in ("writer", "reads", "role", "log_odds")}
                for one in row["through"]
            ],
        }
        for row in document["who"]
    ]
    made["controls"] = [{name: one[name] for name in ("name", "draws", "p")} for one in document["controls"]]
    return short(made)


def short(value: Any) -> Any:
    """The same document with numbers of six digits."""
    if isinstance(value, dict):
        return {key: short(one) for key, one in value.items()}
    if isinstance(value, list):
        return [short(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


# --- the page --------------------------------------------------------------------------------------------------------


def block(case: Case, document: dict[str, Any]) -> str:
    """The command, its notes and sentences, and the head of the table that the sentences were made from."""
    said = [*(f"Note: {notice}" for notice in document["notices"]), document["sentence"]]
    printed = "\n\n".join(map(wrapped, said))
    return f"```bash\n{case.command}\n```\n\n```text\n{printed}\n```\n\n{table(document)}"


def table(document: dict[str, Any]) -> str:
    """The strongest writers of the side that the sentences speak of, and the sums."""
    side = document["cause"]["headline"] or "query"
    rows = [row for row in document["who"] if row["side"] == side]
    named = [row for row in rows if row["writer"] != "others"]
    shown = sorted(named, key=lambda row: -abs(row["log_odds"]))[:ROWS]
    rest = document["log_odds"]["total"] - sum(row["log_odds"] for row in shown)
    lines = [f"| writer ({side} side) | reads | log-odds | cause |", "|---|---|---|---|"]
    for row in shown:
        read = "" if row["reads"] is None else f"`{document['tokens'][row['reads']]!r}` ({row['reads']})"
        role = f", {row['role']}" if row["role"] else ""
        lines.append(
            f"| {row['writer']}{role} | {read} | {row['log_odds']:+.2f} | {'yes' if row['cause'] else ''} |"
        )
    lines.append(f"| all others | | {rest:+.2f} | |")
    lines.append(f"| **together** | | **{document['log_odds']['total']:+.2f}** | |")
    return "\n".join(lines)


def wrapped(text: str) -> str:
    """Lines of at most 100 characters that break no quoted token.

    >>> wrapped("reads ' John' (9) " * 12).count("' John'")
    12
    """
    token = r"""(?<!\w)'(?:[^'\\]|\\.)*'|(?<!\w)"(?:[^"\\]|\\.)*\""""
    lines = [""]
    for word in re.findall(rf"(?:{token}|\S)+", text):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > LONGEST:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def marked(page: str, name: str, text: str) -> str:
    """The page with the block of one case replaced."""
    start, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, found, rest = page.partition(start)
    if not found or end not in rest:
        raise SystemExit(f"{PAGE.name} has no block {name!r}: add '<!-- {name} -->' and '<!-- end -->'")
    return f"{before}{start}\n{text}\n\n{end}{rest.partition(end)[2]}"


def main(words: list[str]) -> None:
    documents = json.loads(DATA.read_text()) if DATA.exists() else {}
    if words != ["--page"]:
        names = {case.name for case in CASES}
        if unknown := set(words) - names:
            raise SystemExit(
                f"{', '.join(sorted(unknown))}: no such case; there are {', '.join(sorted(names))}"
            )
        for case in CASES:
            if not words or case.name in words:
                documents[case.name] = {"command": case.command, **run(case)}
                print(f"{case.name}: {documents[case.name]['sentence']}\n", flush=True)
        ordered = {case.name: documents[case.name] for case in CASES if case.name in documents}
        DATA.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
        documents = ordered
    if PAGE.exists():
        page = PAGE.read_text()
        for case in CASES:
            if case.name in documents:
                page = marked(page, case.name, block(case, documents[case.name]))
        PAGE.write_text(page)


if __name__ == "__main__":
    main(sys.argv[1:])
