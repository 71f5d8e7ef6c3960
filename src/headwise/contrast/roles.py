"""What every head does on text without meaning: random tokens, read twice over.

In such text a head can only look back by place or by sameness of tokens, so each of these is seen alone: the token
before, the same token before, the token after that one (induction), the first token, the token itself. A role is a
habit on synthetic text; what the head does in a real prompt is another question. That a head has one is a claim
(:mod:`headwise.contrast.role_claims`): more than 0.4 of the attention, as is usual, would be a threshold alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import Field, model_validator

from headwise import jsons
from headwise.arguments import count
from headwise.contrast.role_claims import by_place, places_of, role_claims
from headwise.errors import HeadwiseError
from headwise.files import write_json
from headwise.frames import frame
from headwise.intervals import as_share, mean_interval
from headwise.model.loading.store import cache_folder
from headwise.randomness import keyed
from headwise.tokens import NoTokenizer
from headwise.types import Claim, Estimate, Head, HeadLike
from headwise.validation import Index, Row, Sha256, Shape, check, quoted, require_schema, unfit

if TYPE_CHECKING:
    from pandas import DataFrame

    from headwise.model.model import Model

Role = Literal["previous token", "duplicate token", "induction", "first token", "self"]
ROLES: tuple[Role, ...] = ("previous token", "duplicate token", "induction", "first token", "self")
LEAST = 0.4
"""A head has a role only if the interval of its mean attention there lies above this: two places at most."""
SEQUENCES = 16
LENGTH = 24
"""Tokens that are read twice: far enough apart that the same token is not the one before."""
SCHEMA = 1
AGAIN = "measure the roles again"


@dataclass(frozen=True)
class HeadRole:
    """One head's mean attention to each of the five places, from the second reading of every sequence."""

    head: Head
    """The head."""
    attention: Mapping[Role, Estimate]
    """Its mean attention to each place, with the interval over sequences."""
    claims: Mapping[Role, Claim] = field(default_factory=dict)
    """That each place is its role; empty in files made before that was tested."""

    @property
    def above(self) -> list[Role]:
        """The places whose interval lies above ``LEAST``, the threshold that is usual; it claims nothing."""
        return [role for role in ROLES if self.attention[role].low > LEAST]

    @property
    def role(self) -> Role | None:
        """The role that it has most clearly; None where none is supported."""
        clear: list[Role] = [
            role for role in self.above if role not in self.claims or self.claims[role].supported
        ]
        return max(clear, key=lambda role: self.attention[role].mean, default=None)

    def to_json(self) -> dict[str, Any]:
        found = {
            role.replace(" ", "_"): {
                **self.attention[role].to_json(),
                "claim": self.claims[role].to_json() if role in self.claims else None,
            }
            for role in ROLES
        }
        return {"head": str(self.head), "role": self.role, "above": self.above, **found}


