"""How long the metrics take, beside the libraries that have the same ones.

    python benchmarks/metrics.py               all peers; ranx in a cached environment of its own
    python benchmarks/metrics.py --no-ranx     without it

10,000 queries of 100 passages, graded 0 to 3, and 8 sub-questions. Every contender gets its input in the form it
takes, made beforehand: arrays here, dictionaries or objects there. Values are compared before times are. The
contenders take turns, round by round, so that a busy moment strikes all; figures are medians over the rounds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import ir_measures
import pytrec_eval
from rich.console import Console
from rich.table import Table
from support.cached_venv import CachedVenv, UnavailableError

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import metrics

ROOT = Path(__file__).parents[1]
ALONE = ", one a call"
PASSAGES, QUESTIONS, DENSITY = 100, 8, 0.1
RANX = CachedVenv("ranx", ("ranx==0.3.21",), "import ranx")
FIRST_CALL = {
    "ragguard": "from ragguard.metrics import ndcg; ndcg([3, 0, 1, 2], 10)",
    "ir_measures": "import ir_measures as i; "
    "list(i.iter_calc([i.nDCG @ 10], {'q': {'a': 3, 'b': 1}}, {'q': {'a': 2.0, 'b': 1.0}}))",
    "pytrec_eval": "import pytrec_eval as p; "
    "p.RelevanceEvaluator({'q': {'a': 3, 'b': 1}}, {'ndcg_cut.10'}).evaluate({'q': {'a': 2.0, 'b': 1.0}})",
    "ranx": "import ranx as r; "
    "r.evaluate(r.Qrels({'q': {'a': 3, 'b': 1}}), r.Run({'q': {'a': 2.0, 'b': 1.0}}), 'ndcg@10')",
}


Turn = tuple[float, Any]
"""The seconds that a round took, and the values it gave."""


@dataclass
class Contender:
    """A library that computes a metric for some queries: `turn` does it once."""

    metric: str
    name: str
    queries: int
    turn: Callable[[], Turn]
    seconds: list[float] = field(default_factory=list)

    @property
    def micros(self) -> float:
        """Microseconds a query, the median over the rounds."""
        return statistics.median(self.seconds) / self.queries * 1e6


def timed(call: Callable[[], Any]) -> Callable[[], Turn]:
    """The call, with the seconds it takes."""

    def turn() -> Turn:
        start = time.perf_counter()
        values = call()
        return time.perf_counter() - start, values

    return turn


@dataclass
class Data:
    """The same judgements in the form of arrays and in that of the peers."""

    gains: np.ndarray
    ratings: np.ndarray
    utilities: np.ndarray
    grades: np.ndarray

    @classmethod
    def make(cls, n: int, seed: int = 0) -> Data:
        """Makes random judgements; every query has a relevant passage and every sub-question an answer."""
        random = np.random.default_rng(seed)
        gains = random.choice(4, (n, PASSAGES), p=[0.8, 0.1, 0.06, 0.04]).astype(float)
        gains[:, 7] = np.maximum(gains[:, 7], 1)
        ratings = np.where(random.random((n, PASSAGES, QUESTIONS)) < DENSITY, 5.0, 0.0)
        ratings[:, 3] = 5
        return cls(gains, ratings, random.uniform(-1, 1, gains.shape), random.integers(1, 6, gains.shape))

    def names(self) -> list[str]:
        """Returns the passages' names in falling order, since the evaluators rank the last name first among equal
        scores."""
        return [f"d{PASSAGES - p:03}" for p in range(PASSAGES)]

    def qrels(self) -> dict[str, dict[str, int]]:
        """The gains as trec_eval takes them."""
        return {
            f"q{i}": dict(zip(self.names(), map(int, row), strict=True)) for i, row in enumerate(self.gains)
        }

    def ranking(self) -> dict[str, dict[str, float]]:
        """The passages in the order they stand."""
        scores = [float(PASSAGES - p) for p in range(PASSAGES)]
        one = dict(zip(self.names(), scores, strict=True))
        return {f"q{i}": dict(one) for i in range(len(self.gains))}

    def subtopics(self) -> dict[str, list[ir_measures.Qrel]]:
        """The ratings as the diversity evaluator takes them, by query."""
        names = self.names()
        return {
            f"q{i}": [ir_measures.Qrel(f"q{i}", names[p], 1, str(q)) for p, q in np.argwhere(table >= 3)]
            for i, table in enumerate(self.ratings)
        }


def ours(data: Data) -> Iterator[Contender]:
    """Times ragguard, batched and one query a call."""
    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "nDCG@10": (lambda x: metrics.ndcg(x, 10), data.gains),
        "UDCG": (metrics.udcg, data.utilities),
        "RA-nWG@10": (lambda x: metrics.ra_nwg(x, x[..., :10], 10), data.grades),
        "α-nDCG@20": (lambda x: metrics.alpha_ndcg(x, k=20), data.ratings),
        "coverage@20": (lambda x: metrics.coverage(x[..., :20, :]), data.ratings),
        "coverage@100": (metrics.coverage, data.ratings),
    }
    for name, (call, values) in calls.items():
        some = sample(values)
        yield Contender(name, "ragguard", len(values), timed(partial(call, values)))
        yield Contender(name, "ragguard" + ALONE, len(some), timed(partial(one_by_one, call, some)))


def peers(data: Data) -> Iterator[Contender]:
    """Times pytrec_eval and ir_measures, with judgements read in beforehand."""
    ranking = data.ranking()
    some = [{query: ranked} for query, ranked in sample(list(ranking.items()))]
    qrels = data.qrels()
    trec = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate
    yield Contender("nDCG@10", "pytrec_eval", len(ranking), timed(partial(trec, ranking)))
    yield Contender("nDCG@10", "pytrec_eval" + ALONE, len(some), timed(partial(one_by_one, trec, some)))
    subtopics = data.subtopics()
    for name, measure, judged in (
        ("nDCG@10", ir_measures.nDCG @ 10, qrels),
        ("α-nDCG@20", ir_measures.alpha_nDCG(cutoff=20, alpha=0.5), subtopics),
        ("coverage@20", ir_measures.StRecall @ 20, subtopics),
    ):
        evaluator = ir_measures.evaluator([measure], judgements(judged))
        yield Contender(
            name, "ir_measures", len(ranking), timed(partial(by_ir_measures, (evaluator, ranking)))
        )
        # An evaluator goes through all the queries it knows, so for one query a call each has its own.
        alone = ({query: judged[query]} for one in some for query in one)
        pairs = [
            (ir_measures.evaluator([measure], judgements(own)), one)
            for own, one in zip(alone, some, strict=True)
        ]
        yield Contender(
            name, "ir_measures" + ALONE, len(some), timed(partial(one_by_one, by_ir_measures, pairs))
        )


def judgements(by_query: dict[str, Any]) -> Any:
    """Returns judgements in the form that ir_measures takes: relevance by query and passage, or one list that names the
    sub-questions."""
    if any(isinstance(judged, dict) for judged in by_query.values()):
        return by_query
    return [judged for some in by_query.values() for judged in some]


def sample(values: Any) -> Any:
    """Returns the first twentieth of the values, which is enough to time single calls."""
    return values[: max(1, len(values) // 20)]


def one_by_one(call: Callable[[Any], Any], queries: Any) -> list[Any]:
    """Calls the function once for each query; returns the results."""
    return [call(query) for query in queries]


def by_ir_measures(pair: tuple[Any, dict[str, dict[str, float]]]) -> dict[str, float]:
    """The values by query of an evaluator and a ranking; it gives them one after another."""
    evaluator, ranking = pair
    return {found.query_id: found.value for found in evaluator.iter_calc(ranking)}


@contextmanager
def ranx(data: Data) -> Iterator[list[Contender]]:
    """Times ranx in its own process and environment; it times itself, so that talking to it costs nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gains.npy"
        np.save(path, data.gains)
        command = [str(RANX.python), "-W", "ignore", str(ROOT / "benchmarks" / "ranx_peer.py"), str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin
            assert child.stdout
            answers = child.stdout

            def turn() -> Turn:
                print("go", file=child.stdin, flush=True)
                seconds, mean = map(float, answers.readline().split())
                return seconds, mean

            yield [Contender("nDCG@10", "ranx", len(data.gains), turn)]
            child.stdin.close()


def first_calls(with_ranx: bool) -> dict[str, float]:
    """Milliseconds from the start of the import to the first value, in a fresh interpreter each."""
    found = {}
    for name, code in FIRST_CALL.items():
        if name == "ranx" and not with_ranx:
            continue
        python = str(RANX.python) if name == "ranx" else sys.executable
        timed = f"import time; s = time.perf_counter(); {code}; print(time.perf_counter() - s)"
        seconds = []
        for _ in range(1 if name == "ranx" else 3):
            with tempfile.TemporaryDirectory() as folder:
                # A cache of its own: what ranx compiles at its first call is compiled again.
                done = subprocess.run(
                    [python, "-c", timed],
                    capture_output=True,
                    text=True,
                    check=True,
                    cwd=ROOT,
                    env={"PATH": "/usr/bin:/bin", "NUMBA_CACHE_DIR": folder, "HOME": folder},
                )
            seconds.append(float(done.stdout.split()[-1]))
        found[name] = round(statistics.median(seconds) * 1e3, 1)
    return found


def play(contenders: list[Contender], rounds: int) -> dict[tuple[str, str], Any]:
    """Rounds of one turn each, after one that does not count; gives the values of the last."""
    values = {}
    for number in range(rounds + 1):
        for contender in contenders:
            seconds, values[contender.metric, contender.name] = contender.turn()
            if number:
                contender.seconds.append(seconds)
    return values


def agreement(values: dict[tuple[str, str], Any]) -> dict[str, float]:
    """The largest difference between ragguard's values and each peer's, by metric and peer."""
    found = {}
    for (metric, name), theirs in values.items():
        if name.startswith("ragguard") or name.endswith(ALONE):
            continue
        own = np.asarray(values[metric, "ragguard"])
        if isinstance(theirs, float):
            gap = abs(own.mean() - theirs)
        else:
            flat = [v["ndcg_cut_10"] if isinstance(v, dict) else v for v in by_query(theirs)]
            gap = float(np.abs(own - flat).max())
        found[f"{metric}, {name}"] = gap
    return found


def by_query(values: dict[str, Any]) -> list[Any]:
    """A peer's values in the order of the queries."""
    return [values[f"q{i}"] for i in range(len(values))]


def targets(micros: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    """Returns the targets, each with the figure that was measured."""
    own = {metric: value for (metric, name), value in micros.items() if name == "ragguard"}
    alone = {metric: value for (metric, name), value in micros.items() if name == "ragguard" + ALONE}
    best = min(
        value
        for (metric, name), value in micros.items()
        if metric == "nDCG@10" and not name.startswith("ragguard") and not name.endswith(ALONE)
    )
    rows = [
        ("nDCG@10, µs a query", own["nDCG@10"], "<=", 3),
        ("nDCG@10, times as fast as the fastest peer", best / own["nDCG@10"], ">=", 5),
        ("α-nDCG@20, µs a query", own["α-nDCG@20"], "<=", 20),
        (
            "α-nDCG@20, times as fast as ir_measures",
            micros["α-nDCG@20", "ir_measures"] / own["α-nDCG@20"],
            ">=",
            4,
        ),
        ("nDCG@10, one query a call, µs", alone["nDCG@10"], "<=", 25),
        ("UDCG, one query a call, µs", alone["UDCG"], "<=", 25),
    ]
    return [
        {
            "what": what,
            "measured": round(value, 2),
            "target": f"{sign} {limit}",
            "met": value <= limit if sign == "<=" else value >= limit,
        }
        for what, value, sign, limit in rows
    ]


def show(figures: dict[str, Any]) -> None:
    """The figures as tables."""
    console = Console()
    table = Table(title=f"µs a query, median of {figures['rounds']} rounds; in brackets: times ragguard's")
    for column in ("metric", "contender", "µs a query", "ratio"):
        table.add_column(column, justify="right" if column in ("µs a query", "ratio") else "left")
    for row in figures["micros"]:
        table.add_row(row["metric"], row["contender"], f"{row['micros']:.2f}", f"{row['ratio']:.1f}")
    console.print(table)
    console.print(f"first value in a fresh interpreter, ms: {figures['first_call_ms']}")
    console.print(f"largest difference of values: {max(figures['differences'].values()):.1e}")
    for row in figures["targets"]:
        console.print(
            f"{'met   ' if row['met'] else 'MISSED'}  {row['what']}: {row['measured']} ({row['target']})"
        )


def main() -> int:
    """Measures, shows and writes the figures; 1 if a value differs from a peer's."""
    known = parser(__doc__)
    known.add_argument("--queries", type=int, default=10_000)
    known.add_argument("--rounds", type=int, default=7)
    known.add_argument("--no-ranx", dest="ranx", action="store_false", help="leave ranx out")
    options = parse(known, queries=200, rounds=1, ranx=False)
    if options.ranx:
        try:
            RANX.install()
        except UnavailableError as reason:
            print(f"ranx is left out: {reason}", file=sys.stderr)
            options.ranx = False
    data = Data.make(options.queries)
    measured_ranx: AbstractContextManager[list[Contender]] = ranx(data) if options.ranx else nullcontext([])
    with measured_ranx as other:
        contenders = [*ours(data), *peers(data), *other]
        values = play(contenders, options.rounds)
    micros = {(c.metric, c.name): c.micros for c in contenders}
    differences = agreement(values)
    figures = {
        "queries": options.queries,
        "passages": PASSAGES,
        "sub_questions": QUESTIONS,
        "rounds": options.rounds,
        "micros": [
            {
                "metric": metric,
                "contender": name,
                "micros": round(value, 3),
                "ratio": round(value / micros[metric, "ragguard"], 2),
            }
            for (metric, name), value in sorted(micros.items())
        ],
        "first_call_ms": first_calls(options.ranx),
        "differences": differences,
        "targets": targets(micros),
    }
    show(figures)
    print(record("metrics", figures))
    return int(max(differences.values()) > 1e-9)


if __name__ == "__main__":
    sys.exit(main())
