"""What is wrong is refused in one line, before anything heavy is imported and before any work."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest

from headwise.cli.main import VERBS, main

NOWHERE = "/proc/nothing/file"
REFUSED = [
    (["explain"], "a prompt is missing"),
    (["explain", " "], "the prompt is empty"),
    (["explain", "x", "--draws", "0"], "--draws"),
    (["explain", "x", "--tau", "-1"], "--tau -1 is not an attention"),
    (["explain", "x", "--features", "/nowhere"], "there are no features at '/nowhere'"),
    (["explain", "x", "--seed", "-3"], "--seed -3 is out of range"),
    (["explain", "x", "--only", "why"], "'why' is not one of 'what', 'who'"),
    (["explain", "x", "--html", NOWHERE], "cannot be written"),
    (["explain", "x", "--save", NOWHERE], "cannot be written"),
    (["explain", "x", "--row", "--key", "2"], "--key is not used with --row"),
    (["explain", "x", "--against", " "], "--against ' ' is empty"),
    (["explain", "x", "--against", "y", "--tau", "0.1"], "--tau is not used with --against"),
    (["explain", "x", "--against", "y", "--align", "1"], "'1' is not two positions"),
    (["explain", "x", "--align", "1=2"], "--align is used with --against PROMPT or one --transfer PROMPT"),
    (["explain", "--task", "ioy"], "there is no task 'ioy'"),
    (["explain", "x", "--task", "ioi"], "PROMPT and --task were both given"),
    (["explain", "x", "--out", "/tmp/nowhere/new"], "--out is used only with --task"),
    (["explain", "x", "--written", "2"], "--written is used only with --generate"),
    (["explain", "x", "--generate", "0"], "--generate"),
    (["explain", "x", "--generate", "2", "--answer", " y"], "--answer is not used with --generate"),
    (
        ["explain", "x", "--row", "--method", "shapley"],
        "--method is used with --row only together with --features",
    ),
    (["explain", "x", "--row", "--basis", "rotated"], "--basis is not used with --row"),
    (["explain", "x", "--row", "--top", "0"], "--top"),
    (["explain", "x", "--method", "shapley"], "--method is used only with --row"),
    (["explain", "x", "--top", "3"], "--top is used only with --only"),
    (["explain", "x", "--prompt-file", "y"], "were both given"),
    (["explain", "--prompt-file", "/nowhere"], "'/nowhere' cannot be read"),
    (["explain", "x", "--head", "head nine"], "'head nine' is not a head: write it as L9H6"),
    (["features", "binding", "--heads", "L1H2,zz"], "'zz' is not a head"),
    (["sparsity", "ioi", "--heads", "L1H"], "'L1H' is not a head"),
    (["attention", ""], "the prompt is empty"),
    (["attention", "x", "--top", "0"], "--top"),
    (["trace", "x", "--mode", "nope"], "'nope' is not one of 'exact', 'published'"),
    (["trace", "x", "--open", "answer", "--tau", "0.1"], "--tau is not used with --open and --from"),
    (["trace", "x", "--from", "L1H1@3<-1", "--verify"], "--verify is not used with --open and --from"),
    (["trace", "x", "--html", NOWHERE], "cannot be written"),
    (["trace", "x", "--save", NOWHERE], "cannot be written"),
    (["trace", "x", "--graphml", NOWHERE], "cannot be written"),
    (["trace", "x", "--attribution-graph", NOWHERE], "cannot be written"),
    (["intervene", "/nowhere"], "cannot read '/nowhere'"),
    (["heads", "bindings"], "there is no task 'bindings': did you mean 'binding'?"),
    (["heads"], "a task is missing: give TASK, or --roles"),
    (["heads", "--roles", "--pairs", "3"], "--pairs is not used with --roles and no task: leave it out"),
    (["heads", "ioi"], "'ioi' is a task with answers, but labelled prompts are needed here"),
    (["heads", "binding", "--format", "x"], "'x' is not one of"),
    (["features", "binding", "--draws", "9"], "--draws"),
    (["features", "binding", "--texts", "60"], "--texts is of ordinary text, and TASK binding has labels"),
    (["features", "--draws", "200"], "--draws is of a TASK with labels, and none was given"),
    (["features", "--texts", "3"], "--texts"),
    (["features", "--corpus", "/nowhere"], "there is no corpus at '/nowhere'"),
    (["features", "binding", "--out", NOWHERE], "cannot be written"),
    (["circuits", "ioo", "--out", "x"], "there is no task 'ioo'"),
    (["circuits", "ioi", "--out", "/usr"], "'/usr' holds other files"),
    (["circuits", "ioi", "--out", NOWHERE], "cannot be written"),
    (["circuits", "ioi", "--out", "x", "--workers", "0"], "--workers"),
    (["families", "/nowhere"], "the run '/nowhere' does not exist"),
    (["families", "/usr", "--distance", "x"], "'x' is not one of"),
    (["name"], "nothing says what to name"),
    (["name", "L0H0", "--selftest"], "both say what to name"),
    (["name", "L0H0", "--corpus", "/nowhere"], "'/nowhere'"),
    (["name", "L0H0", "--corpus", "/dev/null"], "/dev/null"),
    (["name", "L0H0", "--texts", "1"], "--texts"),
    (["name", "L0H0", "--causal", "--out", "/usr"], "'/usr' holds other files"),
    (["sinks", "iou"], "there is no task 'iou'"),
    (["sinks", "--texts", "/nowhere"], "cannot read '/nowhere'"),
    (["sinks", "--parked", "2"], "--parked"),
    (["sinks", "--out", NOWHERE], "cannot be written"),
    (["sparsity", "none.jsonl"], "there is no file 'none.jsonl'"),
    (["sparsity", "{bad}"], "has a bad line: line 1: not JSON"),
    (["circuits", "{bad}", "--out", "x"], "has a bad line: line 1: not JSON"),
    (["circuits", "{labelled}", "--out", "x"], "has 8 bad lines: line 1: the field 'answer' is missing"),
    (["sinks", "{bad}"], "has a bad line: line 1: not JSON"),
    (["heads", "{bad}"], "has a bad line: line 1: not JSON"),
    (["features", "{answers}"], "has a bad line: line 1: the field 'positive' is missing"),
    (
        ["heads", "{labelled}", "--prompts", "9"],
        "--prompts is not used with prompts of your own: leave it out",
    ),
    (["features", "{labelled}", "--prompts", "9"], "prompts of your own do not take --prompts: leave it out"),
    (
        ["heads", "binding", "--categories", "5"],
        "the task 'binding' does not take --categories: leave it out",
    ),
    (["features", "filter", "--pairs", "5"], "the task 'filter' does not take --pairs: leave it out"),
    (["features", "filter", "--categories", "²"], "category '²' is not known: choose from fruits"),
    (["features", "filter", "--categories", "7"], "7 categories are not prepared"),
    (["features", "binding", "--contrasts", "x"], "contrast 'x' is not known: write order"),
    (["toy", "training", "--checkpoints", "x"], "needs at least two checkpoints, and only 'x' was given"),
    (["sparsity", "ioi", "--out", NOWHERE], "cannot be written"),
    (["toy", "payload", "--latents", "x"], "'x' is not one of"),
    (["toy", "training", "--out", NOWHERE], "cannot be written"),
    (
        ["doctor", "--dtype", "int8"],
        "--dtype: 'int8' is not one of 'float32', 'float64', 'bfloat16', 'float16'",
    ),
    (["--dtype=half", "explain", "x"], "--dtype: 'half' is not one of"),
    (["explain", "x", "--dtype"], "--dtype is without a value: give --dtype TYPE"),
    (
        ["trace", "x", "--device", "gpu0"],
        "--device: 'gpu0' is not a device: write it as cpu, cuda, cuda:1 or mps",
    ),
    (["sinks", "--device-map", "most"], "--device-map: 'most' is neither auto nor a .json file"),
    (["sinks", "--device-map", "/nowhere.json"], "cannot read '/nowhere.json'"),
    (["heads", "binding", "--device-map", "{list}"], "is not a device map (no modules in it)"),
    (["heads", "binding", "--device-map", "{place}"], "puts 'lm_head' on 'moon', which is no device"),
    (["explain", "x", "--max-memory", "cpu=1GB"], "--max-memory is for models that are spread"),
    (
        ["explain", "x", "--offload", "/tmp"],
        "--offload is for models that are spread: give --device-map auto",
    ),
    (["explain", "x", "--device-map", "auto", "--offload", "{list}"], "is not a folder: name one"),
    (["explain", "x", "--device-map", "auto", "--offload", NOWHERE], "cannot be written"),
    (["name", "L0H0", "--device-map=auto", "--max-memory", "4GB"], "'4GB' is not a device and a size"),
    (["name", "L0H0", "--device-map=auto", "--max-memory", "cpu=1GB,cpu=2GB"], "names cpu twice"),
    (["app", "--device", "cpu", "--device-map", "auto"], "--device and --device-map were both given"),
    (
        ["models", "--dtype", "float16"],
        "--dtype says how a model is loaded, and is not used by `headwise models`",
    ),
    (["toy", "payload", "--device=cpu"], "and is not used by `headwise toy`: leave it out"),
    (
        ["sparsity", "ioi", "--checkpoints", "a", "--checkpoints", "b", "--dtype", "float16"],
        "--dtype is not used with --checkpoints: leave it out",
    ),
    (["families", "/usr", "--no-causality", "--device", "cpu"], "--device is not used with --no-causality"),
    (
        ["attention", "x", "--start", "-1"],
        "invalid value '-1' for --start: it should be greater than or equal to 0",
    ),
    (["explain", "x", "--start", "2.5"], "invalid value '2.5' for --start: it should be a valid integer"),
    (
        ["trace", "x", "--start", "-1"],
        "invalid value '-1' for --start: it should be greater than or equal to 0",
    ),
    (["intervene"], "a circuit is missing: give FILE, or PROMPT with --silence, --mean or --patch"),
    (["intervene", "x", "--silence", "L1"], "'L1' is not a head"),
    (["intervene", "x", "--patch", "L1H2@to", "--from", "y"], "'to' in 'L1H2@to' is not a position"),
    (["intervene", "x", "--silence", "L1H2", "--start", "-1"], "invalid value '-1' for --start"),
    (["intervene", "x", "--silence", "L1H2", "--edges", "a -> b"], "--edges is not used with --silence"),
    (
        ["intervene", "x", "--mean", "L1H2", "--action", "boost"],
        "--action is not used with --mean: leave it out",
    ),
    (["intervene", "x", "--mean", "L1H2", "--silence", "L1H3"], "--silence and --mean were both given"),
    (
        ["intervene", "x", "--patch", "L1H2"],
        "--patch takes values from another prompt: give it with --from PROMPT",
    ),
    (
        ["intervene", "x", "--silence", "L1H2", "--from", "y"],
        "--from is used only with --patch: leave it out",
    ),
    (["intervene", "x", "--align", "1=2"], "--align is used only with --action patch: leave it out"),
    (
        ["intervene", "x", "--patch", "L1H2", "--align", "1-2"],
        "'1-2' is not two positions: write them as 9=10",
    ),
    (["intervene", "x", "--patch", "L1H2", "--align", "1=2,1=3"], "names position 1 twice: give it once"),
    (["intervene", "x", "--action", "patch"], "--action patch takes values from another prompt"),
    (
        ["intervene", "x", "--answer", "y"],
        "--answer is used only with --silence, --mean or --patch: leave it out",
    ),
    (["intervene", " ", "--silence", "L1H2"], "the prompt is empty"),
    (["trace", "x", "--rule", "x"], "'--rule': 'x' is not one of"),
]


def test_what_is_wrong_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    """One process for all of them: none may import what is heavy, each says one line."""
    files = {
        "{bad}": ["{"],
        "{answers}": ['{"prompt": "x", "answer": "y"}'],
        "{labelled}": ['{"prompt": "[[a:x]] y", "positive": ["a"], "negative": [[0, 1]]}'] * 8,
    }
    files |= {"{list}": ["[]"], "{place}": ['{"lm_head": "moon"}']}
    maps = ("{list}", "{place}")
    places = {name: tmp_path / f"{name.strip('{}')}.json{'' if name in maps else 'l'}" for name in files}
    for name, lines in files.items():
        places[name].write_text("\n".join(lines))
    code = """