@dataclass(frozen=True, eq=False)
class HeadRoles:
    """The roles of all heads of one model."""

    model: str
    """The model's name."""
    weight_hash: str
    """SHA-256 of its weights."""
    sequences: int
    """How many random sequences were read."""
    length: int
    """Tokens of each, which are read twice."""
    seed: int
    """The seed of the sequences."""
    heads: tuple[HeadRole, ...]
    """Every head, layer by layer."""

    @cached_property
    def by_head(self) -> Mapping[Head, HeadRole]:
        """The same by head."""
        return {one.head: one for one in self.heads}

    def of(self, head: HeadLike) -> Role | None:
        """The role of a head, if it has one."""
        wanted = Head.parse(head)
        if wanted not in self.by_head:
            raise HeadwiseError(f"{wanted} is not a head of {self.model!r}, whose roles these are")
        return self.by_head[wanted].role

    def with_role(self, role: Role) -> list[HeadRole]:
        """The heads of one role, the clearest first."""
        if role not in ROLES:
            raise HeadwiseError(f"{role!r} is not a role: choose one of {', '.join(ROLES)}")
        found = [one for one in self.heads if one.role == role]
        return sorted(found, key=lambda one: -one.attention[role].mean)

    @property
    def counts(self) -> dict[Role, int]:
        """How many heads have each role."""
        return {role: sum(one.role == role for one in self.heads) for role in ROLES}

    def to_json(self) -> dict[str, Any]:
        """One document: the settings, and per head its role and the five means with their intervals."""
        return {
            "schema": SCHEMA,
            "kind": "headwise-roles",
            "model": {"name": self.model, "weight_hash": self.weight_hash},
            "sequences": self.sequences,
            "length": self.length,
            "seed": self.seed,
            "heads": [one.to_json() for one in self.heads],
        }

    def save(self, path: str | Path) -> None:
        """Write the document as JSON."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path, model: Model | None = None) -> HeadRoles:
        """Read roles; with ``model``, those of another model are refused."""
        where = f"the roles {str(path)!r}"
        data = jsons.read(path, "roles of heads", "give a file that HeadRoles.save wrote")
        if isinstance(data, dict):
            require_schema(data.get("schema"), (SCHEMA,), where, AGAIN)
        read = check(_RolesShape, data, where, AGAIN)
        if model is not None:
            model.require(read.model.weight_hash, where, of=read.model.name, do=AGAIN)
        heads = tuple(
            HeadRole(
                Head.parse(one.head),
                {role: _place(one, role).estimate for role in ROLES},
                {role: claim.claim for role in ROLES if (claim := _place(one, role).claim) is not None},
            )
            for one in read.heads
        )
        return cls(read.model.name, read.model.weight_hash, read.sequences, read.length, read.seed, heads)

    def to_pandas(self) -> DataFrame:
        """One row per head: its role and its mean attention to each place."""
        means = [{role: one.attention[role].mean for role in ROLES} for one in self.heads]
        rows = [
            {"head": str(one.head), "role": one.role, **mean}
            for one, mean in zip(self.heads, means, strict=True)
        ]
        return frame(rows, ["head", "role", *ROLES])

    def _repr_html_(self) -> str:
        from headwise.show.notebook import head_roles

        return head_roles(self)

    def __repr__(self) -> str:
        counts = ", ".join(f"{number} {role}" for role, number in self.counts.items())
        return f"HeadRoles({self.model!r}: {len(self.heads)} heads, of them {counts})"


def head_roles(
    model: Model,
    *,
    sequences: int = SEQUENCES,
    length: int = LENGTH,
    seed: int = 0,
    keep: bool = True,
) -> HeadRoles:
    """Measure what every head does on random tokens that are read twice, in one batch of passes.

    A head has a role if the 95 % interval of its mean attention to that place, over sequences, lies above 0.4, and if
    that is supported: the place gets more than any other, and, where the role goes by sameness of tokens, more than in
    text whose second reading is in another order (sign flips over sequences, all heads and places corrected together).

    Parameters
    ----------
    model:
        A loaded model.
    sequences:
        How many sequences of random tokens.
    length:
        How many tokens are repeated.
    seed:
        The seed of everything random.
    keep:
        Whether to keep the result beside the models, and to take it from there the next time.

    Returns
    -------
    HeadRoles
        Per head its role, if it has one, and its mean attention to each of five places.
    """
    sequences = count(sequences, "sequences", "is too few for an interval", least=4)
    length = count(length, "length", "is too short to tell the places apart", least=4)
    words = ordinary_tokens(model)
    if len(words) < length or (model.context is not None and 2 * length > model.context):
        room = min(len(words), len(words) if model.context is None else model.context // 2)
        raise HeadwiseError(f"length={length} is too long for {model.name!r}: give at most {room}")
    file = _file(model.weight_hash, sequences, length, seed)
    kept = _kept(file, model.weight_hash) if keep else None
    if kept is not None:
        return kept
    found = _measured(model, words, sequences, length, seed)
    if keep:
        found.save(file)
    return found


def role_of(roles: HeadRoles | None, head: Head) -> Role | None:
    """The role of a head, where roles are known and it has one."""
    found = None if roles is None else roles.by_head.get(head)
    return None if found is None else found.role


def roles_once(model: Model) -> HeadRoles | None:
    """The roles of a model as explanations name them, measured now if nobody has; None for a model that is too small to
    read 24 different tokens twice."""
    try:
        return head_roles(model)
    except HeadwiseError:
        return None


def stored_roles(weight_hash: str) -> HeadRoles | None:
    """The roles of a model with these weights, measured as by default; None where nobody has measured them."""
    return _kept(_file(weight_hash, SEQUENCES, LENGTH, 0), weight_hash)


def _file(weight_hash: str, sequences: int, length: int, seed: int) -> Path:
    return cache_folder() / "roles" / f"{weight_hash[:16]}-{sequences}-{length}-{seed}.json"


def _kept(file: Path, weight_hash: str) -> HeadRoles | None:
    """Roles from a file; what is damaged, of an earlier version or of other weights is as good as none."""
    if not file.is_file():
        return None
    try:
        found = HeadRoles.load(file)
    except HeadwiseError:
        return None
    tested = all(one.claims for one in found.heads)  # nothing was, in files of earlier versions
    return found if found.weight_hash == weight_hash and tested else None


def ordinary_tokens(model: Model) -> list[int]:
    """Token ids that occur in text: all but those that control it."""
    special: set[int] = set()
    if not isinstance(model.tokenizer, NoTokenizer):
        special = {int(token) for token in getattr(model.tokenizer, "all_special_ids", ())}
        known = min(model.vocabulary, len(model.tokenizer))
        return [token for token in range(known) if token not in special]
    return list(range(model.vocabulary))


def _measured(model: Model, words: list[int], sequences: int, length: int, seed: int) -> HeadRoles:
    choices = torch.tensor(words)
    repeated, shuffled = [], []
    for number in range(sequences):
        generator = keyed(seed, "roles", number)
        order = torch.randperm(len(words), generator=generator)[:length]
        again = order[torch.randperm(length, generator=generator)]
        repeated.append([*choices[order].tolist()] * 2)
        shuffled.append([*choices[order].tolist(), *choices[again].tolist()])
    # not the second reading of the first token, for which the same token is the first one
    rows = list(range(length + 1, 2 * length))
    seen = torch.zeros(2 * sequences, len(model.heads), length + 2, dtype=torch.float64)
    for indices, got in model.stream_capture(
        repeated + shuffled, queries=rows, want=("pattern",), batch_size=4
    ):
        seen[indices] = by_place(got.pattern.double().cpu(), rows, length)
    twice, other = seen[:sequences], seen[sequences:]
    found = [x.tolist() for x in mean_interval(twice[..., places_of(length)], seed, "roles")]
    means = [
        [
            as_share(Estimate(*(x[h][r] for x in found), n=sequences, clusters=sequences))
            for r in range(len(ROLES))
        ]
        for h in range(len(model.heads))
    ]
    fit = torch.tensor([[one.low > LEAST for one in places] for places in means])
    judged = role_claims(twice, other, length, fit, keyed(seed, "role claims"))
    heads = tuple(
        HeadRole(head, dict(zip(ROLES, places, strict=True)), dict(zip(ROLES, said, strict=True)))
        for head, places, said in zip(model.heads, means, judged, strict=True)
    )
    return HeadRoles(model.name, model.weight_hash, sequences, length, seed, heads)


# --- the shape of a file ---


# Attentions that were summed in float32 may pass 1 by rounding, and a mean its interval.
_ROUNDING = 1e-6
_Share = Annotated[float, Field(ge=0, le=1 + _ROUNDING)]


class _ClaimShape(Shape):
    null: str
    draws: Index
    p: _Share
    q: _Share
    group: str
    supported: bool

    @property
    def claim(self) -> Claim:
        return Claim(self.null, self.draws, self.p, self.q, self.group, self.supported)


class _EstimateShape(Shape):
    mean: _Share
    ci: Row[_Share]
    n: Index
    clusters: Index
    claim: _ClaimShape | None = None

    @model_validator(mode="after")
    def _in_order(self) -> _EstimateShape:
        if len(self.ci) != 2 or not self.ci[0] - _ROUNDING <= self.mean <= self.ci[1] + _ROUNDING:
            raise unfit(f"{self.mean:g} is not inside its interval {quoted(self.ci)}")
        return self

    @property
    def estimate(self) -> Estimate:
        low, high = self.ci
        return Estimate(self.mean, low, high, n=self.n, clusters=self.clusters)


class _HeadShape(Shape):
    head: str
    role: Role | None
    previous_token: _EstimateShape
    duplicate_token: _EstimateShape
    induction: _EstimateShape
    first_token: _EstimateShape
    self: _EstimateShape
    above: Row[Role] = ()


def _place(one: _HeadShape, role: Role) -> _EstimateShape:
    return getattr(one, role.replace(" ", "_"))


class _MeasuredModel(Shape):
    name: str
    weight_hash: Sha256


class _RolesShape(Shape):
    schema_: Literal[1] = Field(alias="schema")
    kind: Literal["headwise-roles"]
    model: _MeasuredModel
    sequences: int
    length: int
    seed: int
    heads: Row[_HeadShape]

    @model_validator(mode="after")
    def _each_once(self) -> _RolesShape:
        names = [one.head for one in self.heads]
        if len(set(names)) < max(1, len(names)):
            raise unfit("heads lists a head twice" if names else "heads lists nobody")
        return self
