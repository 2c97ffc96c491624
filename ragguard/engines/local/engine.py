"""What engines in this process share: from prompts to token ids, from log-probabilities to answers.

`LocalEngine` is an engine around a `LocalModel`: something that knows token ids only. transformers
and in-process vLLM are two of them; neither knows prompts, labels, templates or thoughts.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.base import EngineInfo, LabelMode, LabelProbs, Prompt, Sample, Samples
from ragguard.engines.labels import LabelPlan, NextTokenAsk, colliding, plan_labels
from ragguard.engines.lazy import Lazy
from ragguard.engines.local.tokens import LocalTokens
from ragguard.engines.prompts import load_prompts
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.requests.verbs import ModelEngine
from ragguard.engines.thinking import ENOUGH_MASS, LETTERS, QUESTION, begun_thought
from ragguard.engines.truncation import fit
from ragguard.errors import EngineProtocolError, EngineRejected, InvalidInput
from ragguard.records import Usage


class Drawn(NamedTuple):
    """One sampled answer as token ids, the end-of-answer token included where it was sampled."""

    ids: list[int]
    logprobs: list[float]
    ended: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a model says of itself once it is there."""

    name: str
    tokens: LocalTokens
    context: int
    identity: str
    """What tells this model's numbers from any other's: its weights, its number type."""
    location: str
    capabilities: frozenset[str]
    notes: tuple[str, ...] = ()


class LocalModel(Protocol):
    """A language model over token ids."""

    kind: str

    async def load(self) -> Loaded:
        """Reads the weights, the first time."""
        ...

    async def logprobs(
        self,
        prompts: Sequence[Sequence[int]],
        asks: Sequence[NextTokenAsk],
        *,
        deadline: float | None,
        priority: int,
    ) -> list[NDArray[np.float64]]:
        """For each ask (prompts, its tokens): the log-probabilities of its tokens after prompt and `after`."""
        ...

    async def draw(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        max_tokens: int,
        temperature: float,
        seed: int | None,
        *,
        deadline: float | None,
        priority: int,
    ) -> list[list[Drawn]]:
        """`n` answers to each prompt; with a seed, by the seed and the prompt's ids alone."""
        ...

    async def aclose(self) -> None:
        """Gives the memory back."""
        ...


@dataclass(frozen=True, slots=True)
class _Settled:
    """What was found out about the model at first use."""

    loaded: Loaded
    info: EngineInfo
    lead: str
    """What stands before a label where the answer begins: nothing, or the space that some models put there."""
    thinks: bool


