"""Scoring in parts: an input of any size, cut into parts that any number of processes score, one at a time each.

What calls what, from a command down to a row:

    ragguard score INPUT… --on processes:4 --out DIR          (cli/score_parts.py)
      prepare(inputs, job)          job.py        inputs, folder, settings and engine are checked; nothing is written
        find_runs, plan_parts       plan.py       files → parts: `Part` is a range of one file (part.py)
        PartJob                     settings.py   all settings, picklable; `digest` is part of `Part.key`
        PartFolder.finished         ../store/partfolder.py     parts that are complete are skipped
      carry_out(prepared, executor) job.py        adds up counts (totals.py), then looks for ids that stand twice
        Executor.completed(job, parts) yields PartCounts: `Processes` (processes.py), `RayActors` (on_ray.py)
          in each process: PartScorer(job).start(), then .attempt(part) for each part      (scoring.py)
            read_part               reading.py    the lines of one part, as the reader of run files finds them
            evaluate                ../scorers/evaluation.py   one run → scores and failures, without a service
            PartRows → PartFolder.write           ../store/parttables.py, partfolder.py    Parquet, whole or not at all

What an executor has to know: `PartScorer.start` waits for an engine that restarts; `attempt` counts the attempts at a
part in the folder, so that a part which loses its process too often becomes failures; after PartUnanswered the process
has to end, since its engine may be gone for good; any other error ends the job. Nothing in this package imports pyarrow
before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragguard.runtime.lazy import lazy

if TYPE_CHECKING:
    from ragguard.parts.duplicates import Duplicate as Duplicate
    from ragguard.parts.job import Executor as Executor
    from ragguard.parts.job import JobReport as JobReport
    from ragguard.parts.job import PreparedJob as PreparedJob
    from ragguard.parts.job import carry_out as carry_out
    from ragguard.parts.job import prepare as prepare
    from ragguard.parts.on_ray import RayActors as RayActors
    from ragguard.parts.on_ray import score_on_ray as score_on_ray
    from ragguard.parts.part import Part as Part
    from ragguard.parts.plan import find_runs as find_runs
    from ragguard.parts.plan import plan_parts as plan_parts
    from ragguard.parts.processes import Processes as Processes
    from ragguard.parts.reading import read_part as read_part
    from ragguard.parts.scoring import PartScorer as PartScorer
    from ragguard.parts.settings import PartJob as PartJob
    from ragguard.parts.totals import JobProgress as JobProgress
    from ragguard.parts.totals import JobTotals as JobTotals
    from ragguard.scorers.settings import ScoringSettings as ScoringSettings
    from ragguard.storage.files.partfolder import PartFolder as PartFolder
    from ragguard.storage.files.parttables import PartCounts as PartCounts
    from ragguard.storage.files.parttables import table_schemas as table_schemas

_HOMES = {
    "Duplicate": "ragguard.parts.duplicates",
    "Executor": "ragguard.parts.job",
    "JobProgress": "ragguard.parts.totals",
    "JobReport": "ragguard.parts.job",
    "JobTotals": "ragguard.parts.totals",
    "Part": "ragguard.parts.part",
    "PartCounts": "ragguard.storage.files.parttables",
    "PartFolder": "ragguard.storage.files.partfolder",
    "PartJob": "ragguard.parts.settings",
    "PartScorer": "ragguard.parts.scoring",
    "PreparedJob": "ragguard.parts.job",
    "Processes": "ragguard.parts.processes",
    "RayActors": "ragguard.parts.on_ray",
    "ScoringSettings": "ragguard.scorers.settings",
    "carry_out": "ragguard.parts.job",
    "find_runs": "ragguard.parts.plan",
    "plan_parts": "ragguard.parts.plan",
    "prepare": "ragguard.parts.job",
    "read_part": "ragguard.parts.reading",
    "score_on_ray": "ragguard.parts.on_ray",
    "table_schemas": "ragguard.storage.files.parttables",
}
"""Each name, and the module where it is defined."""

__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES)
