"""How much code there is, and how much of it one retrieval and one prompt pass through. Counts, no times.

    python benchmarks/house.py [FOLDER]

FOLDER is a checkout of this project, of any version: the way to compare two. Counted are

- files and lines of each part, blank lines and comments included;
- class names that more than one file of the package and its integrations define;
- names that `ragguard` and its public modules export;
- the places of each fact: in how many files a rule stands (`places.py` has the facts and their signs);
- on the way of one retrieval (a LangChain retriever under RagGuardCallback, from the call to the queue) and of one
  prompt (label probabilities of one prompt at an OpenAI-compatible server): the files and classes of our own that are
  entered, the frames of our own on the deepest stack, and all calls of our own;
- on the whole way of one retrieval (`rg.run`, `run.retrieved`, scored by utility on nano, stored, `rg.flush`): the
  same on all threads, the functions that are entered, the deepest stack of each thread, and SQLite's transactions.
  Scoring runs wholly only after a warm-up, so the second run is counted. `--list` names files and functions.
"""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.options import parse, parser
from benchmarks.places import places

HERE = Path(__file__).resolve().parents[1]
FOLDERS = ("ragguard", "integrations", "studies", "training", "tests", "benchmarks", "docs")
FRONT_DOORS = ("ragguard", "ragguard.engines", "ragguard.guard", "ragguard.scorers", "ragguard.telemetry",
               "ragguard_langchain", "ragguard_llamaindex")  # fmt: skip

