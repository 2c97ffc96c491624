"""Examines a model that nobody examined before, briefly, and warns once where it fails."""

from __future__ import annotations

from ragguard.engines.base import Engine
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import RagguardError
from ragguard.runtime.notices import NOTICES
from ragguard.scorers.exam.examination import BRIEF_PROMPTS, examine_briefly
from ragguard.scorers.exam.record import keep_record, known_record, record_file
from ragguard.scorers.exam.verdicts import SWITCH, heeded
from ragguard.text.secret_filter import logger

_log = logger("ragguard")


async def examine_unknown(engine: Engine, prompts: PromptSet | None = None) -> None:
    """Puts the short form to a model without a record, and keeps the outcome, so that it is not asked again.

    Asks nothing of nano, which is for its own world, nor of a server that needs several requests for the labels of one
    prompt. A model that does not answer is left alone: scoring says so.
    """
    if not heeded():
        return
    try:
        info = await engine.info()
        given = prompts or load_prompts(info.prompts)
        if given.name == "nano" or info.label_requests > 1 or known_record(info, given):
            return
        record = await examine_briefly(engine, given)
    except RagguardError as error:
        _log.debug("no short examination: %s", error)
        return
    keep_record(record, record_file(info, given))
    if record.failed:
        NOTICES.once(
            f"short examination: {info.fingerprint}",
            f"{record.remark}: its numbers by label may mean nothing. `ragguard doctor ENGINE --exam` examines it, "
            f"and what it fails in is then not used ({BRIEF_PROMPTS} prompts asked; {SWITCH}=off: none)",
        )
