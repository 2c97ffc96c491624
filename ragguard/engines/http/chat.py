"""Chat completions of any OpenAI-compatible server: sends requests with the parameters that it takes, reads and checks
the choices in the reply, and reads labels off them. A reply that is not what it should be raises EngineProtocolError.
Finds out by trial which parameters a server takes, and what its model's answers show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ragguard.engines.base import Message, Prompt, Sample, as_turns
from ragguard.engines.chat_frames import QUESTION, begun_thought, without_reasoning
from ragguard.engines.http.http_client import HttpClient, notice_other_model
from ragguard.engines.http.replies import choices_of, needed, optional, unexpected, usage_of
from ragguard.engines.labels import ABSTENTION, CONTRASTS, checked_logprob, upper_bound
from ragguard.engines.requests import DrawRequest
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.records import Usage

LABEL_TOKENS = 8
"""The most tokens of an answer that is to be a label."""
_LOOK_TOKENS = 16
_SEEDS = 2**62
_TOPS = (20, 5, 0)
_SAYS_N = re.compile(
    r"['\"`]n['\"`]|\bparameter[ =:]+n\b|\bn:|\bn(_cmpl)? (must|should|has to|cannot|may|> ?1|is not)"
    r"|multiple (choices|completions)"
)
_BESIDE = frozenset({"role", "refusal", "reasoning", "reasoning_content"})
"""The texts of a message that may stand without a content."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The parameters that a server takes: all of them at first, without each one that it refuses."""

    top: int = _TOPS[0]
    """The number of most probable tokens that the server shows; 0: no log-probabilities."""
    limit_name: str = "max_tokens"
    temperature: bool = True
    seed: bool = True
    many: bool = True
    """True where the server gives several choices for one request."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """The parameters that switch thinking off."""
    refusal: EngineRejected | None = None
    """The refusal that named no parameter, where the smallest body stands in for the whole one."""

    def less(self, error: EngineRejected) -> Dialect:
        """Returns the dialect without the parameter that a server's refusal names. Where it names none, that is the one
        of a model, messages and a limit of tokens alone; the first refusal is raised where that is refused, too."""
        said = str(error).lower()
        if "max_completion_tokens" in said and self.limit_name == "max_tokens":
            return replace(self, limit_name="max_completion_tokens")
        if "logprobs" in said and self.top:
            return replace(self, top=_TOPS[_TOPS.index(self.top) + 1])
        if "temperature" in said and self.temperature:
            return replace(self, temperature=False)
        if "seed" in said and self.seed:
            return replace(self, seed=False)
        if self.many and names_choices(said):
            return replace(self, many=False)
        if self.refusal is None and error.status in (400, 422):
            return Dialect(0, temperature=False, seed=False, many=False, refusal=error)
        if self.refusal is not None and self.limit_name == "max_tokens":
            return replace(self, limit_name="max_completion_tokens")
        raise self.refusal or error


def names_choices(said: str) -> bool:
    """Returns whether a server's refusal names the number of choices."""
    return _SAYS_N.search(said.lower()) is not None


