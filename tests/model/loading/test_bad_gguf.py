"""GGUF files that are damaged, cut short or lie about their sizes: one line, soon, and nothing left in the cache."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
import tiny_gguf

from headwise.errors import HeadwiseError
from headwise.model.loading import store
from headwise.model.loading.gguf_header import read_header
from headwise.model.loading.load import load

SOON = 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return tiny_gguf.write(tiny_gguf.tiny_model("llama"), path).read_bytes()


def outcome(content: bytes, path: Path) -> str:
    """What is said of a file of this content; nothing if it loads."""
    path.write_bytes(content)
    began, said = time.monotonic(), ""
    try:
        load(path)
    except HeadwiseError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 600
    assert time.monotonic() - began < SOON
    if said:
        assert not list((store.cache_folder() / "models").glob(".*"))
    return said


def with_field(content: bytes, key: str, value: int) -> bytes:
    """The file with another number in one of its 32-bit fields."""
    at = content.index(key.encode()) + len(key)
    kind = struct.unpack("<I", content[at : at + 4])[0]
    assert kind in (4, 5)
    return content[: at + 4] + struct.pack("<I", value) + content[at + 8 :]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "llama.block_count",
            2**32 - 1,
            "says that it has 4294967295 layers (llama.block_count), but it holds 2",
        ),
        ("llama.block_count", 1, "says that it has 1 layers (llama.block_count), but it holds 2"),
        ("llama.block_count", 0, "it holds 2"),
        ("llama.embedding_length", 2**32 - 1, "says llama.embedding_length = 4294967295: it is damaged"),
        ("llama.embedding_length", 2**30, "asks for"),
        ("llama.feed_forward_length", 2**31 - 1, "asks for"),
        ("llama.attention.head_count", 0, "m.gguf"),
        ("llama.attention.head_count_kv", 0, "m.gguf"),
        ("llama.attention.head_count", 3, "m.gguf"),
        ("llama.rope.dimension_count", 2**30, "asks for"),
        ("llama.rope.dimension_count", 4, "q_proj.weight is [32, 16] in the file, [16, 16] by"),
    ],
)
def test_sizes_that_are_not_the_files(whole: bytes, tmp_path: Path, key: str, value: int, words: str) -> None:
    assert words in outcome(with_field(whole, key, value), tmp_path / "m.gguf")


@pytest.mark.parametrize("count", [2**63, 2**40, 10**6])
@pytest.mark.parametrize("at", [8, 16])  # how many tensors, how many fields
def test_counts_past_the_end_of_the_file(whole: bytes, tmp_path: Path, at: int, count: int) -> None:
    content = whole[:at] + struct.pack("<Q", count) + whole[at + 8 :]
    assert "is damaged or cut short" in outcome(content, tmp_path / "m.gguf")


@pytest.mark.parametrize("share", [0.001, 0.1, 0.3, 0.5, 0.9, 0.99, 0.9999])
def test_a_file_cut_short_is_said_to_be(whole: bytes, tmp_path: Path, share: float) -> None:
    said = outcome(whole[: int(len(whole) * share)], tmp_path / "m.gguf")
    assert "m.gguf' is damaged or cut short: fetch the file again" in said


def test_a_whole_file_is_not(whole: bytes, tmp_path: Path) -> None:
    assert outcome(whole, tmp_path / "m.gguf") == ""
    shapes = read_header(tmp_path / "m.gguf").shapes
    assert shapes["token_embd.weight"] == (16, 263)
    assert len(shapes) == 2 + 2 * 9


def test_a_missing_tensor_is_not_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_gguf.tiny_model("llama")
    state = model.state_dict()
    state.pop("model.layers.1.mlp.up_proj.weight")
    monkeypatch.setattr(model, "state_dict", lambda: state)
    content = tiny_gguf.write(model, tmp_path / "made.gguf").read_bytes()
    assert "do not fill the model" in outcome(content, tmp_path / "m.gguf")


def test_a_weight_that_is_no_number(whole: bytes, tmp_path: Path) -> None:
    content = whole[:-4] + struct.pack("<f", float("nan"))
    assert "holds NaN or infinity" in outcome(content, tmp_path / "m.gguf")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_changed_byte_of_the_header_is_read_or_refused(whole: bytes, tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    for number in range(6):
        at, value = drawn.randrange(4, 1000), drawn.randrange(256)
        outcome(whole[:at] + bytes([value]) + whole[at + 1 :], tmp_path / f"{number}.gguf")
