"""Reading models: from a folder, a file or by name; and one line for each reason not to."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import tiny_folders
import tiny_gguf
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, T5Config
from transformers.utils import logging

from headwise.errors import HeadwiseError
from headwise.model.loading import load
from headwise.model.loading.catalogue import DEFAULT
from headwise.model.loading.place import ModelPlace
from headwise.model.loading.trouble import reason_of


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folders.write_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """The saved model in a folder that a test may spoil."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in saved.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def refused(name: Any, **options: Any) -> str:
    with pytest.raises(HeadwiseError) as caught:
        load.read(name, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_folder_gives_the_untouched_model(saved: Path) -> None:
    loaded = load.read(saved)
    hf: Any = loaded.hf
    plain: Any = AutoModelForCausalLM.from_pretrained(saved)
    ids = loaded.tokenizer("a b a", return_tensors="pt")["input_ids"]
    assert torch.equal(hf(ids).logits, plain(ids).logits)
    assert not hf.training
    assert not any(weight.requires_grad for weight in hf.parameters())
    assert (loaded.name, loaded.source) == ("tiny-llama", str(saved))
    assert load.read(str(saved)).name == "tiny-llama"


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", torch.float16])
def test_dtype(saved: Path, dtype: Any) -> None:
    assert str(load.read(saved, dtype=dtype).hf.dtype).removeprefix("torch.") in str(dtype)


def test_a_gguf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    model = tiny_gguf.tiny_model("llama")
    path = tiny_gguf.write(model, tmp_path / "mine.gguf")
    loaded = load.read(path)
    hf: Any = loaded.hf
    ids = torch.arange(9)[None]
    torch.testing.assert_close(hf(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5)
    assert (loaded.name, loaded.source) == ("mine", str(path))


def test_transformers_is_left_as_it_was(saved: Path) -> None:
    logging.set_verbosity_info()
    logging.enable_progress_bar()
    try:
        load.read(saved)
        assert logging.get_verbosity() == 20
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity_warning()


def test_loading_is_silent(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load.read(saved)
    assert capfd.readouterr() == ("", "")


def test_pickled_weights_are_refused_unopened(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"never to be opened")
    message = refused(copy)
    assert "'copy' has only pickled weights (pytorch_model.bin)" in message
    words = shlex.split(message.partition("with: ")[2])
    assert words[:2] == ["python", "-c"]
    assert words[2].endswith("save_pretrained('copy-safetensors')")
    assert len(words) == 3


def test_a_config_cannot_point_to_pickled_weights(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"transformers_weights": "adapter_model.bin"}))
    (copy / "adapter_model.bin").write_bytes(b"never to be opened")
    assert "pickled weights (adapter_model.bin)" in refused(copy)


def test_weights_that_do_not_fill_the_model_are_refused(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    assert "do not fill the model: model.layers.2." in refused(copy)


def test_damaged_weights(copy: Path) -> None:
    (copy / "model.safetensors").write_bytes(b"not a tensor in sight")
    assert "the weights of 'copy' cannot be read" in refused(copy)


def test_no_weights(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    assert "has no weights (model.safetensors): it is not a whole transformers model" in refused(copy)


def test_no_tokenizer(copy: Path) -> None:
    for file in copy.glob("token*"):
        file.unlink()
    assert "has no tokenizer (tokenizer.json)" in refused(copy)


def test_missing_places(tmp_path: Path) -> None:
    assert refused(tmp_path / "nowhere") == f"there is no file or folder '{tmp_path / 'nowhere'}'"
    assert refused("./nowhere.gguf") == "there is no file or folder './nowhere.gguf'"
    assert "has no config.json" in refused(tmp_path)
    (tmp_path / "notes.txt").touch()
    assert "give a model's folder, a .gguf file or a hub id" in refused(tmp_path / "notes.txt")
    assert "neither a file or folder nor a hub id" in refused("two words")


def test_encoder_decoder_is_refused_before_weights(tmp_path: Path) -> None:
    T5Config().save_pretrained(tmp_path)
    assert "is an encoder-decoder (t5)" in refused(tmp_path)


def test_unknown_configurations(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "from_the_future"}')
    assert "the configuration of" in refused(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "config.json' is not a model's configuration" in refused(tmp_path)


def test_remote_code_needs_to_be_asked_for(tmp_path: Path) -> None:
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(own))
    (tmp_path / "own.py").write_text("raise SystemExit('remote code ran')")
    assert "brings its own Python code: pass trust_remote_code=True" in refused(tmp_path)


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "'someone/some-model' is not a folder here, and the hub cannot be reached" in refused(
        "someone/some-model"
    )


def test_offline_means_no_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("went to the network"))
    assert "the hub cannot be reached: check the network and HF_HUB_OFFLINE" in refused("someone/some-model")


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("GatedRepoError", "'o/m' is gated: ask for access"),
        ("RepositoryNotFoundError", "there is no model 'o/m' on the hub"),
        ("RevisionNotFoundError", "'o/m' has no revision 'v9' on the hub"),
    ],
)
def test_what_the_hub_says(kind: str, line: str) -> None:
    from huggingface_hub import errors

    answer = getattr(errors, kind).__new__(getattr(errors, kind))
    wrapped = OSError("something long\nabout it")
    wrapped.__cause__ = answer
    place = ModelPlace("o/m", "o/m", "o/m at v9", revision="v9")
    assert reason_of(place, "configuration", wrapped).startswith(line)


def test_options_that_cannot_be(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'int8' is not a model's dtype" in refused(saved, dtype="int8")
    assert "the device 'gpu9' cannot be used here" in refused(saved, device="gpu9")
    assert "not both" in refused(saved, device="cpu", device_map="auto")
    assert "revision='v1' is for hub models" in refused(saved, revision="v1")
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "accelerate" else find(name, *a)
    )
    assert "pip install 'headwise[big]'" in refused(saved, device_map="auto")


def test_device_map(saved: Path) -> None:
    hf: Any = load.read(saved, device_map="auto").hf
    assert hf(torch.arange(4)[None]).logits.shape == (1, 4, LlamaConfig.from_pretrained(saved).vocab_size)


@pytest.mark.real
def test_default_model_is_the_one_without_a_name() -> None:
    loaded = load.read()
    assert (loaded.name, loaded.source) == (DEFAULT, "SmolLM2-135M-Instruct")
    assert loaded.hf.dtype == torch.float32
