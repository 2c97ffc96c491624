"""What comparisons read from a store is what its records say."""

from support.mean_checks import check_same_means
from support.means import means_of
from support.runs import a_run

from ragguard.records import Failure, Score, ScoredRun
from ragguard.storage.files.runfile import write_scores
from ragguard.storage.source import read_means
from ragguard.storage.sqlite.ledger import ScoringOutcome
from ragguard.storage.sqlite.store import Store


def scored(id, value):
    run = a_run(id, question=f"who is {id}?")
    of = {"run_id": id, "step_id": run.steps[0].id}
    scores = [
        *(
            Score(
                "utility", value + place, "passage", position=place, engine=f"m{place}", prompts="p/1", **of
            )
            for place in range(3)
        ),
        *(Score("udcg", value, "step", id, step.id, reference_source="gold") for step in run.steps),
        Score("udcg", -value, "step", stage="candidates", **of),
        Score("seper", value, "step", reference_source="gold", **of),
        Score("seper", value / 2, "step", reference_source="answer", references_hash="a", **of),
        Score("udcg_context", value, "run", id, stage="candidates"),
    ]
    return ScoredRun(run, scores, [Failure("belief", "Timeout", "too late", True, id)])


def test_a_store_and_its_records_have_the_same_means(tmp_path):
    runs = [scored(f"r{number}", number / 8) for number in range(450)]  # more than two pages
    runs.append(ScoredRun(a_run("nothing was said of it", steps=0)))
    store = Store(tmp_path / "s.db")
    for one in runs:
        store.add_scored([ScoredRun(one.run)])
        store.store_outcome(ScoringOutcome(one.run.id, "x", 1, one.scores, one.failures))
    store.close()
    check_same_means(read_means(tmp_path / "s.db"), map(means_of, runs))


def test_a_score_file_has_them_too(tmp_path):
    one = scored("r1", 0.5)
    write_scores([one], tmp_path / "scores.jsonl")
    [found] = read_means(tmp_path / "scores.jsonl")
    assert found.means == means_of(one).means
    assert (found.question, found.failures) == ("who is r1?", 1)


def test_scores_of_two_versions_are_never_mixed(tmp_path):
    run = a_run("r1", steps=1)
    of = {"run_id": "r1", "step_id": run.steps[0].id, "scorer": "utility"}
    scores = [
        Score("udcg", value, "step", version=version, **of) for value, version in ((0.2, "1-a"), (0.6, "2-b"))
    ]
    one = ScoredRun(run, scores)
    store = Store(tmp_path / "s.db")
    store.add_scored([ScoredRun(run)])
    store.store_outcome(ScoringOutcome("r1", "x", 1, scores, []))
    store.close()
    [found] = read_means(tmp_path / "s.db")
    assert found == means_of(one)
    assert list(found.means.values()) == [0.6]


def test_places_are_counted_beside_passages(tmp_path):
    run = a_run("r1", steps=2)
    run.steps[0].k, run.steps[1].passages = 5, []
    store = Store(tmp_path / "s.db")
    store.add_scored([ScoredRun(run)])
    store.store_outcome(ScoringOutcome("r1", "x", 1, [Score("udcg", 0.5, "step", "r1", run.steps[0].id)], []))
    store.close()
    [found] = read_means(tmp_path / "s.db")
    assert (found.passages, found.places) == (3, 5 + 3)
