"""What is said of the app and of all heads of a prompt, in the shapes of the wire."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import torch

from headwise.app import wire
from headwise.app.patterns import Glance
from headwise.app.words import EXAMPLES, KEYS
from headwise.contrast.roles import ROLES, HeadRoles
from headwise.model.check import Check
from headwise.model.model import Model
from headwise.show.kit.glossary import glossary


def app_state(
    model: Model,
    checks: Sequence[Check],
    chosen: str,
    models: tuple[str, ...],
    runs: tuple[wire.RunFolderEntry, ...],
) -> wire.AppState:
    """What the app is working with."""
    return wire.AppState(
        version=version("headwise"),
        model=model.name,
        weight_hash=model.weight_hash,
        chosen=chosen,
        models=models,
        layers=model.n_layers,
        heads=model.n_heads,
        context=model.context,
        has_chat=bool(getattr(model.tokenizer, "chat_template", None)),
        device=str(model.device),
        threads=torch.get_num_threads(),
        self_check=tuple(
            wire.SelfCheck(name=one.name, error=one.error, allowed=one.tolerance) for one in checks
        ),
        runs=runs,
        glossary=wire.PageGlossary.model_validate(glossary()),
        examples=EXAMPLES,
        keys=KEYS,
    )


def heads_seen(model: Model, seen: Glance, roles: HeadRoles | None) -> wire.HeadsSeen:
    """What can be said of every head of a prompt; roles are known once they are measured."""
    habits = (
        {} if roles is None else {role: [one.attention[role].mean for one in roles.heads] for role in ROLES}
    )
    return wire.HeadsSeen(
        layers=model.n_layers,
        heads=model.n_heads,
        side=seen.side,
        statistics=wire.HeadStatistics(
            highest=seen.highest,
            entropy=seen.entropy,
            resting=seen.resting,
            brings=seen.brings,
            roles=None if roles is None else tuple(one.role for one in roles.heads),
            habits={role: tuple(values) for role, values in habits.items()},
        ),
        sinks=seen.sinks,
        marked=tuple(
            wire.MarkedCell(head=str(cell.head), query=cell.query, key=cell.key) for cell in seen.marked
        ),
    )
