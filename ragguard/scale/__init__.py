"""Scoring in parts: an input of any size is cut into parts, and several processes each score one part at a time.

`prepare` (job.py) checks a `PartJob` and plans its parts (part.py), `carry_out` hands them to the workers of an
executor: `Processes` (part_scorer.py), or `RayActors` of `ragguard_ray`. There `PartScorer` (part_scorer.py) scores
the runs of a part and writes them into the `PartFolder` (../storage/files/partfolder.py).
"""

from ragguard.scale.job import PartJob, carry_out, prepare
from ragguard.scale.part_scorer import Processes
from ragguard.scorers.settings import ScoringSettings
from ragguard.storage.files.partfolder import PartFolder

__all__ = ["PartFolder", "PartJob", "Processes", "ScoringSettings", "carry_out", "prepare"]
