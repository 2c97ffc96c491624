"""Language models that show their tokens: their protocol, their profile, and how they answer requests.

`find_out` finds the profile: chat template, thinking, and the way to read labels. Prompts become questions about
tokens, and log-probabilities the probabilities of labels. A prompt that does not fit is cut where it allows that. This
code is the same for every model, behind a server or in this process; one that ships with the package brings its
profile along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from ragguard.engines.base import EngineInfo, LabelMode, Prompt, Sample
from ragguard.engines.chat_frames import LETTERS, QUESTION, SpecialTokens, begun_thought, open_thought
from ragguard.engines.labels import ABSTENTION, CONTRASTS, LabelRequest, checked_logprob, colliding
from ragguard.engines.prompts import load_prompts
from ragguard.engines.requests import (
    ContinuationRequest,
    DrawRequest,
    PromptRequest,
    Reply,
    Request,
    Value,
    samples_value,
)
from ragguard.engines.truncation import fit
from ragguard.errors import EngineProtocolError, EngineRejected, PromptTooLong
from ragguard.records import Usage

ENOUGH_MASS = 0.5
"""The least probability that a model puts on the two letters of a plain A/B question if it answers by label."""
MARKER = "ragguardnano"
"""A word that only nano's vocabulary has as one token: an exported nano is recognised by it behind any server."""
_MOST_TEXTS = 10_000
EXACT_CAPABILITIES = frozenset(
    {"exact_labels", "sequence", "sample_logprobs", "continuations", "batch", "n_samples", "seed"}
)
"""The capabilities of every model that shows its tokens."""

Ids: TypeAlias = Sequence[int]
Rendered: TypeAlias = str | list[int]
"""A prompt as the model gets it: text, or the ids of its tokens."""


class Tokens(Protocol):
    """A model's tokenizer and chat template. It may be a server's, so that each call may be a request."""

    plain: bool
    """True where there is no template: the messages themselves are the prompt."""
    folds: bool
    """True where the template knows no system turn: its text is put before the first user turn."""
    ending: str
    """The text after the template, where the answer begins."""
    special: SpecialTokens
    """The model's special tokens, as far as they are shown."""
    ends: frozenset[int]
    """The ids of the tokens that end an answer, as far as they are known."""

    async def render(self, prompts: Sequence[Prompt], deadline: float | None = None) -> Sequence[Rendered]:
        """Returns each prompt as the model gets it, `ending` included."""
        ...

    async def continuations(
        self, texts: Sequence[str], deadline: float | None = None
    ) -> list[tuple[int, ...]]:
        """Returns the ids of texts as they follow a prompt: a word's tokens depend on the text before it."""
        ...

    async def tokens(self, text: str, deadline: float | None = None) -> list[int]:
        """Returns the ids of a text that stands alone."""
        ...

    async def text_of(self, ids: Sequence[int], deadline: float | None = None) -> str:
        """Returns the text of ids, special tokens included."""
        ...


