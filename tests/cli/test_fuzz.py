"""Every command with files and options that nobody means ends in a sentence and an exit code, never in a traceback."""

from __future__ import annotations

import gzip
import json
import os
import random
import sqlite3
from pathlib import Path

import pytest
from support.commands import ragguard
from support.compared import scored_in_full
from support.stored import scored_store

from ragguard.cli.app import OWN_FAULT

SEED, ROUNDS = 20240229, 300
VALUES = [
    "",
    "-1",
    "0",
    "nan",
    "inf",
    "1e400",
    "9" * 40,
    "x",
    "💥",
    "a,b",
    "\udcff",
    "udcg < nan",
    "../..",
    "-",
    "{}",
]
ENGINES = [
    "http://",
    "http://[::1",
    "ftp://x",
    "hf:",
    "vllm:",
    "http://127.0.0.1:9",
    "nano:x",
    "http://\udcff/v1",
]
PATH: list[str] = []
COMMANDS: dict[str, tuple[int, dict[str, list[str]]]] = {
    "report": (1, {"--html": PATH, "--run": ["r1", "r", "s"], "--most": ["1", "5"]}),
    "compare": (2, {"--fail-if": ["udcg < 0", "t>1"]}),
    "validate": (1, {
        "--metric": ["udcg"], "--markdown": PATH, "--json": PATH,
    }),
    "score": (1, {
        "--store": PATH, "--scorers": ["utility", ""], "--prompts": ["nano", "default"], "--references": PATH,
        "--concurrency": ["1"], "--max-tokens": ["0", "100"], "--out": PATH,
    }),
    "calibrate": (1, {"--max-loss": ["0.1"], "--min-keep": ["2"], "--out": PATH}),
    "questions": (1, {"--engine": ["nano"], "--prompts": ["nano", "default"], "--out": PATH}),
    "doctor": (1, {"--prompts": ["nano"]}),
    "metrics": (1, {}),
    "export-nano": (1, {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that are nothing, damaged, of another program, or of values that make no sense."""
    folder = tmp_path_factory.mktemp("odd")
    good = scored_store(folder / "good.db", map(scored_in_full, range(3)))
    for name, content in {
        "empty": b"", "nul": b"\x00" * 100, "binary": bytes(range(256)), "text": b"hello\n", "bom": b"\xff\xfe{\x00",
        "list.jsonl": b"[1, 2]\n", "null.jsonl": b"null\n", "number.jsonl": b"12e400\n",
        "deep.jsonl": b"[" * 100_000, "wrong.jsonl": b'{"format": "ragguard.run/1", "steps": {"a": 1}}\n',
        "score.jsonl": b'{"format": "ragguard.score/1"}\n', "run.jsonl": b'{"question": 3, "steps": []}\n',
        "bare.jsonl": b'{"question": "q", "steps": [{"query": "q", "passages": ["a"]}]}\n',
        "cut.gz": gzip.compress(b'{"question": "q"}\n' * 500)[:-20], "no.gz": b"not packed",
        "fake.db": b"SQLite format 3\x00" + b"\xff" * 4000, "cut.db": b"SQLite format 3\x00",
        "surrogate.jsonl": b'{"question": "\\ud800", "steps": [{"query": "\\udfff", "passages": ["\\ud800"]}]}\n',
    }.items():  # fmt: skip
        (folder / name).write_bytes(content)
    sqlite3.connect(folder / "foreign.db").execute("CREATE TABLE runs (id TEXT)").connection.close()
    hostile = folder / "hostile.db"
    hostile.write_bytes(Path(good).read_bytes())
    connection = sqlite3.connect(hostile)
    with connection:
        connection.execute("UPDATE runs SET started_ns = x'00', question = x'ff'")
        connection.execute("UPDATE steps SET body = 'x'")
    connection.close()
    (folder / "folder").mkdir()
    (folder / "dataset").mkdir()
    (folder / "dataset" / "queries.jsonl").write_text(json.dumps({"_id": 1, "text": None}))
    os.symlink(folder / "loop", folder / "loop")
    return [
        good,
        *(str(path) for path in sorted(folder.iterdir())),
        str(folder / "missing"),
        "\udcff",
        "a\nb",
        "x" * 5000,
    ]


def words(random_, files, target):
    command = random_.choice(list(COMMANDS))
    count, options = COMMANDS[command]
    pool = [*ENGINES, *files] if command == "doctor" else files
    chosen = [command, *random_.choices(pool, k=random_.choice([0, *[count] * 8, count + 1]))]
    for option, good in random_.sample(sorted(options.items()), random_.randint(0, len(options))):
        paths = [*files, str(target / "new" / "x"), str(target / "out.jsonl"), str(target)]
        likely = good or paths
        chosen += [option, random_.choice(likely if random_.random() < 0.8 else [*VALUES, *paths])]
    if command == "score":
        chosen += random_.choice([["--dry-run"], []])
        if "--store" not in chosen:
            chosen += ["--store", str(target / "s.db")]
    return chosen


def test_no_command_ends_in_a_traceback(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random_ = random.Random(SEED)
    contents = {path: path.read_bytes() for path in map(Path, files[:-4]) if os.path.isfile(path)}
    for _ in range(ROUNDS):
        call = words(random_, files, tmp_path)
        done = ragguard(*call, input="")
        crashed = done.exception if not isinstance(done.exception, SystemExit | None) else None
        assert crashed is None, (call, repr(crashed))
        assert done.exit_code in (0, 1, 2), (call, done.output)
        assert "Traceback" not in done.output, (call, done.output)
        assert OWN_FAULT not in done.output, (call, done.output)
        if done.exit_code:
            assert done.output.strip(), call
        for path, content in contents.items():  # what a command wrote over is as it was for the next one
            if not path.is_file() or path.read_bytes() != content:
                path.write_bytes(content)