import contextlib, io, json, sys
from headwise.cli.main import main
said = []
for arguments in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(arguments)
    heavy = [name for name in ("torch", "transformers") if name in sys.modules]
    said.append([code, out.getvalue(), err.getvalue(), heavy])
print(json.dumps(said))
"""
    asked = json.dumps([[str(places.get(word, word)) for word in arguments] for arguments, _ in REFUSED])
    done = subprocess.run(
        [sys.executable, "-c", code], input=asked, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for (arguments, message), (code, out, err, heavy) in zip(REFUSED, json.loads(done.stdout), strict=True):
        assert (code, out, heavy) == (2, "", []), (arguments, err)
        assert message in err and err.count("\n") == 1, (arguments, err)


def test_the_usual_place_of_families_is_tried_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "families").write_text("a file")
    assert main(["families", str(tmp_path)]) == 2
    assert f"{str(tmp_path / 'families')!r} cannot be written" in capsys.readouterr().err


def test_every_path_is_tried_as_soon_as_it_is_read() -> None:
    """A new option for a file or folder cannot forget it."""
    later = {
        "prompt_file",
        "runs",
    }  # looked at first thing inside the verb, for they depend on another option
    seen = set()
    for module, _ in VERBS.values():
        for command in import_module(module).app.registered_commands:
            for name, hint in get_type_hints(command.callback, include_extras=True).items():
                if get_origin(hint) is Annotated and "Path" in repr(get_args(hint)[0]) and name not in later:
                    seen.add(name)
                    assert get_args(hint)[1].callback is not None, (module, name)
    assert seen >= {"out", "html", "save", "graphml", "attribution_graph", "features", "texts"}