WALKED = """
import asyncio, json, sys
from pathlib import Path
root = Path(sys.argv[1])
ours = tuple(str(root / name) + "/" for name in ("ragguard", "integrations"))
kinds, files, deepest, calls = set(), set(), 0, 0

def of_ours(frame):
    return frame.f_code.co_filename.startswith(ours) and frame.f_code.co_name != "<module>"

def see(frame, event, argument):
    global deepest, calls
    if event != "call" or not of_ours(frame):
        return
    kind, dot, _ = frame.f_code.co_qualname.split(".<locals>")[0].rpartition(".")
    calls += 1
    files.add(frame.f_code.co_filename)
    if dot:  # a method, or what is written in one; a comprehension in a function is of no class
        kinds.add((frame.f_code.co_filename, kind))
    depth, above = 0, frame
    while above is not None:
        depth += of_ours(above)
        above = above.f_back
    deepest = max(deepest, depth)

def watched(work):
    sys.setprofile(see)
    try:
        return work()
    finally:
        sys.setprofile(None)

def printed():
    print(json.dumps({"classes": len(kinds), "files": len(files), "frames": deepest, "calls": calls}))
"""
RETRIEVAL = (
    WALKED
    + """
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from ragguard import RagGuard
from ragguard_langchain import RagGuardCallback

class FixedRetriever(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content=f"text {number}", metadata={"page": number}) for number in range(20)]

rg = RagGuard("nano", scorers=(), store=None)
config = {"callbacks": [RagGuardCallback(rg)]}
retriever = FixedRetriever()
retriever.invoke("warm up", config)
watched(lambda: retriever.invoke("who founded it?", config))
rg.close()
printed()
"""
)
CLIMBS = """
import json, sys, threading
from pathlib import Path
root, floors = Path(sys.argv[1]), FLOORS
package, integrations = str(root / "ragguard") + "/", str(root / "integrations") + "/"
watching, climbs = False, set()

def floor(frame):
    file = frame.f_code.co_filename
    if file.startswith(integrations):
        return 100
    if not file.startswith(package) or frame.f_code.co_name == "<module>":
        return -1
    return floors.get("ragguard." + file.removeprefix(package).split("/")[0].removesuffix(".py"), -1)

def see(frame, event, argument):
    if not watching or event != "call" or (here := floor(frame)) < 0:
        return
    above = frame.f_back
    while above is not None and floor(above) < 0:
        above = above.f_back
    if above is not None and floor(above) < here:
        climbs.add(f"{above.f_code.co_qualname} > {frame.f_code.co_qualname}")

threading.setprofile(see)
sys.setprofile(see)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from ragguard import RagGuard
from ragguard_langchain import RagGuardCallback

class FixedRetriever(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content=f"text {number}", metadata={"page": number}) for number in range(20)]

rg = RagGuard(engine=None, store=None)
config = {"callbacks": [RagGuardCallback(rg)]}
FixedRetriever().invoke("warm up", config)
rg.flush(30)
watching = True
FixedRetriever().invoke("who founded it?", config)
while not any(run.question == "who founded it?" for run in rg.runs()):
    pass
watching = False
sys.setprofile(None)
rg.close()
print(json.dumps(sorted(climbs)))
"""
"""A document's way from LangChain's callback to the store, on all threads: the calls from a lower floor to a higher
one, each pair of functions once. The floors are those of the imports."""
END_TO_END = """
import json, re, sqlite3, sys, tempfile, threading
from pathlib import Path
root = Path(sys.argv[1])
ours = tuple(str(root / name) + "/" for name in ("ragguard", "integrations"))
watching = False
kinds, functions, deepest, transactions = set(), set(), {}, []

def of_ours(frame):
    return frame.f_code.co_filename.startswith(ours) and frame.f_code.co_name != "<module>"

def see(frame, event, argument):
    if not watching or event != "call" or not of_ours(frame):
        return
    name = frame.f_code.co_qualname.split(".<locals>")[0]
    kind, dot, _ = name.rpartition(".")
    file = frame.f_code.co_filename
    functions.add((file, name))
    if dot:
        kinds.add((file, kind))
    stack, above = [], frame
    while above is not None:
        if of_ours(above):
            stack.append(above.f_code.co_qualname)
        above = above.f_back
    thread = re.sub(r"[-_][0-9]+( .*)?$", "", threading.current_thread().name)
    if len(stack) > len(deepest.get(thread, ())):
        deepest[thread] = stack[::-1]

connect = sqlite3.connect

def watched_connect(*args, **kwargs):
    connection = connect(*args, **kwargs)
    connection.set_trace_callback(
        lambda statement: transactions.append(statement) if watching and statement.startswith("BEGIN") else None
    )
    return connection

sqlite3.connect = watched_connect
threading.setprofile(see)

from ragguard import Passage, RagGuard

with tempfile.TemporaryDirectory() as folder:
    rg = RagGuard("nano", scorers=("utility",), store=Path(folder) / "house.db")

    def retrieve(question):
        with rg.run(question) as run:
            run.retrieved(question, [Passage("Ada Berg founded the firm Kvist in Oslo.")])
        assert rg.flush(60)

    retrieve("who founded the firm Holm?")
    sys.setprofile(see)
    watching = True
    retrieve("who founded the firm Kvist?")
    watching = False
    sys.setprofile(None)
    rg.close()
files = {file for file, _ in functions}
print(json.dumps({
    "files": len(files), "classes": len(kinds), "functions": len(functions),
    "deepest": {name: len(stack) for name, stack in sorted(deepest.items())},
    "transactions": len(transactions), "writes": transactions.count("BEGIN IMMEDIATE"),
    "stacks": deepest,
    "entered": sorted(f"{Path(file).relative_to(root)} {name}" for file, name in functions),
}))
"""
STAYS = """
import dataclasses, inspect, json, sys, threading
from pathlib import Path
root, mark = Path(sys.argv[1]), "Kvist"
package = str(root / "ragguard") + "/"
watching, computed, stays, looks = False, False, {}, {}

def holds(value, depth=0):
    if isinstance(value, str):
        return mark in value
    if depth > 5 or isinstance(value, (int, float, bytes, type(None))):
        return False
    if isinstance(value, dict):
        return any(holds(item, depth + 1) for item in (*list(value)[:4], *list(value.values())[:4]))
    if isinstance(value, (list, tuple, set)):
        return any(holds(item, depth + 1) for item in list(value)[:4])
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and type(value).__name__ in CARRIERS:
        return any(holds(getattr(value, one.name, None), depth + 1) for one in dataclasses.fields(value))
    return False

def see(frame, event, argument):
    global watching, computed
    code = frame.f_code
    if computed or event not in ("call", "return") or not code.co_filename.startswith(package):
        return
    name, file = code.co_qualname, code.co_filename.removeprefix(package)
    watching = watching or name == "Utility.score"
    if not watching or "<" in name.split(".")[-1]:
        return
    waits = bool(code.co_flags & inspect.CO_COROUTINE)
    if event == "return":  # a function that returns a coroutine hands the prompt on, too
        if file in looks and inspect.iscoroutine(argument):
            stays.setdefault(file, looks.pop(file))
        return
    given = [frame.f_locals.get(one) for one in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
    computes = file.startswith("engines/llama") and name.endswith("logprobs")
    if computes or any(holds(one) for one in given):
        if waits or computes:
            looks.pop(file, None)
            stays.setdefault(file, name)
        elif file not in stays:
            looks.setdefault(file, name)
    computed = computes

threading.setprofile(see)
from ragguard import Passage, RagGuard

rg = RagGuard("nano", scorers=("utility",), store=None)
with rg.run("who founded the firm Kvist?") as run:
    run.retrieved("who founded the firm Kvist?", [Passage("Ada Berg founded the firm Kvist in Oslo.")])
assert rg.flush(60)
rg.close()
print(json.dumps([stays, looks]))
"""
"""The stays of a prompt on its way through utility, from the scorer to the model: the files in which it waits for its
answer (asynchronous functions that are given its text, in a text, a prompt, a question or a request), and the model.
Apart from these, the files that only look at it and return, such as to render it, to key it or to count its tokens.
Each file with its first such function. What each stay is for: `passages` puts the questions of a passage, `asker` makes
one wave of those of all scorers, `engine` is the seam between verbs and models, `cache` asks nothing twice, `coalesce`
makes batches, `priority` bounds what is in flight, `retry` repeats, `token_model` turns labels into tokens,
`local_engine` computes in a thread, the tokenizer and the network are the model."""
CARRIERS = ("Prompt", "Message", "LabelQuestion", "LabelRequest", "Template", "Passage")
PROMPT = (
    WALKED
    + '''
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ragguard import connect

class Server(BaseHTTPRequestHandler):
    """An OpenAI-compatible server of one model."""
    protocol_version = "HTTP/1.1"
    def log_message(self, *args):
        pass
    def say(self, data, status=200):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path.endswith("/models"):
            self.say({"data": [{"id": "model", "object": "model"}]})
        else:
            self.say({"detail": "Not Found"}, 404)
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self.path.endswith("/chat/completions"):
            return self.say({"detail": "Not Found"}, 404)
        top = [{"token": token, "logprob": p, "bytes": list(token.encode())} for token, p in (("A", -0.5), ("B", -1.0))]
        first = {**top[0], "top_logprobs": top}
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        message = {"role": "assistant", "content": "A"}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": [first]}}
        self.say({"id": "1", "object": "chat.completion", "model": "model", "choices": [choice], "usage": usage})

server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()

async def ask():
    engine = connect(f"http://127.0.0.1:{server.server_port}/v1")
    await engine.label_probs(["Warm up?"], ["A", "B"])
    sys.setprofile(see)
    await engine.label_probs(["Who founded it?"], ["A", "B"])
    sys.setprofile(None)
    await engine.aclose()

asyncio.run(ask())
server.shutdown()
printed()
'''
)