class Token(NamedTuple):
    """A token's text and log-probability."""

    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer in a reply, read and checked."""

    sample: Sample
    """The answer without its reasoning."""
    first: tuple[Token, ...]
    """The most probable first tokens."""
    thought: bool
    """True where the model reasoned, whether an answer followed or not."""
    is_empty: bool = False
    """True where the server lists the tokens of the answer and there are none: the model ended its answer at once."""


async def ask(
    client: HttpClient, model: str, dialect: Dialect, request: DrawRequest, *, top: bool = False
) -> tuple[list[Choice], Usage]:
    """Returns the server's choices for the request's one prompt; as many as it gives, at most `n`.

    `top` asks for the most probable first tokens, too.
    """
    (prompt,), n = request.prompts, request.n
    body: dict[str, Any] = {
        "model": model,
        "messages": as_turns(prompt.messages),
        dialect.limit_name: request.max_tokens,
        **dialect.extras,
    }
    if dialect.temperature:
        body["temperature"] = request.temperature
    if dialect.seed and request.seed is not None:
        body["seed"] = request.seed % _SEEDS
    if n > 1:
        body["n"] = n
    if dialect.top:
        body["logprobs"] = True
        if top:
            body["top_logprobs"] = dialect.top
    answer = await client.ask("/chat/completions", body, deadline=request.deadline)
    url = f"{client.address.base}/chat/completions"
    choices = choices_of(answer, url)
    notice_other_model(client, model, answer.get("model"))
    return list(map(partial(_choice, answer, url), choices)), usage_of(answer, 1)


def _choice(answer: Mapping[str, Any], url: str, choice: Mapping[str, Any]) -> Choice:
    message = needed(choice, Mapping, "message", url=url, expected="a choice with its `message`")
    if "content" not in message and any(isinstance(message[name], str) for name in message.keys() - _BESIDE):
        raise unexpected(url, "a message with its `content`", message)
    content = _content(message.get("content"), url)
    finished = choice.get("finish_reason") != "length"
    text, ended = without_reasoning(content)
    entries = optional(choice, list, "logprobs", "content")
    read = partial(_token, url)
    tokens = list(map(read, entries or ()))
    first = tuple(map(read, optional(entries[0], list, "top_logprobs") or ())) if entries else ()
    last = tokens[-1].text.strip() if len(tokens) > 1 else ""
    if finished and len(tokens) > 1 and not (last and content.rstrip().endswith(last)):
        tokens.pop()
    thought = (
        bool(message.get("reasoning_content") or message.get("reasoning"))
        or begun_thought(content) is not None
        or bool(optional(answer, int, "usage", "completion_tokens_details", "reasoning_tokens"))
        or (not content and not finished)
    )
    # Where a thought was cut off, the server does not say which tokens belonged to it.
    logprobs = () if thought or text != content else tuple(token.logprob for token in tokens)
    sample = Sample(text.strip(), logprobs, finished and ended)
    return Choice(sample, first, thought=thought, is_empty=not content and entries == [])


def _content(given: Any, url: str) -> str:
    """Returns the text of a message, which some servers give in pieces; none where there is no text."""
    if not given or isinstance(given, str):
        return given or ""
    pieces = given if isinstance(given, list) else [given]
    return "".join(needed(piece, str, "text", url=url, expected="text in a message") for piece in pieces)


def _token(url: str, entry: Any) -> Token:
    text = optional(entry, str, "token")
    if text is None:
        raise unexpected(url, "a `token` with its log-probability", entry)
    return Token(text, checked_logprob(entry.get("logprob")))


def spelled(label: str, first: Sequence[Token]) -> Token | None:
    """Returns the token by which an answer begins with `label`: the whole label if it is listed, else its likeliest
    start; None where there is none."""
    starts = [(token, token.text.lstrip(" ▁\n")) for token in first]
    whole = [token for token, text in starts if text == label]
    begun = [token for token, text in starts if text and label.startswith(text)]
    return max(whole or begun, key=lambda token: token.logprob, default=None)


async def accepted(client: HttpClient, model: str, dialect: Dialect) -> tuple[Dialect, bool]:
    """Asks the plain question without each parameter that the server refuses, until it answers; returns what it takes,
    and whether its model thought first."""
    while True:
        n = 2 if dialect.many else 1
        try:
            question = DrawRequest((QUESTION,), n, _LOOK_TOKENS, 1.0, seed=1)
            choices, _ = await ask(client, model, dialect, question, top=True)
        except EngineRejected as error:
            dialect = dialect.less(error)
            continue
        if len(choices) < n:
            dialect = replace(dialect, many=False)
        if not choices[0].first:
            dialect = replace(dialect, top=0)
        return dialect, any(choice.thought for choice in choices)


async def collides(client: HttpClient, model: str, dialect: Dialect) -> bool:
    """True where the abstention begins with the same token as a common word."""
    prompt = Prompt((Message("user", f"Repeat this and write nothing else: {ABSTENTION}"),))
    repeated = DrawRequest((prompt,), 1, LABEL_TOKENS, 0.0)
    (choice, *_), _ = await ask(client, model, dialect, repeated, top=True)
    token = spelled(ABSTENTION, choice.first)
    start = token.text.strip(" ▁\n") if token else ""
    return bool(start) and any(word.startswith(start) for word in CONTRASTS)


def listed(choice: Choice, labels: Sequence[str]) -> tuple[tuple[float, ...], tuple[bool, ...]]:
    """Returns the probability of each label, by the most probable first tokens of a choice, and whether it is an upper
    bound. Where the answer is empty no label was near: each has the probability 0, which is a bound."""
    if choice.is_empty:
        return (0.0,) * len(labels), (True,) * len(labels)
    if not choice.first:
        raise EngineProtocolError(
            "the server gave no log-probabilities, although it did at first; is it still the same server?"
        )
    tokens = [spelled(label, choice.first) for label in labels]
    most = math.exp(upper_bound(token.logprob for token in choice.first))
    return (
        tuple(most if token is None else math.exp(token.logprob) for token in tokens),
        # A first token that begins several labels says of each only how probable it is at most.
        tuple(token is None or tokens.count(token) > 1 for token in tokens),
    )


def estimated(answers: Sequence[str], labels: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the share of each label in sampled answers, of which there is at least one, and its standard error."""
    said, size = [named(answer, labels) for answer in answers], len(answers)
    hits = [said.count(label) for label in labels]
    smooth = [(count + 1) / (size + 2) for count in hits]
    return tuple(count / size for count in hits), tuple(math.sqrt(p * (1 - p) / size) for p in smooth)


def named(answer: str, labels: Sequence[str]) -> str | None:
    """Returns the label that an answer gives, alone or before punctuation: "A firm" is not the label A."""
    bare = answer.strip().lstrip("*\"'`(").strip()
    for label in sorted(labels, key=len, reverse=True):
        flags = re.IGNORECASE if len(label) > 1 else 0
        if re.match(rf"{re.escape(label)}(?:$|\s*[.,:;)!*\"'`\n]|\s+[-–—]\s)", bare, flags):
            return label
    return None
