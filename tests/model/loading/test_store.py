"""The cache of models: faithful conversion, nothing half made, one clear line when something is amiss."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gguf
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headwise.errors import HeadwiseError
from headwise.files import sha256_of
from headwise.model.loading import catalogue as known_models
from headwise.model.loading import fetch, store
from headwise.model.loading.gguf_header import read_header

IOI = "When John and Mary went to the store, John gave a drink to"


@pytest.fixture(autouse=True)
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for every test but those on real models, which would each convert for 20 s."""
    if request.node.get_closest_marker("real"):
        return store.cache_folder()
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write(tiny_gguf.tiny_model("llama"), tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def leftovers(cache: Path) -> list[str]:
    return [folder.name for folder in (cache / "models").glob(".*")]


@pytest.mark.parametrize(("arch", "tied"), [("llama", True), ("llama", False), ("gemma3", True)])
def test_conversion_keeps_the_model(arch: str, tied: bool, tmp_path: Path) -> None:
    model = tiny_gguf.tiny_model(arch, tied=tied)
    folder = store.from_gguf(tiny_gguf.write(model, tmp_path / "m.gguf"))
    both: Any = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, use_safetensors=True)
    again, found = both
    assert type(again) is type(model)
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    assert (again.lm_head.weight.data_ptr() == again.get_input_embeddings().weight.data_ptr()) is tied
    ids = torch.arange(12)[None] * 7 % len(tiny_gguf.TOKENS)
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5)
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(("split", "pieces"), [("smollm", ["x", "1", "2"]), ("gpt-2", ["x", "12"])])
def test_digits_are_split_as_they_were_learned(split: str, pieces: list[str], tmp_path: Path) -> None:
    path = tiny_gguf.write(tiny_gguf.tiny_model("llama"), tmp_path / "m.gguf", split=split)
    tokenizer = AutoTokenizer.from_pretrained(store.from_gguf(path))
    assert tokenizer.convert_ids_to_tokens(tokenizer("x12").input_ids) == pieces


@pytest.mark.parametrize("bos", [True, False])
def test_tokenizer_starts_with_bos_only_if_the_file_says_so(bos: bool, tmp_path: Path) -> None:
    path = tiny_gguf.write(tiny_gguf.tiny_model("llama"), tmp_path / "m.gguf", bos=bos)
    tokenizer = AutoTokenizer.from_pretrained(store.from_gguf(path))
    ids = tokenizer(" Mary").input_ids
    assert (ids[0] == tokenizer.bos_token_id) is bos
    assert len(ids) == 1 + bos
    assert tokenizer.decode(ids, skip_special_tokens=True) == " Mary"
    assert tokenizer(" Mary", add_special_tokens=False).input_ids == ids[bos:]
    assert len(tokenizer) == len(tiny_gguf.TOKENS)


def test_an_unknown_way_of_splitting_warns(tmp_path: Path) -> None:
    path = tiny_gguf.write(tiny_gguf.tiny_model("llama"), tmp_path / "m.gguf", split="from-the-future")
    with pytest.warns(UserWarning, match="from-the-future"):
        store.from_gguf(path)


def test_a_file_is_converted_once_wherever_it_lies(tiny: Path, tmp_path: Path) -> None:
    first = store.from_gguf(tiny)
    written = (first / "model.safetensors").stat().st_mtime_ns
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny.read_bytes())
    assert store.from_gguf(copy) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written


