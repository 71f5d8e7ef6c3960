"""The atlas of a model: portraits of its heads, saved to and read from a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import HeadwiseError
from headwise.frames import frame
from headwise.known_names import NamesLike
from headwise.portraits.habits import SinkPlace
from headwise.portraits.portrait import SCHEMA, HeadPortrait
from headwise.strings import counted
from headwise.types import Head, HeadLike

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingImports]

    from headwise.scale.folder import RunFolder

KIND = "atlas"
MAKE = "headwise head HEAD --out DIR"


@dataclass(frozen=True, eq=False, kw_only=True)
class Atlas:
    """Portraits of some or all heads of a model, from the same texts."""

    model: str
    """The model's name."""
    weight_hash: str
    """The digest of its weights."""
    config: dict[str, Any]
    """What was asked for, and of which texts."""
    texts: int
    """Texts that were read."""
    tokens: int
    """Tokens that they have together."""
    sinks: tuple[SinkPlace, ...]
    """Where these texts have sinks most often."""
    pictured: tuple[str, ...]
    """The tokens of the text in which every head is pictured."""
    portraits: tuple[HeadPortrait, ...]
    """Every head that was asked for, layer by layer."""
    seconds: float
    """How long it took."""

    @cached_property
    def by_head(self) -> Mapping[Head, HeadPortrait]:
        """The portraits by head."""
        return {one.head: one for one in self.portraits}

    def of(self, head: HeadLike) -> HeadPortrait:
        """The portrait of one head."""
        wanted = Head.parse(head)
        if wanted not in self.by_head:
            raise HeadwiseError(f"{wanted} is not in this atlas of {counted(len(self), 'head')}")
        return self.by_head[wanted]

    def __len__(self) -> int:
        return len(self.portraits)

    @property
    def kinds(self) -> dict[str, int]:
        """How many heads there are of each kind, the most frequent first."""
        found: dict[str, int] = {}
        for one in self.portraits:
            found[one.kind] = found.get(one.kind, 0) + 1
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    @property
    def subjects(self) -> list[str]:
        """What of it may have a name, as ``headwise name`` writes it."""
        return [signal for one in self.portraits for signal in one.subjects]

    def to_json(self, names: NamesLike | None = None) -> dict[str, Any]:
        """One document: the settings, and the document of every head."""
        return {
            "schema": SCHEMA,
            "kind": KIND,
            "model": self.model,
            "weight_hash": self.weight_hash,
            "settings": self.config,
            "texts": self.texts,
            "tokens": self.tokens,
            "sinks": [asdict(one) for one in self.sinks],
            "pictured": list(self.pictured),
            "kinds": self.kinds,
            "heads": [one.to_json(names) for one in self.portraits],
            "seconds": self.seconds,
        }

    def to_pandas(self) -> dict[str, DataFrame]:
        """Tables by name (``heads``, ``writers``, ``channels``); needs the extra ``headwise[pandas]``."""
        tables: dict[str, list[dict[str, Any]]] = {"heads": [], "writers": [], "channels": []}
        for one in self.portraits:
            tables["heads"].append(head_row(one))
            if one.account is None:
                continue
            for table, habits in (("writers", one.account.writers), ("channels", one.account.channels)):
                tables[table] += [
                    {
                        "head": str(one.head),
                        "signal": habit.signal(one.head),
                        "often": habit.often.mean,
                        "log_odds": habit.log_odds.mean,
                        "low": habit.log_odds.low,
                        "high": habit.log_odds.high,
                    }
                    for habit in habits
                ]
        return {name: frame(rows) for name, rows in tables.items()}

    def save(self, folder: str | Path) -> Path:
        """Write a run folder: the document, and the whole result for :meth:`load`."""
        from headwise.scale.study import save_result

        return save_result(self, folder, KIND, self.config)

    def write(self, folder: RunFolder) -> None:
        """Write everything into an open folder, which is finished with that."""
        from headwise.scale.results import write_result

        write_result(folder, self.to_json(), replace(self, seconds=0.0))

    @classmethod
    def load(cls, folder: str | Path) -> Atlas:
        """Read a finished run, every file of it held against its digest."""
        from headwise.scale.results import load_result

        return load_result(cls, folder, KIND, MAKE)

    def pages(self, folder: str | Path, names: NamesLike | None = None) -> Path:
        """Write one page per head and the index that leads to them into a folder; the index, ``report.html``."""
        from headwise.show.portraits.atlas import write_pages

        return write_pages(self, Path(folder), names)

    def _repr_html_(self) -> str:
        from headwise.show.notebook import atlas

        return atlas(self)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.kinds.items())
        return (
            f"Atlas({self.model!r}: {counted(len(self), 'head')} in {counted(self.texts, 'text')}, {kinds})"
        )


def head_row(one: HeadPortrait) -> dict[str, Any]:
    """A head in one row."""
    account = one.account
    first = {} if account is None else {side: account.of(side)[:1] for side in ("query", "key")}
    return {
        "head": str(one.head),
        "kind": one.kind,
        "role": None if one.role is None else one.role.role,
        "on_sinks": None if one.on_sinks is None else one.on_sinks.mean,
        "most": one.looks.most,
        "reason": None if account is None else account.place.reason,
        "copies": None if account is None else account.does.copies.mean,
        "suppresses": None if account is None else account.does.suppresses.mean,
        "to": one.looks.to[0].token if one.looks.to else None,
        "query_writer": first["query"][0].writer.name if first and first["query"] else None,
        "key_writer": first["key"][0].writer.name if first and first["key"] else None,
    }
