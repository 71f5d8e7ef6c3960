"""One attention over the channels of its head, as a page: by channel, and beside the rotation control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headwise.show.kit.report import Figure, Report, Section, Text, literal
from headwise.show.kit.theme import NEUTRAL, PALETTE, styled

if TYPE_CHECKING:
    from headwise.bases.cell import Channels, ChannelSplit


BY_CHANNEL = "Relative attention, by channel: the logit less the mean of the other keys' logits."


def channels_report(split: ChannelSplit, channels: Channels, tokens: Sequence[str]) -> Report:
    """Relative attention by channel, its running sum, and the spectrum."""
    n = split.relative.numel()
    ranked = split.relative[split.relative.abs().argsort(descending=True)].cumsum(0).tolist()
    control = split.control[split.control.abs().argsort(descending=True)].cumsum(0).tolist()
    by_channel = go.Figure(
        [
            go.Bar(
                x=list(range(n)), y=split.relative.tolist(), name="singular channels", marker_color=PALETTE[0]
            )
        ]
    )
    running = go.Figure(
        [
            go.Scatter(x=list(range(1, n + 1)), y=ranked, name="singular channels", line_color=PALETTE[0]),
            go.Scatter(x=list(range(1, n + 1)), y=control, name="rotated directions", line_color=NEUTRAL),
        ]
    )
    spectrum = go.Figure([go.Scatter(y=channels.sigma.tolist(), mode="lines+markers", line_color=PALETTE[2])])
    styled(by_channel, xaxis_title="channel", yaxis_title="relative attention")
    styled(running, xaxis_title="channels, largest first", yaxis_title="running sum")
    styled(spectrum, height=300, xaxis_title="channel", yaxis_title="singular value")
    needed, turned = split.channels_needed, split.control_channels_needed
    return Report(
        f"Channels of {split.cell.head}",
        [
            Section("Which channels", [Figure(by_channel, BY_CHANNEL)]),
            Section(
                "How many",
                [
                    Text(
                        f"{needed} channels rebuild 90 % of the relative attention; along directions turned by one "
                        f"random rotation, which keep every logit, it takes {turned}."
                    ),
                    Figure(running, "Running sum over channels, largest first."),
                ],
            ),
            Section("Spectrum", [Figure(spectrum, "Singular values of the head's query–key form.")]),
        ],
        subtitle=f"{literal(repr(tokens[split.cell.query]))} ({split.cell.query}) attends to "
        f"{literal(repr(tokens[split.cell.key]))} ({split.cell.key})",
        facts={
            "attention": f"{split.attention:.3f}",
            "relative attention": f"{float(split.relative.sum()):.3f}",
            "sparsity": f"{split.sparsity:.3f} (rotated {split.control_sparsity:.3f})",
        },
    )  # fmt: skip