def test_a_changed_file_is_converted_anew(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(tiny.read_bytes())
    first = store.from_gguf(path)
    assert store.from_gguf(path) == first
    tiny_gguf.write(tiny_gguf.tiny_model("llama", tied=False), path)
    assert store.from_gguf(path) != first


def test_a_file_replaced_by_one_of_the_same_size_and_time_is_converted_anew(
    tiny: Path, tmp_path: Path
) -> None:
    path, state = tmp_path / "mine.gguf", tiny.stat()
    path.write_bytes(tiny.read_bytes())
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    first = store.from_gguf(path)
    content = bytearray(tiny.read_bytes())
    content[-4:] = np.float32(0.5).tobytes()
    path.write_bytes(content)  # in place: the same inode, too
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    assert store.from_gguf(path) != first


@pytest.mark.parametrize("memo", ["{", "[]", "7", '[["x"], 5]', "[" * 100_000])
def test_a_damaged_memory_of_hashes_is_made_anew(tiny: Path, memo: str, cache: Path) -> None:
    first = store.from_gguf(tiny)
    for file in (cache / "hashes").iterdir():
        file.write_text(memo)
    assert store.from_gguf(tiny) == first


def test_the_working_folder_is_not_asked_for_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pip.py", "zipfile.py"):
        (tmp_path / name).write_text("import pathlib; pathlib.Path('ran').touch()")
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(HeadwiseError, match=r"hw-none 1\.0 cannot be fetched"):
        fetch.from_index("hw-none", "1.0", "hw/none", tmp_path / "files")
    assert not (tmp_path / "ran").exists()


def test_rescaled_rotary_frequencies_are_refused(tmp_path: Path) -> None:
    path = tiny_gguf.write(tiny_gguf.tiny_model("llama"), tmp_path / "m.gguf", rope_freqs=True)
    with pytest.raises(HeadwiseError, match="rotary frequencies"):
        store.from_gguf(path)


def test_damaged_files_are_named(tiny: Path, tmp_path: Path) -> None:
    short, other = tmp_path / "short.gguf", tmp_path / "other.gguf"
    short.write_bytes(tiny.read_bytes()[:200])
    other.write_bytes(b"PK\x03\x04" + bytes(60))
    with pytest.raises(HeadwiseError, match=r"short\.gguf' is damaged or cut short"):
        read_header(short)
    with pytest.raises(HeadwiseError, match=r"other\.gguf' is not a GGUF file"):
        read_header(other)


def test_weights_cut_short_leave_nothing(tiny: Path, tmp_path: Path, cache: Path) -> None:
    whole = tiny.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) - 4000])
    with pytest.raises(HeadwiseError, match=r"cut\.gguf' is damaged or cut short: fetch the file again"):
        store.from_gguf(cut)
    assert store.list_ready() == []
    assert leftovers(cache) == []


# What a child process does: begin a conversion that stops halfway, with part of the model already written.
HALFWAY = """
import sys, time
from pathlib import Path
from headwise.model.loading import convert
from headwise.model.loading import store
def half(path, target, report=None):
    (target / "config.json").write_text("{}")
    print("half", flush=True)
    time.sleep(60)
convert.convert = half
store.from_gguf(Path(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_conversion_leaves_nothing_half_made(how: signal.Signals, tiny: Path, cache: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HALFWAY, str(tiny)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "half\n"
    child.send_signal(how)
    child.wait(30)
    assert store.list_ready() == []
    # Nobody can clean up after SIGKILL but the next to come; after Ctrl-C the process itself does.
    assert len(leftovers(cache)) == (1 if how == signal.SIGKILL else 0)
    folder = store.from_gguf(tiny)
    assert leftovers(cache) == []
    assert [ready.path for ready in store.list_ready()] == [folder]


@pytest.mark.slow
def test_two_processes_at_once_make_it_once(tiny: Path, cache: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from headwise.model.loading import convert, store\n"
        "inner = convert.convert\n"
        "def told(*args): print('converting', flush=True); inner(*args)\n"
        "convert.convert = told; print(store.from_gguf(Path(sys.argv[1])))"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tiny)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [child.communicate(timeout=120)[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    (folder,) = (ready.path for ready in store.list_ready())
    assert {words[-1] for words in said} == {str(folder)}
    assert sum("converting" in words for words in said) == 1
    assert leftovers(cache) == []


def test_a_folder_of_an_older_form_is_made_anew(tiny: Path) -> None:
    folder = store.from_gguf(tiny)
    note = folder / "headwise.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"format": 0}))
    (folder / "stale").touch()
    assert store.list_ready() == []
    assert store.from_gguf(tiny) == folder
    assert not (folder / "stale").exists()


def test_remove_frees_the_model(tiny: Path, cache: Path) -> None:
    folder = store.from_gguf(tiny)
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert store.remove(folder.name) == size
    assert not folder.exists()
    assert leftovers(cache) == []
    with pytest.raises(HeadwiseError, match="not in the cache"):
        store.remove(folder.name)


def package(model: known_models.KnownModel, root: Path, content: bytes) -> None:
    """Installed packages that hold ``content`` in equal parts."""
    step = -(-len(content) // len(model.parts))
    for number, part in enumerate(model.parts):
        file = root / part.module / part.file
        file.parent.mkdir(parents=True)
        # Importing a data package may need what is not installed; only its files are wanted.
        (root / part.module / "__init__.py").write_text("raise ImportError('must not be imported')")
        file.write_bytes(content[number * step : (number + 1) * step])


@pytest.fixture
def known(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> known_models.KnownModel:
    """A model of two parts, installed, in place of the known ones."""
    parts = tuple(known_models.Part(f"hw-part{n}", "1.0", f"hw_part{n}", f"data/m.part{n}") for n in (1, 2))
    model = known_models.KnownModel("tiny", "Tiny", "MIT", sha256_of(tiny), parts)
    monkeypatch.setattr(known_models, "TABLE", {"tiny": model})
    package(model, tmp_path / "site", tiny.read_bytes())
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return model


def test_parts_of_installed_packages_are_put_together(known: known_models.KnownModel) -> None:
    folder = store.ensure("tiny")
    assert store.list_ready()[0].licence == "MIT"
    assert AutoModelForCausalLM.from_pretrained(folder).config.num_hidden_layers == 2


def test_a_wrong_hash_is_refused(known: known_models.KnownModel, tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "site" / "hw_part2" / "data" / "m.part2"
    file.write_bytes(file.read_bytes()[:-1] + b"\x00\x01")
    with pytest.raises(HeadwiseError, match="is not the Tiny that was expected: its SHA-256 begins"):
        store.ensure("tiny")
    assert store.list_ready() == []
    assert leftovers(cache) == []


def test_terms_must_be_accepted(known: known_models.KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = replace(known, terms=known.parts[:1])
    monkeypatch.setattr(known_models, "TABLE", {"tiny": strict})
    with pytest.raises(HeadwiseError, match="--accept-license"):
        store.ensure("tiny", download=True)
    folder = store.ensure("tiny", accept_license=True)
    assert (folder / "m.part1").is_file()
    assert store.ensure("tiny") == folder


def test_terms_cut_short_are_not_taken_for_whole(
    known: known_models.KnownModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_models, "TABLE", {"tiny": replace(known, terms=known.parts[:1])})
    whole = shutil.copyfile

    def half(source: Path, target: Path, **_: Any) -> None:
        target = Path(target)
        (target / Path(source).name if target.is_dir() else target).write_bytes(b"The terms are")
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(shutil, "copyfile", half)
    assert store.terms("tiny") is None
    assert [file for file in (cache / "terms").rglob("*") if file.is_file()] == []
    monkeypatch.setattr(shutil, "copyfile", whole)
    text = store.terms("tiny")
    assert text is not None
    assert text.read_bytes() != b"The terms are"


def test_the_note_comes_last_and_after_all_files_are_on_the_disk(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note says that the others are whole: after a loss of power it must not be the only one that is."""
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), sync(fd))[1])
    folder = store.from_gguf(tiny)
    made = {file.name: file.stat().st_ino for file in folder.iterdir()}
    assert {*made.values()} <= {*synced}
    note = synced.index(made.pop("headwise.json"))
    assert all(synced.index(inode) < note for inode in made.values())
    assert json.loads((folder / "headwise.json").read_text())["source"] == "tiny.gguf"