def folders(root: Path) -> dict[str, list[int]]:
    """Returns the files and lines of Python of each part; the package by its folders, too."""
    found = {name: root / name for name in FOLDERS if (root / name).is_dir()}
    found |= {
        f"ragguard/{path.name}": path
        for path in sorted((root / "ragguard").iterdir())
        if path.is_dir() and any(path.rglob("*.py"))
    }
    return {
        name: [len(files), sum(map(lines, files))]
        for name, where in found.items()
        if (files := python(where))
    }


def python(where: Path) -> list[Path]:
    """The files of Python under a folder."""
    return sorted(path for path in where.rglob("*.py") if "_build" not in path.parts)


def lines(path: Path) -> int:
    """Returns how many lines a file has."""
    return path.read_text(encoding="utf-8").count("\n")


def double_names(root: Path) -> dict[str, int]:
    """Names of classes that are defined more than once, and how often."""
    files = [path for folder in ("ragguard", "integrations") for path in python(root / folder)]
    names = Counter(
        node.name
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in sorted(names.items()) if count > 1}


def in_checkout(root: Path, code: str) -> Any:
    """Runs a program that imports from this checkout alone; returns the JSON that the program prints."""
    paths = f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'integrations')!r}]\n"
    done = subprocess.run(
        [sys.executable, "-c", paths + code, str(root)], capture_output=True, text=True, cwd=root, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def public_names(root: Path) -> dict[str, int]:
    """Returns how many names each front door exports."""
    code = (
        "import importlib, json\n"
        f"found = {{name: len(importlib.import_module(name).__all__) for name in {FRONT_DOORS!r}}}\n"
        "print(json.dumps(found))"
    )
    return dict(in_checkout(root, code))


def stays_of() -> str:
    """Returns the program that counts the stays of a prompt."""
    return STAYS.replace("CARRIERS", repr(CARRIERS))


def floors(root: Path) -> dict[str, int]:
    """Returns the floors to which a checkout's imports are held."""
    return dict(runpy.run_path(str(root / "tests" / "support" / "floors.py"))["FLOORS"])


def main() -> None:
    """Prints the counts of a checkout as a table of Markdown."""
    options = parser(__doc__)
    options.add_argument("folder", nargs="?", type=Path, default=HERE, help="another checkout")
    options.add_argument("--list", action="store_true", help="name files and functions")
    given = parse(options)
    root = given.folder.resolve()
    print("| what | files | lines |\n|---|---|---|")
    for name, (files, count) in folders(root).items():
        print(f"| `{name}` | {files} | {count:,} |")
    double, doors = double_names(root), public_names(root)
    print(
        f"\nclass names that exist twice: {len(double)} {', '.join(f'{name} ({n})' for name, n in double.items())}"
    )
    print(f"public names: {sum(doors.values())} ({', '.join(f'{name} {n}' for name, n in doors.items())})")
    print("\n| fact | places | where |\n|---|---|---|")
    for fact, decided_in in places(root).items():
        print(f"| {fact} | {len(decided_in)} | {', '.join(decided_in)} |")
    print("\n| on the way of | classes | files | frames | calls |\n|---|---|---|---|---|")
    for name, code in (("one retrieval", RETRIEVAL), ("one prompt", PROMPT)):
        way = in_checkout(root, code)
        print(f"| {name} | {way['classes']} | {way['files']} | {way['frames']} | {way['calls']} |")
    climbs = in_checkout(root, CLIMBS.replace("FLOORS", repr(floors(root))))
    print(
        f"\na document's way from LangChain's callback climbs back {len(climbs)} times: {'; '.join(climbs)}"
    )
    for what, found in zip(("waits in", "is looked at in"), in_checkout(root, stays_of()), strict=True):
        named = ", ".join(f"{file} ({name})" for file, name in found.items())
        print(f"\na prompt on its way through utility {what} {len(found)} files: {named}")
    whole = in_checkout(root, END_TO_END)
    stacks = ", ".join(f"{name} {depth}" for name, depth in whole["deepest"].items())
    print(
        f"\none retrieval from end to end: {whole['files']} files, {whole['classes']} classes, "
        f"{whole['functions']} functions; {whole['transactions']} transactions, {whole['writes']} of them writes; "
        f"deepest stacks: {stacks}"
    )
    if given.list:
        for thread, stack in whole["stacks"].items():
            print(f"\n{thread}: {' > '.join(stack)}")
        print("\n" + "\n".join(whole["entered"]))


if __name__ == "__main__":
    main()
