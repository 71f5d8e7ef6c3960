"""What a study of features was given: labelled prompts, or ordinary text?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise import jsons
from headwise.corpora.known import KNOWN, find_corpus
from headwise.corpus import Corpus
from headwise.tasks.names import LABELLED


def corpus_given(given: Any) -> Corpus | None:
    """The corpus that was given, by itself, by name, or as a file or folder of text; None: a task of labelled prompts.

    A .jsonl file is a task if its lines say which keys are positive, else a corpus.

    >>> corpus_given("binding") is None
    True
    """
    if isinstance(given, Corpus):
        return given
    if not isinstance(given, str | Path) or str(given) in LABELLED:
        return None
    path = Path(given)
    if not path.exists():
        return find_corpus(given) if str(given) in {one.name for one in KNOWN} else None
    if path.suffix in (".jsonl", ".json") and path.is_file() and not _plain_texts(path):
        return None
    return find_corpus(path)


def _plain_texts(path: Path) -> bool:
    """Whether the first line of a file is a text, not a labelled prompt. What cannot be read is left to the task."""
    try:
        with path.open(encoding="utf-8") as lines:
            first = jsons.parse(next((line for line in lines if line.strip()), ""))
    except (OSError, UnicodeDecodeError, jsons.NotJson):
        return False
    return isinstance(first, str) or (isinstance(first, dict) and "text" in first and "positive" not in first)