class LocalEngine(ModelEngine):
    """An engine around a model in this process."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._settled = Lazy(self._settle)
        self._plans: dict[tuple[tuple[str, ...], LabelMode | None], tuple[LabelPlan, LabelMode]] = {}

    async def draws(self, request: DrawRequest) -> Samples:
        """Draws answers to each prompt."""
        began = time.monotonic()
        settled = await self._ready(request.deadline)
        rows, cut = await _fitted(settled.loaded, request.prompts, request.max_tokens)
        # Greedy answers are all the same one.
        wanted = 1 if request.temperature == 0 else request.n
        drawn = await self._model.draw(
            rows, wanted, request.max_tokens, request.temperature, request.seed,
            deadline=request.deadline, priority=request.priority,
        )  # fmt: skip
        answers = await asyncio.to_thread(_read, settled.loaded.tokens, drawn, request.n // wanted)
        written = sum(len(one.ids) for answers in drawn for one in answers)
        return Samples(answers, _usage(rows, written, began), cut)

    async def labels(self, request: LabelRequest) -> LabelProbs:
        """Gives the probability of each label as what follows each prompt."""
        began = time.monotonic()
        settled = await self._ready(request.deadline)
        plan, chosen = self._planned(settled, request.labels, request.mode)
        room = 1 + max(len(ask.after) for ask in plan.asks)
        rows, cut = await _fitted(settled.loaded, request.prompts, room)
        logprobs = await self._model.logprobs(
            rows, plan.asks, deadline=request.deadline, priority=request.priority
        )
        p = np.minimum(plan.combine(logprobs), 1.0)
        if not np.isfinite(p).all():
            raise EngineProtocolError(
                f"{settled.info.model} gave probabilities that are no numbers: its weights may be broken, or too "
                f"large for their number type; load it in another one"
            )
        return LabelProbs(p, mode=chosen, usage=_usage(rows, len(rows), began), truncated=cut)

    async def count_tokens(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        """Returns the tokens of each prompt, its chat template included."""
        settled = await self._ready(deadline)
        return [len(row) for row in await asyncio.to_thread(settled.loaded.tokens.ids, prompts)]

    async def info(self) -> EngineInfo:
        """What the model is; loads it the first time."""
        return (await self._settled.get()).info

    async def aclose(self) -> None:
        """Gives the model's memory back."""
        await self._model.aclose()

    async def _ready(self, deadline: float | None) -> _Settled:
        settled = await self._settled.get(deadline)
        if settled.thinks:
            raise EngineRejected(
                f"{settled.info.model} thinks before it answers and cannot be told not to: "
                "serve it with vLLM and connect to that, which samples its answers and cuts the thoughts off"
            )
        return settled

    def _planned(
        self, settled: _Settled, names: tuple[str, ...], mode: LabelMode | None
    ) -> tuple[LabelPlan, LabelMode]:
        key = (names, mode)
        if key not in self._plans:
            ids = settled.loaded.tokens.following([settled.lead + name for name in names])
            chosen = mode or ("sequence" if colliding(ids) else settled.info.mode)
            self._plans[key] = plan_labels(ids, chosen), chosen
        return self._plans[key]

    async def _settle(self) -> _Settled:
        loaded = await self._model.load()
        tokens = loaded.tokens
        notes = list(loaded.notes)
        if tokens.plain:
            notes.append(
                "the model has no chat template: prompts are plain text; use an instruction-tuned model"
            )
        if tokens.folds:
            notes.append(
                "the chat template knows no system turn: instructions are put before the first user turn"
            )
        if tokens.opened:
            notes.append(
                f"the chat template opens a thought: it is closed at once with {tokens.opened.closes}"
            )
        prompts, question = "default", QUESTION
        if tokens.is_nano():
            prompts = "nano"
            example = load_prompts("nano").render(
                "relevance", ["Ada Berg founded it."], query="Who founded it?"
            )
            question = example.without_cuts()
        thinks, found = await self._silence(tokens, question)
        notes += found
        masses = {lead: await self._mass(tokens, question, lead) for lead in ("", " ")}
        lead = " " if masses[" "] >= ENOUGH_MASS > masses[""] else ""
        if not thinks and masses[lead] < ENOUGH_MASS:
            notes.append(
                f"only {masses[lead]:.0%} of its probability is on the two letters of a plain A/B question: "
                "judgements by label may fail; use an instruction-tuned model"
            )
        mode: LabelMode = "sequence" if tokens.collide(lead) else "first_token"
        if mode == "sequence":
            notes.append(
                "NO-RESPONSE begins with the same token as a common word: its whole sequence is asked for"
            )
        seen = repr((loaded.identity, tokens.text(question), lead))
        info = EngineInfo(
            model=loaded.name, kind=self._model.kind,
            fingerprint=f"{self._model.kind}/{loaded.name}/{mode}/{hashlib.sha256(seen.encode()).hexdigest()[:12]}",
            mode=mode, prompts=prompts, context=loaded.context, capabilities=loaded.capabilities,
            location=loaded.location, notes=tuple(notes),
        )  # fmt: skip
        return _Settled(loaded, info, lead, thinks)

    async def _silence(self, tokens: LocalTokens, question: Prompt) -> tuple[bool, list[str]]:
        """Whether the model still thinks first after all was tried, and what was done about it."""
        thought = begun_thought(await self._beginning(tokens, question))
        if thought is None:
            return False, []
        before = tokens.ending
        tokens.ending = before + thought.empty
        if begun_thought(await self._beginning(tokens, question)) is None:
            return False, [
                f"the model thinks first ({thought.opens}): an empty thought is put before its answer"
            ]
        tokens.ending = before
        return True, [f"the model thinks first ({thought.opens}) and cannot be told not to"]

    async def _beginning(self, tokens: LocalTokens, question: Prompt) -> str:
        """The first words of the most probable answer, special tokens shown."""
        ((one,),) = await self._model.draw(tokens.ids([question]), 1, 8, 0.0, None, deadline=None, priority=0)
        return tokens.decode_all(one.ids)

    async def _mass(self, tokens: LocalTokens, question: Prompt, lead: str) -> float:
        plan = plan_labels(tokens.following([lead + letter for letter in LETTERS]), "first_token")
        logprobs = await self._model.logprobs(tokens.ids([question]), plan.asks, deadline=None, priority=0)
        return float(plan.combine(logprobs).sum())


async def _fitted(
    loaded: Loaded, asked: Sequence[Prompt], room: int
) -> tuple[list[list[int]], dict[int, int]]:
    """The ids of all prompts, each short enough to leave `room` tokens for what follows."""
    # A thread, as tokenizing many long passages would hold the event loop up.
    rows = await asyncio.to_thread(loaded.tokens.ids, asked)
    limit = loaded.context - room
    if empty := [index for index, row in enumerate(rows) if not row]:
        raise InvalidInput(
            f"prompt {empty[0]}", asked[empty[0]].messages, "text of which the model makes tokens"
        )
    if all(len(row) <= limit for row in rows):
        return rows, {}

    async def count(some: Sequence[Prompt]) -> list[int]:
        return [len(row) for row in await asyncio.to_thread(loaded.tokens.ids, some)]

    fitting, cut = await fit(asked, count, limit)
    return await asyncio.to_thread(loaded.tokens.ids, fitting), cut


def _read(tokens: LocalTokens, drawn: Sequence[Sequence[Drawn]], times: int) -> list[list[Sample]]:
    """Each answer as text. The end-of-answer token is none of it: its log-probability goes, too, unless alone."""
    return [
        [
            Sample(
                tokens.decode(one.ids),
                tuple(one.logprobs[:-1] if one.ended and len(one.ids) > 1 else one.logprobs),
                one.ended,
            )
            for one in answers
        ]
        * times
        for answers in drawn
    ]


def _usage(rows: Sequence[Sequence[int]], written: int, began: float) -> Usage:
    return Usage(1, len(rows), sum(len(row) for row in rows), written, seconds=time.monotonic() - began)
