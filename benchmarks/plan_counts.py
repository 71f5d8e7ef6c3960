"""What the commands of a plan do, counted: passes, calls of torch in them and around them, and where time goes.

    .venv/bin/python benchmarks/plan_counts.py [small|other|default] [ROW …]

With one thread. Of one run the calls and operations are counted, of another
the time; a pass is a call of the model. What numbers of `src/headwise/planning/work.py` stand for is seen here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import plan_cases


class Passes:
    """Passes of models: how many, over how many rows and tokens, and what they take."""

    def __init__(self) -> None:
        self.inside = False
        self.count = self.rows = self.tokens = 0
        self.calls = {True: 0, False: 0}
        self.flops = {True: 0.0, False: 0.0}
        self.seconds = 0.0

    def less(self, other: Passes) -> None:
        self.count -= other.count
        self.rows -= other.rows
        self.tokens -= other.tokens
        for inside in (True, False):
            self.calls[inside] -= other.calls[inside]
            self.flops[inside] -= other.flops[inside]

    @contextmanager
    def watched(self) -> Iterator[None]:
        from transformers import PreTrainedModel

        call = PreTrainedModel.__call__

        def timed(model: Any, *given: Any, **named: Any) -> Any:
            if self.inside:
                return call(model, *given, **named)
            ids: Any = given[0] if given else named.get("input_ids", named.get("inputs_embeds"))
            self.count += 1
            self.rows += ids.shape[0]
            self.tokens += ids.shape[0] * ids.shape[1]
            self.inside, start = True, time.process_time()
            try:
                return call(model, *given, **named)
            finally:
                self.inside = False
                self.seconds += time.process_time() - start

        PreTrainedModel.__call__ = timed
        try:
            yield
        finally:
            PreTrainedModel.__call__ = call


def counted(passes: Passes) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            passes.calls[passes.inside] += 1
            if (counter := flop_registry.get(func._overloadpacket)) is not None:
                passes.flops[passes.inside] += counter(*args, **(kwargs or {}), out_val=out)
            return out

    return Counted()


def count(kind: plan_cases.Kind, case: plan_cases.Case) -> str:
    import torch

    import headwise
    from headwise.model.sizes import sizes_of

    sizes = sizes_of(kind.model)
    model = headwise.load(kind.model)
    bare = Passes()
    with torch.no_grad(), bare.watched(), counted(bare):
        model.hf(torch.zeros(1, case.tokens, dtype=torch.long), use_cache=False)
    del model
    loading = min(plan_cases.processor(lambda: headwise.load(kind.model)) for _ in range(2))
    load, again = Passes(), Passes()
    with load.watched(), counted(load):
        headwise.load(kind.model)
    with again.watched():
        headwise.load(kind.model)
    some = Passes()
    with some.watched(), counted(some):
        plan_cases.run(kind, case.words)
    timed = Passes()
    some.less(load)
    with timed.watched():
        taken = plan_cases.processor(lambda: plan_cases.run(kind, case.words)) - loading
    timed.seconds -= again.seconds
    extra = some.calls[True] - some.count * bare.calls[True]
    per = 1e6 * (taken - timed.seconds) / max(1, some.calls[False])
    return (
        f"{kind.kind:8}{case.row:20}{case.count:4} × {case.tokens:3} {taken:7.3f} s, passes {timed.seconds:7.3f}: "
        f"{some.count:5} of {some.rows:6} rows, {some.tokens / case.tokens / case.count:6.2f} per prompt, "
        f"calls in them beyond a bare one's {extra / case.count:9.1f} per prompt; around {some.calls[False]:8} "
        f"({some.calls[False] / case.count:9.1f} per prompt), {per:6.2f} µs each; operations per prompt, of a pass: "
        f"{some.flops[True] / case.count / sizes.flops(case.tokens):6.2f} in, "
        f"{some.flops[False] / case.count / sizes.flops(case.tokens):6.2f} around"
    )


def main(kinds: list[str], rows: list[str]) -> None:
    import torch

    torch.set_num_threads(1)
    for name in kinds:
        with plan_cases.prepared(name) as kind:
            for case in kind.cases:
                if rows and case.row not in rows:
                    continue
                print(count(kind, case), flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        [one for one in given if one in plan_cases.KINDS] or list(plan_cases.KINDS),
        [one for one in given if one not in plan_cases.KINDS],
    )