class TokenModel(Protocol):
    """A language model that shows its tokens: on a vLLM server, or in this process."""

    @property
    def tokens(self) -> Tokens:
        """The tokenizer and the chat template."""
        ...

    async def report(self, question: Prompt, letters: Ids) -> EngineInfo:
        """Returns what the model reports about itself; a server is tried with a question about these tokens.

        The fingerprint is a text that differs for models that give different numbers: `find_out` adds to it.
        """
        ...

    async def rows(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[list[int]]:
        """Returns the ids of each prompt, template and ending included, without holding an event loop up."""
        ...

    async def logprobs(
        self, request: PromptRequest, texts: Sequence[Ids], then: Ids
    ) -> tuple[list[list[float]], Usage]:
        """Returns for each prompt the log-probabilities of the tokens of its text, which follows it and may be empty,
        and behind them those of each token of `then` as the next one.

        Raises PromptTooLong where a prompt does not fit together with its text and one token more.
        """
        ...

    async def draw(self, request: DrawRequest) -> tuple[list[list[Sample]], Usage]:
        """Returns the answers to each prompt. With a seed they depend on it and on the prompt alone."""
        ...

    async def first_words(self, prompt: Prompt) -> str:
        """Returns how the most probable answer begins, special tokens included."""
        ...


_Ask: TypeAlias = Callable[[Any], Awaitable[tuple[list[Value], Usage]]]
"""Asks a model a request of one kind; returns the values of the prompts without the tokens that were cut from each."""


@dataclass(frozen=True, slots=True)
class ProfiledModel:
    """A `FoundModel`: answers requests by a model that shows its tokens, with the model's profile."""

    model: TokenModel
    info: EngineInfo
    prefix: str = ""
    """The text before a label where the answer begins: nothing, or the space that some models put there."""
    thinks: bool = False
    """True where the model thinks before it answers and that cannot be switched off: its first tokens are no labels."""
    _ids: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)
    """The ids of labels and texts as they follow a prompt, which may cost a request each."""

    async def answer(self, request: Request) -> Reply:
        """Answers a request.

        Special tokens in the prompts become plain text. Counting tokens may cost a request for each prompt, so the
        model is asked first, and refuses a prompt that is too long, which is then cut where it allows that.
        """
        if self.thinks:
            raise EngineRejected(
                f"{self.info.model} at {self.info.location} thinks before it answers, which cannot be switched off: "
                "serve it with vLLM and use connect(), which samples its answers and cuts the thoughts off"
            )
        if isinstance(request, LabelRequest):
            ask, output = await self._labels(request)
        elif isinstance(request, ContinuationRequest):
            ask, output = await self._texts(request)
        else:
            assert isinstance(request, DrawRequest)
            ask, output = self._draw, request.max_tokens
        prompts, cut = self.model.tokens.special.neutralised(request.prompts), dict[int, int]()

        async def count(some: Sequence[Prompt]) -> list[int]:
            return list(map(len, await self.model.rows(some, request.deadline)))

        try:
            rows, usage = await ask(request.with_prompts(prompts))
        except PromptTooLong as error:
            context = self.info.context or error.limit
            if context is None:
                raise
            prompts, cut = await fit(prompts, count, context - output)
            rows, usage = await ask(request.with_prompts(prompts))

        return Reply([(*row, cut.get(index, 0)) for index, row in enumerate(rows)], usage)

    async def _labels(self, request: LabelRequest) -> tuple[_Ask, int]:
        """Returns how labels are asked for: by their first tokens or as whole texts; those that begin with the same
        token as whole texts, unless the request has a mode. And how many tokens each prompt must leave free."""
        ids = await self._ids_of(request.labels, request.deadline)
        mode: LabelMode = request.mode or ("sequence" if colliding(ids) else self.info.mode)
        firsts = sorted({label[0] for label in ids})

        async def ask(request: LabelRequest) -> tuple[list[Value], Usage]:
            if mode == "first_token":
                rows, usage = await self.model.logprobs(request, [()] * len(request.prompts), firsts)
                table = np.array(rows)[:, [firsts.index(label[0]) for label in ids]]
            else:
                each = request.with_prompts([prompt for prompt in request.prompts for _ in ids])
                rows, usage = await self.model.logprobs(each, ids * len(request.prompts), ())
                table = np.array([sum(row) for row in rows]).reshape(-1, len(ids))
            p = np.minimum(np.exp(table.astype(np.float64)), 1.0)
            if not np.isfinite(p).all():
                raise EngineProtocolError(
                    f"{self.info.model} gave probabilities that are no numbers: its weights may be broken, or too "
                    f"large for their number type; load it in another one"
                )
            return [(tuple(row), True, mode, None, None) for row in p.tolist()], usage

        return ask, 1 if mode == "first_token" else 1 + max(map(len, ids))

    async def _texts(self, request: ContinuationRequest) -> tuple[_Ask, int]:
        """Returns how given texts are asked for, and how many tokens each prompt must leave free."""
        ids = await self._ids_of([prompt.text for prompt in request.prompts], request.deadline)
        ends = sorted(self.model.tokens.ends)

        async def ask(request: ContinuationRequest) -> tuple[list[Value], Usage]:
            rows, usage = await self.model.logprobs(request, ids, ends)
            values = list[Value]()
            for row, text in zip(rows, ids, strict=True):
                logprobs = tuple(map(checked_logprob, row))
                end = float(np.logaddexp.reduce(logprobs[len(text) :])) if ends else None
                values.append((logprobs[: len(text)], end))
            return values, usage

        return ask, 1 + max(map(len, ids))

    async def _ids_of(self, texts: Sequence[str], deadline: float | None) -> list[tuple[int, ...]]:
        """Returns the ids of texts as they begin an answer."""
        if new := [text for text in dict.fromkeys(texts) if text not in self._ids]:
            ids = await self.model.tokens.continuations([self.prefix + text for text in new], deadline)
            if len(self._ids) + len(new) > _MOST_TEXTS:
                self._ids.clear()
                return await self._ids_of(texts, deadline) if len(new) < len(set(texts)) else ids
            self._ids.update(zip(new, ids, strict=True))
        return [self._ids[text] for text in texts]

    async def _draw(self, request: DrawRequest) -> tuple[list[Value], Usage]:
        # All greedy answers are equal.
        distinct = replace(request, n=1) if request.temperature == 0 else request
        rows, usage = await self.model.draw(distinct)
        return [(samples_value(row) * (request.n // distinct.n),) for row in rows], usage


async def find_out(model: TokenModel) -> ProfiledModel:
    """Returns a model with its profile; it is asked some small questions."""
    tokens, notes = model.tokens, []
    if tokens.plain:
        notes.append(
            "the model has no chat template: the prompt set `plain` asks it; an instruction-tuned model judges better"
        )
    if tokens.folds:
        notes.append(
            "the chat template knows no system turn: instructions are put before the first user turn"
        )
    prompts, question = "plain" if tokens.plain else "default", QUESTION
    if await _is_nano(tokens):
        prompts = "nano"
        example = load_prompts("nano").render("relevance", ["Ada Berg founded it."], query="Who founded it?")
        question = example.without_cuts()
    (rendered,) = await tokens.render([question])
    opened = open_thought(rendered if isinstance(rendered, str) else await tokens.text_of(rendered))
    if opened:
        tokens.ending = f"\n{opened.closes}\n\n"
        notes.append(f"the chat template opens a thought: it is closed at once with {opened.closes}")
    letters = {
        prefix: await tokens.continuations([prefix + letter for letter in LETTERS]) for prefix in ("", " ")
    }
    info = await model.report(question, sorted({ids[0] for both in letters.values() for ids in both}))
    thought = begun_thought(await model.first_words(question))
    if thought:
        tokens.ending += thought.empty
        notes.append(f"the model thinks first ({thought.opens}): an empty thought is put before its answer")
    masses = {prefix: await _mass(model, question, ids) for prefix, ids in letters.items()}
    # A plain prompt ends with a colon, and the answer follows behind a space.
    prefix = " " if tokens.plain or masses[" "] >= ENOUGH_MASS > masses[""] else ""
    thinks = bool(opened or thought) and masses[prefix] < ENOUGH_MASS
    if thinks:
        notes.append("the model goes on thinking, which cannot be switched off")
    elif masses[prefix] < ENOUGH_MASS:
        notes.append(
            f"only {masses[prefix]:.0%} of its probability is on the two letters of a plain A/B question: judgements "
            "by label may fail; use a larger instruction-tuned model"
        )
    mode: LabelMode = "first_token"
    abstention, *others = await tokens.continuations([prefix + word for word in (ABSTENTION, *CONTRASTS)])
    if any(colliding([abstention, other]) for other in others):
        mode = "sequence"
        notes.append(
            f"{ABSTENTION} begins with the same token as a common word: its whole sequence is asked for (mode sequence)"
        )
    (rendered,) = await tokens.render([question])
    digest = hashlib.sha256(repr((info.fingerprint, rendered, prefix)).encode()).hexdigest()[:12]
    info = replace(
        info,
        fingerprint="/".join((info.kind, info.model, mode, digest)),
        mode=mode,
        prompts=prompts,
        notes=(*info.notes, *notes),
    )
    return ProfiledModel(model, info, prefix, thinks)


async def _is_nano(tokens: Tokens) -> bool:
    """True for an exported nano, by a word that no other vocabulary has."""
    ids = await tokens.tokens(MARKER)
    # A vocabulary without the word may make one "unknown" of it, which does not come back as the word.
    return not tokens.plain and len(ids) == 1 and (await tokens.text_of(ids)).strip() == MARKER


async def _mass(model: TokenModel, question: Prompt, letters: Sequence[Sequence[int]]) -> float:
    """Returns the probability of the two letters as the answer's first token."""
    first = sorted({ids[0] for ids in letters})
    (row,), _ = await model.logprobs(LabelRequest((question,), LETTERS, "first_token"), [()], first)
    return float(np.exp(row).sum())
