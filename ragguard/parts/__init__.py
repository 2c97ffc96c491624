"""Scoring in parts: an input of any size, cut into parts that any number of processes score, one at a time each.

What calls what, from a command down to a row:

    ragguard score INPUT… --on processes:4 --out DIR          (cli/score_parts.py)
      prepare(inputs, job)          driver.py       inputs, folder, settings and engine are checked; nothing is written
        find_runs, plan_parts       part.py         files → parts: `Part` is a range of one file
        PartJob                     part_job.py     all settings, picklable; `digest` is part of `Part.key`
        PartFolder.finished         ../storage/files/partfolder.py     parts that are complete are skipped
      carry_out(prepared, executor) driver.py       hands parts to workers, counts attempts
        Executor.worker(job) makes a worker: `Processes` (processes.py), `RayActors` (integrations/ragguard_ray)
          in each worker: PartScorer(job).start(), then .attempt(part) for each part      (part_scorer.py)
            read_part               part.py         the lines of one part, as the reader of run files finds them
            evaluate                ../scorers/evaluation.py   one run → scores and failures, without a service
            PartFolder.write                ../storage/files/partfolder.py    whole or not at all
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragguard.runtime import lazy

if TYPE_CHECKING:
    from ragguard.parts.driver import JobReport as JobReport
    from ragguard.parts.driver import PreparedJob as PreparedJob
    from ragguard.parts.driver import carry_out as carry_out
    from ragguard.parts.driver import prepare as prepare
    from ragguard.parts.part import Part as Part
    from ragguard.parts.part import find_runs as find_runs
    from ragguard.parts.part import plan_parts as plan_parts
    from ragguard.parts.part import read_part as read_part
    from ragguard.parts.part_job import PartJob as PartJob
    from ragguard.parts.part_scorer import PartScorer as PartScorer
    from ragguard.parts.processes import Processes as Processes
    from ragguard.scorers.settings import ScoringSettings as ScoringSettings
    from ragguard.storage.files.partfolder import PartFolder as PartFolder

_HOMES = {
    "JobReport": "ragguard.parts.driver",
    "Part": "ragguard.parts.part",
    "PartFolder": "ragguard.storage.files.partfolder",
    "PartJob": "ragguard.parts.part_job",
    "PartScorer": "ragguard.parts.part_scorer",
    "PreparedJob": "ragguard.parts.driver",
    "Processes": "ragguard.parts.processes",
    "ScoringSettings": "ragguard.scorers.settings",
    "carry_out": "ragguard.parts.driver",
    "find_runs": "ragguard.parts.part",
    "plan_parts": "ragguard.parts.part",
    "prepare": "ragguard.parts.driver",
    "read_part": "ragguard.parts.part",
}
"""Each name, and the module where it is defined."""

__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES)