def test_a_model_that_is_not_here_is_not_fetched_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "from_index", lambda *_: pytest.fail("went to the network"))
    monkeypatch.setattr(store, "_installed", lambda part: None)
    with pytest.raises(HeadwiseError, match="`headwise models get smollm2`"):
        store.ensure("smollm2")


def test_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    (tmp_path / "files").mkdir()
    with pytest.raises(HeadwiseError, match=r"hw-none 1\.0 cannot be fetched: .*(index|pip says)") as caught:
        fetch.from_index("hw-none", "1.0", "hw/none", tmp_path / "files")
    assert "\n" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_named(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "file"))
    with pytest.raises(HeadwiseError, match="HEADWISE_CACHE"):
        store.from_gguf(tiny)


@pytest.mark.real
def test_default_model_answers() -> None:
    folder = store.ensure()
    AutoModelForCausalLM.from_pretrained(folder)  # transformers imports the model's code on first use
    began = time.monotonic()
    assert store.ensure() == folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    assert time.monotonic() - began < 2
    ids = tokenizer(IOI, return_tensors="pt").input_ids
    assert ids.shape == (1, 14)  # no token before the first word
    with torch.no_grad():
        assert tokenizer.decode(model(ids).logits[0, -1].argmax()) == " Mary"
    assert tokenizer.convert_ids_to_tokens(tokenizer("in 1732").input_ids) == ["in", "Ġ", "1", "7", "3", "2"]


@pytest.mark.real
def test_gemma_answers_with_bos() -> None:
    if not store.is_ready("gemma3-270m"):
        pytest.skip("gemma3-270m is not in the cache")
    folder = store.ensure("gemma3-270m")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("hi").input_ids[0] == tokenizer.bos_token_id == 2
    (mary,) = tokenizer(" Mary", add_special_tokens=False).input_ids
    assert tokenizer.decode(mary) == " Mary"
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        best = model(ids).logits[0, -1].topk(3).indices
    assert " Paris" in [tokenizer.decode(token) for token in best]
