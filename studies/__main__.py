"""Runs studies, keeps their figures and writes their pages: `python -m studies distraction belief`.

`--quick` takes seconds and keeps nothing. `--questions N` makes a smaller run, which is printed and not kept; so
is a run on another engine for which the page has no place (`<!-- study: NAME_ENGINE -->`); `--keep` keeps a
smaller run as the study's results. `--cache FILE` keeps answers, so that a run that was stopped goes on.
`--engine` several times makes one table with rows of each (`likelihood`; its place is NAME_ENGINE_ENGINE).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module

from benchmarks import options
from benchmarks.machine import machine, record
from ragguard import connect
from ragguard.analysis.tables import Table
from ragguard.errors import InvalidInput, RagguardError
from studies import STUDIES
from studies.page import has_place, keep, write_page

SEED = 0
OWN_ENGINES = {"real": "smol"}
"""The engines of the main results of studies that read a folder of real data; that of the others is nano."""
QUICK, QUICK_OF = 4, {"coverage": 1}
"""The questions of a study with `--quick`, and of those that take long for each."""


async def run(
    names: Sequence[str], engines: Sequence[str], judge: str | None, questions: int | None, seed: int, *,
    cache: str | None, whole: bool, data: str | None = None, half: str = "",
) -> None:  # fmt: skip
    """Runs each study whole, or over so many questions; `data` is the folder of data sets that a study reads, `half`
    says which part of the sets it has."""
    several = len(engines) > 1
    for name in names if several else ():
        if "together" not in import_module(f"studies.{name}").study.__kwdefaults__:
            raise InvalidInput("engine", list(engines), f"one engine: {name} compares no readers")
    readers = [connect(engine, cache=cache) for engine in engines]
    judged_by = None if judge is None else connect(judge)
    try:
        models = [await reader.info() for reader in readers]
        for name in names:
            study = import_module(f"studies.{name}").study
            size = QUICK_OF.get(name, QUICK) if options.is_quick() else study.__kwdefaults__["questions"]
            size = size if questions is None else questions
            if several:
                study = partial(study, together=True)
            if data is not None and "data" in study.__kwdefaults__:
                study = partial(study, data=data)
            began = time.perf_counter()
            found = [
                await study(reader, judge=judged_by, questions=size, seed=seed, progress=show_progress)
                for reader in readers
            ]
            tables = joined(found, [one.model for one in models]) if several else found[0]
            print("\n".join(table.markdown() for table in tables), flush=True)
            if options.is_quick():
                print(record(f"study_{name}", {"tables": [table.as_dict() for table in tables]}))
                continue
            key = name if list(engines) == [own_engine(name)] else "_".join([name, *engines])
            is_whole = (judge, seed) == (None, SEED) and (whole or questions is None)
            if is_whole and (name not in OWN_ENGINES or data is not None) and has_place(name, key):
                seconds = (
                    None if cache else round(time.perf_counter() - began, 1)
                )  # a part of it, with a cache
                keep(key, {
                    "measured": time.strftime("%Y-%m-%d"), "machine": machine(), "study": name,
                    "engine": "`, `".join(one.fingerprint for one in models),
                    "questions": size, "seed": seed, "seconds": seconds, **({"half": half} if half else {}),
                    "tables": [table.as_dict() for table in tables],
                })  # fmt: skip
                print(f"written: {write_page(name)}", file=sys.stderr)
    finally:
        for one in (*readers, judged_by):
            if one is not None:
                await one.aclose()


def own_engine(name: str) -> str:
    """Returns the engine of a study's main results."""
    return OWN_ENGINES.get(name, "nano")


def joined(found: Sequence[Sequence[Table]], names: Sequence[str]) -> list[Table]:
    """Returns one table for the tables of several readers that are alike, with the reader before each row."""
    return [
        replace(
            alike[0], columns=("reader", *alike[0].columns),
            rows=tuple((name, *row) for name, table in zip(names, alike, strict=True) for row in table.rows),
        )
        for alike in zip(*found, strict=True)
    ]  # fmt: skip


def show_progress(what: str, done: int, of: int, /) -> None:
    """Shows the progress of a study on a terminal."""
    if sys.stderr.isatty():
        print(
            f"\r\x1b[2K{what}: {done:,} of {of:,}",
            end="\n" if done == of else "",
            file=sys.stderr,
            flush=True,
        )


def main() -> None:
    """Reads the command line."""
    parser = options.parser(__doc__)
    parser.add_argument(
        "names", nargs="+", choices=[*STUDIES, "all"], metavar="NAME", help=", ".join(STUDIES)
    )
    parser.add_argument(
        "--engine",
        action="append",
        help="the reader, and the judge unless another is named (nano; of one study with --data its own); several for "
        "one table",
    )
    parser.add_argument(
        "--data", help="the folder of data sets, for studies of other than nano's world (credit, real)"
    )
    parser.add_argument(
        "--half", default="", help="which part of the sets the folder has, kept with the results"
    )
    parser.add_argument("--judge", help="another engine, for relevance and grades")
    parser.add_argument("--questions", type=int, help="fewer or more questions than the study's own number")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--cache", help="a file for the engine's answers, from which a later run goes on")
    parser.add_argument(
        "--keep", action="store_true", help="keep a run of --questions as the study's results"
    )
    given = options.parse(parser)
    names = STUDIES if "all" in given.names else tuple(dict.fromkeys(given.names))
    try:
        asyncio.run(
            run(
                names,
                list(dict.fromkeys(given.engine or [own_engine(names[0]) if given.data else "nano"])),
                given.judge,
                given.questions,
                given.seed,
                cache=given.cache,
                whole=given.keep,
                data=given.data,
                half=given.half,
            )
        )
    except RagguardError as error:
        parser.exit(2, f"python -m studies: {error}\n")


if __name__ == "__main__":
    main()
