"""Models that are not what they seem: each is refused in one line, soon, and without running what it brings."""

from __future__ import annotations

import json
import pickle
import resource
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_folders
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import VARIANTS, tiny
from tiny_folders import change_weights, set_config

from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.model.loading import fit, place
from headwise.model.loading.load import load

SOON = 20
"""Seconds; a refusal takes a fraction of one, on a machine that does much else."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folders.write_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def refusal(folder: Path, **options: Any) -> str:
    began = time.monotonic()
    with pytest.raises(HeadwiseError) as caught:
        load(folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    assert time.monotonic() - began < SOON
    return message


def poison(name: str, value: float, row: int = -1) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        tensors[name].view(-1)[row] = value

    return change


# --- sizes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_hidden_layers": 2**63}, "says num_hidden_layers = 9223372036854775808: 1 to 10,000 can be"),
        ({"num_hidden_layers": 0}, "says num_hidden_layers = 0"),
        ({"num_hidden_layers": -1}, "says num_hidden_layers = -1"),
        ({"num_hidden_layers": 9_999}, "its configuration says 9999 layers, but there are"),
        ({"num_hidden_layers": 3}, "do not fill the model: model.layers.2."),
        ({"num_hidden_layers": 1}, "of a larger model than its configuration describes: model.layers.1."),
        ({"num_attention_heads": 0}, "says num_attention_heads = 0"),
        ({"num_key_value_heads": 0}, "says num_key_value_heads = 0"),
        ({"hidden_size": 2**40}, "says hidden_size = 1099511627776"),
        (
            {"vocab_size": 2**31 - 1},
            "model.embed_tokens.weight is [263, 16] in the file, [2147483647, 16] by",
        ),
        (
            {"intermediate_size": 2**31 - 1},
            "mlp.gate_proj.weight is [24, 16] in the file, [2147483647, 16] by",
        ),
        ({"head_dim": 2**31 - 1, "num_attention_heads": 2**31 - 1}, "copy"),
        ({"vocab_size": 262}, "is [263, 16] in the file, [262, 16] by"),
        ({"num_attention_heads": 3}, "copy"),
        ({"num_attention_heads": "four"}, "the configuration of 'copy' cannot be read"),
        ({"rms_norm_eps": []}, "the configuration of 'copy' cannot be read"),
        ({"hidden_act": "no such thing"}, "copy"),
        ({"tie_word_embeddings": False}, "do not fill the model: lm_head.weight"),
        ({"model_type": "bloom"}, "'bloom' models compute attention in their own code"),
        ({"architectures": 7}, None),
        ({"rope_parameters": {"rope_type": "linear"}}, "copy"),
        ({"layer_types": ["full_attention"] * 3}, "copy"),
        ({"torch_dtype": "int8"}, None),  # the user's dtype counts
    ],
)
def test_a_configuration_that_does_not_fit(copy: Path, values: dict[str, Any], words: str | None) -> None:
    set_config(copy, **values)
    if words is None:
        assert load(copy).dtype == torch.float32
    else:
        assert words in refusal(copy)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused(sound: Path, copy: Path, data: st.DataObject) -> None:
    config = json.loads((sound / "config.json").read_text())
    field = data.draw(st.sampled_from(sorted(config)))
    value = data.draw(
        st.sampled_from(
            [0, -1, 1, 3, 2**31, 2**63, 2**200, 0.5, 1e308, "", "x", "ü\u2028", None, True, [], {}, [[]]]
        )
    )
    (copy / "config.json").write_text(json.dumps(config | {field: value}))
    began, said = time.monotonic(), ""
    try:
        load(copy)
    except HeadwiseError as error:
        said = str(error)
    assert "\n" not in said
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", "", '{"a": NaN}', "[" * 100_000, '{"hidden_size": ' + "9" * 5000 + "}", "\ud800"]
)
def test_a_configuration_that_is_none(copy: Path, text: str) -> None:
    (copy / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert "configuration" in refusal(copy)


def test_no_memory_is_taken_for_what_a_configuration_claims(copy: Path) -> None:
    set_config(copy, vocab_size=2**31 - 1, hidden_size=2**16)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusal(copy)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


# --- weights ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight", "model.norm.weight"]
)
def test_every_weight_is_a_number(copy: Path, name: str, value: float) -> None:
    change_weights(copy, poison(name, value, row=-1))  # the last row: no word of the self-check's prompt
    assert f"{name} holds NaN or infinity (as float32)" in refusal(copy)


def test_a_weight_too_large_for_the_type_is_found(copy: Path) -> None:
    change_weights(copy, poison("model.layers.0.mlp.up_proj.weight", 1e6))
    assert "model.layers.0.mlp.up_proj.weight holds NaN or infinity (as float16)" in refusal(
        copy, dtype="float16"
    )


def test_a_sum_that_overflows_is_not_taken_for_infinity() -> None:
    hf = tiny("llama").hf
    hf.lm_head.weight.data[:2] = torch.finfo(torch.float32).max
    fit.refuse_not_finite(hf, "tiny")


def test_every_bit_of_every_weight_counts(sound: Path) -> None:
    """The pass over the weights leaves none out: poison each in turn."""
    hf: Any = load(sound).hf
    for name, weight in hf.named_parameters():
        kept = weight.data.clone()
        weight.data.view(-1)[weight.numel() // 2] = float("nan")
        with pytest.raises(HeadwiseError, match=rf"{name} holds NaN"):
            fit.refuse_not_finite(hf, "tiny")
        weight.data.copy_(kept)
    fit.refuse_not_finite(hf, "tiny")


def test_whole_numbers_without_scales_are_no_weights(copy: Path) -> None:
    change_weights(copy, lambda tensors: {k: (10 * v).to(torch.int8) for k, v in tensors.items()})
    assert "quantized without scales (model.embed_tokens.weight is I8)" in refusal(copy)


def test_a_weight_that_is_missing(copy: Path) -> None:
    change_weights(copy, lambda tensors: {k: v for k, v in tensors.items() if "layers.1.mlp.up" not in k})
    assert "do not fill the model: model.layers.1.mlp.up_proj.weight missing or misshapen" in refusal(copy)


def test_a_weight_without_a_place(copy: Path) -> None:
    change_weights(copy, lambda tensors: tensors | {"model.extra.weight": torch.ones(2)})
    assert "model.extra.weight has no place in it" in refusal(copy)


def test_tables_of_older_checkpoints_are_no_weights(copy: Path) -> None:
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    change_weights(copy, lambda tensors: tensors | old)
    load(copy)


@pytest.mark.parametrize("size", [0, 7, 8, 100, 2000, -1])
def test_weights_cut_short(copy: Path, size: int) -> None:
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[:size])
    assert "'model.safetensors' is damaged or cut short" in refusal(copy)


def test_a_header_of_absurd_length(copy: Path) -> None:
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + whole[8:])
    assert "is damaged or cut short" in refusal(copy)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_family_still_loads(variant: str, tmp_path: Path) -> None:
    folder = tiny_folders.write_folder(tmp_path / variant, hf=tiny(variant).hf)
    assert load(folder).family.name == VARIANTS[variant][0].lower().replace("config", "").replace(
        "gptneox", "gpt_neox"
    ).replace("text", "")


def test_a_checkpoint_without_the_prefix_still_loads(tmp_path: Path) -> None:
    """GPT-2's own files name their weights without the trunk's name."""
    folder = tiny_folders.write_folder(tmp_path / "gpt2", hf=tiny("gpt2").hf)
    change_weights(folder, lambda tensors: {k.removeprefix("transformer."): v for k, v in tensors.items()})
    load(folder)


# --- the index --------------------------------------------------------------------------------------------------


class Payload:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("ran"),))


def index(folder: Path, file: str) -> None:
    weights = folder / "model.safetensors"
    from safetensors.torch import load_file

    names = dict.fromkeys(load_file(weights), file)
    weights.rename(folder / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def test_an_index_of_safetensors_is_read(copy: Path) -> None:
    index(copy, "part.safetensors")
    load(copy)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("p.bin", "names 'p.bin', which is not safetensors and can run code"),
        ("../x.safetensors", "names '../x.safetensors', which is outside its folder"),
        ("a/../../x.safetensors", "which is outside its folder"),
        ("/etc/x.safetensors", "which is outside its folder"),
        ("lost.safetensors", "'lost.safetensors' missing"),
        ("..\\x.safetensors", "which is outside its folder"),
    ],
)
def test_an_index_may_name_only_safetensors_of_its_folder(
    copy: Path, file: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(copy, file)
    (copy / "p.bin").write_bytes(pickle.dumps(Payload()))
    (copy.parent / "x.safetensors").write_bytes((copy / "part.safetensors").read_bytes())
    monkeypatch.chdir(copy)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened a pickle"))
    assert words in refusal(copy)
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[" * 100_000]
)
def test_an_index_that_is_none(copy: Path, text: str) -> None:
    index(copy, "part.safetensors")
    (copy / "model.safetensors.index.json").write_text(text)
    assert "an index of weights" in refusal(copy)


def test_the_configuration_may_name_only_weights_of_its_folder(copy: Path) -> None:
    set_config(copy, transformers_weights="../model.safetensors")
    assert "names '../model.safetensors', which is outside its folder" in refusal(copy)


# --- tokenizer and folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"version": "1.0", "model": {"type": "BPE"}}', "[" * 100_000]
)
def test_a_damaged_tokenizer(copy: Path, text: str) -> None:
    (copy / "tokenizer.json").write_text(text)
    assert "tokenizer of 'copy'" in refusal(copy)


def test_an_empty_tokenizer_is_said_to_be_one(tmp_path: Path) -> None:
    folder = tiny_folders.write_folder(tmp_path / "gpt2", hf=tiny("gpt2").hf)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert "tokenizer" in refusal(folder)


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        ("model.safetensors", "has no config.json and no tokenizer (tokenizer.json):"),
        ("token*", "has no config.json and no weights (model.safetensors):"),
        ("config.json", "has no weights (model.safetensors) and no tokenizer (tokenizer.json):"),
        ("nothing", "has no config.json, no weights (model.safetensors) and no tokenizer (tokenizer.json):"),
        ("[cm]o*", "has no tokenizer (tokenizer.json):"),
    ],
)
def test_doctor_says_all_that_is_missing(
    copy: Path, keep: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in set(copy.iterdir()) - set(copy.glob(keep)):
        file.unlink()
    assert main(["doctor", str(copy)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_the_hint_for_pickled_weights_can_be_pasted(sound: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sound, tmp_path / "$(touch ran) `touch ran` 'x"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    hint = refusal(folder).partition("with: ")[2]
    shown = subprocess.run(
        ["sh", "-c", hint.replace("python -c", "printf %s", 1)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert not (tmp_path / "ran").exists()
    assert shown.stdout == shlex.split(hint)[2]
    compile(shown.stdout, "hint", "exec")


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b", "~nobody-at-all/x"])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(HeadwiseError) as caught:
        load(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["owner/model", "gpt2", "", None, 7, "x" * 300, "a\0b", "~nobody-at-all/x"])
def test_a_run_may_not_name_a_model_of_the_hub(name: Any) -> None:
    with pytest.raises(HeadwiseError, match="give the model that was traced with model="):
        place.refuse_remote(name)


def test_a_run_may_name_a_model_that_is_here(sound: Path) -> None:
    place.refuse_remote(str(sound))
    place.refuse_remote("smollm2")
