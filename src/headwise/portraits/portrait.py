"""The portrait of one head: everything known about it, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from headwise.basis_names import BasisName
from headwise.contrast.roles import HeadRole
from headwise.known_names import KnownNames, NamesLike, sink_id
from headwise.portraits.habits import Account, CellInContext, Looks, SinkPlace
from headwise.sinks.find import PARKED
from headwise.types import Claim, Estimate, Head

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class HeadPortrait:
    """Everything known about one head."""

    head: Head
    """The head."""
    model: str
    """The model's name."""
    weight_hash: str
    """The digest of its weights."""
    corpus: str
    """The texts that were read, by name."""
    texts: int
    """How many texts."""
    tokens: int
    """How many tokens they have together."""
    basis: BasisName
    """What its channels are channels of."""
    role: HeadRole | None
    """What it does on random tokens that are read twice; None for a model that is too small for that."""
    on_sinks: Estimate | None
    """Its mean attention on sinks, over texts; None where no text has one."""
    parks: Claim | None = None
    """That this is more than half of it in most texts; None where no text has a sink, or that was not tested yet."""
    sinks: tuple[SinkPlace, ...]
    """Where these texts have sinks most often."""
    looks: Looks
    """Where it looks apart from sinks."""
    account: Account | None
    """Why, and what it does then; None for a head that never gives another token much."""
    picture: tuple[str, ...]
    """Its attention over the first tokens of one text, a row per query: two hexadecimal digits per key, the square root
    of the attention from 00 to ff."""

    @property
    def kind(self) -> str:
        """What it is in a word or two: its role on random tokens, else whether it rests on sinks, attends to nothing in
        particular (``diffuse``), or what makes it attend."""
        if self.role is not None and self.role.role is not None and self.role.role != "first token":
            return self.role.role
        if self.rests:
            return "rests on sinks"
        if self.account is None:
            return "diffuse"
        return {"content": "by content", "place": "by place"}.get(self.account.place.reason, "by both")

    @property
    def rests(self) -> bool:
        """Whether it is supported that more than half of its attention is on sinks; in runs made before that was
        tested, whether the interval lies above a half."""
        if self.parks is not None:
            return self.parks.supported
        return self.on_sinks is not None and self.on_sinks.low > PARKED

    @property
    def subjects(self) -> list[str]:
        """What of it may have a name, as ``headwise name`` writes it."""
        found = [str(self.head), sink_id(self.head)]
        if self.account is not None:
            some = (*self.account.writers, *self.account.channels)
            found += [one.signal(self.head) for one in some]
        return found

    def known(self, names: NamesLike | None) -> KnownNames | None:
        """Names that fit: of this model, and those of channels only in this basis."""
        return None if names is None else KnownNames.of(names).fit(self.model, self.weight_hash, self.basis)

    def to_json(self, names: NamesLike | None = None) -> dict[str, Any]:
        """One document; with names, those of what it mentions."""
        known = self.known(names)
        return {
            "schema": SCHEMA,
            "kind": "head",
            "head": str(self.head),
            "model": self.model,
            "weight_hash": self.weight_hash,
            "corpus": self.corpus,
            "texts": self.texts,
            "tokens": self.tokens,
            "basis": self.basis.to_json(),
            "described": self.kind,
            "role": None if self.role is None else self.role.to_json(),
            "on_sinks": None if self.on_sinks is None else self.on_sinks.to_json(),
            "parks": None if self.parks is None else self.parks.to_json(),
            "sinks": [asdict(one) for one in self.sinks],
            "looks": self.looks.to_json(),
            "account": None if self.account is None else self.account.to_json(),
            "picture": list(self.picture),
            **({} if known is None else {"names": known.to_json(self.subjects)}),
        }

    def with_strongest(self, cells: Mapping[str, tuple[CellInContext, ...]]) -> HeadPortrait:
        """The same with the strongest cells of its writers and channels, by what they are."""
        if self.account is None:
            return self

        def placed(one: Any) -> Any:
            return replace(one, strongest=cells.get(one.signal(self.head), ()))

        account = replace(
            self.account,
            writers=tuple(map(placed, self.account.writers)),
            channels=tuple(map(placed, self.account.channels)),
        )
        return replace(self, account=account)

    def _repr_html_(self) -> str:
        from headwise.show.notebook import head_portrait

        return head_portrait(self)

    def __repr__(self) -> str:
        why = (
            ""
            if self.account is None
            else f", {self.account.place.reason} in {len(self.account.cells)} cells"
        )
        return f"HeadPortrait({self.head} of {self.model!r}: {self.kind}{why})"
