"""The commands that make the works' figures and tables again, in their order."""

from __future__ import annotations

from headwise.research.parts import ResearchStudy, Work

_SWEEPS = ("probability", "lambda", "features", "head", "context", "interference")
_TASKS = ("greater-than", "pronouns", "facts")

PAPER: tuple[ResearchStudy, ...] = (
    *(
        ResearchStudy(
            f"payload-{size}-{latents}",
            f"toy payload --grid --d-head {size} --latents {latents}",
            f"toy payload --grid --d-head {size} --latents {latents} --steps {steps} --samples 1000",
            model=False,
        )
        for size, steps in ((8, 600), (16, 400))
        for latents in ("discrete", "gaussian")
    ),
    *(
        ResearchStudy(
            f"payload-{shape}",
            f"toy payload --d-head 16 --r1 3 --r2 5 --latents {latents}",
            f"toy payload --d-head 16 --r1 3 --r2 5 --latents {latents} --steps 1000 --samples 2000",
            model=False,
        )
        for shape, latents in (("cube", "discrete"), ("sphere", "gaussian"))
    ),
    ResearchStudy(
        "payload-three",
        "toy payload --d-head 16 --ranks 3,4,5",
        "toy payload --d-head 16 --ranks 3,4,5 --steps 1000 --samples 2000",
        model=False,
    ),
    ResearchStudy(
        "filter",
        "features {filter} --prompts 2000 --test 1000 --items 5",
        "features {filter} --prompts 60 --draws 100",
        workers=True,
    ),
    ResearchStudy(
        "filter-13",
        "features {filter} --categories 13 --prompts 2000",
        "features {filter} --categories 13 --prompts 60 --draws 100",
        workers=True,
    ),
    ResearchStudy(
        "binding",
        "features {binding} --prompts 3000 --scan 300 --test 1000 --through-model --answers 36",
        "features {binding} --prompts 90 --draws 100",
        workers=True,
    ),
)

TALK: tuple[ResearchStudy, ...] = (
    *(
        ResearchStudy(
            f"alignment-{case}",
            f"toy alignment --case {case}",
            f"toy alignment --case {case} --seeds 2 --steps {steps}",
            model=False,
        )
        for case, steps in (("none", 600), ("pair", 1000), ("pairs", 1500))
    ),
    *(
        ResearchStudy(
            f"sweep-{name}",
            f"toy alignment --sweep {name}",
            f"toy alignment --sweep {name} --seeds 2 --steps 600",
            model=False,
        )
        for name in _SWEEPS
    ),
    ResearchStudy("circuits", "circuits {ioi} --prompts 3000", "circuits {ioi} --prompts 30", workers=True),
    *(
        ResearchStudy(
            f"circuits-{task}",
            f"circuits {{{task}}} --prompts 300",
            f"circuits {{{task}}} --prompts 10",
            workers=True,
        )
        for task in _TASKS
    ),
    *(
        ResearchStudy(
            f"effects-{task}",
            f"intervene --task {{{task}}} --prompts 100",
            f"intervene --task {{{task}}} --prompts 8",
        )
        for task in ("ioi", *_TASKS)
    ),
    ResearchStudy("families", "families {circuits}", "families {circuits} --sample 8"),
    ResearchStudy(
        "orders", "families {circuits} --by {order}", "families {circuits} --by {order} --sample 8"
    ),
    ResearchStudy(
        "names",
        "name {circuits} {corpus} --top 500",
        "name {circuits} {corpus} --top 20 --texts 200",
        workers=True,
    ),
    ResearchStudy("sparsity", "sparsity {ioi} --prompts 300", "sparsity {ioi} --prompts 12", workers=True),
    ResearchStudy("training", "toy training", "toy training --steps 60 --prompts 60", model=False),
    ResearchStudy("sinks", "sinks {texts}", "sinks {texts} --prompts 12 --traced 4 --proved 2", workers=True),
)

STUDIES: dict[Work, tuple[ResearchStudy, ...]] = {"paper": PAPER, "talk": TALK}
