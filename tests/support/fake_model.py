"""A model small enough to know by heart, behind the HTTP faces of vLLM and of plain OpenAI-compatible servers.

For what a real server at hand cannot be made to do: think first, collide, be old, refuse parameters.
Its tokens are words with the space before them, as byte-pair vocabularies have them.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from support.misbehaving_server import Reply, Request

END = "<end>"
_TOKEN = re.compile(r"<[^<>\s]+>| ?\w{1,8}|[^\w\s]|\s")
ANSWERS = {
    "A": 0.6,
    "B": 0.2,
    "NO": 0.1,
    "Ada": 0.05,
    "What": 0.03,
    "It": 0.01,
    "1": 0.005,
    "2": 0.004,
    "0": 0.001,
}
_NEXT = {"NO": {"-": 0.9, END: 0.1}, "-": {"RESPONSE": 1.0}, "Ada": {" Berg": 0.8, END: 0.2}}


@dataclass
class FakeModel:
    """`MisbehavingServer(FakeModel(...).handle)`."""

    face: Literal["vllm", "openai", "llamacpp"] = "vllm"
    models: tuple[str, ...] = ("fake",)
    exact: bool = True
    """Knows `logprob_token_ids`."""
    top: int = 20
    """More `logprobs` than this are refused; 0: there are none, and the request for them is ignored."""
    shown: int | None = None
    """Fewer than asked for are shown, without a word."""
    thinks: Literal["no", "switched", "prefilled", "always"] = "no"
    """The kind of thinking: until it is told not to by an argument, by an empty thought before its answer, or by
    nothing."""
    template_opens_thought: bool = False
    template: Literal["whole", "no system", "trims", "changes", "none"] = "whole"
    collides: bool = False
    """NO-RESPONSE begins with the same token as No."""
    many: Literal["yes", "ignored", "refused"] = "yes"
    refuses: frozenset[str] = frozenset()
    context: int = 4096
    reasoning_field: bool = False
    """Thoughts come in a field of their own, as reasoning parsers give them."""
    _ids: dict[str, int] = field(default_factory=dict)

    def handle(self, request: Request) -> Reply:
        """The answer to a request."""
        path = request.path
        if path == "/v1/models":
            owner = "somebody" if self.face == "openai" else self.face
            data = [{"id": name, "owned_by": owner, "max_model_len": self.context} for name in self.models]
            return Reply({"object": "list", "data": data})
        if path == "/v1/chat/completions":
            return self._chat(request.json)
        if self.face == "vllm":
            if path == "/tokenize":
                return self._tokenize(request.json)
            if path == "/detokenize":
                return Reply({"prompt": self.text(request.json["tokens"])})
            if path == "/v1/completions":
                return self._complete(request.json)
        if self.face == "llamacpp":
            if path == "/apply-template":
                return Reply({"prompt": self._render(request.json)})
            if path == "/tokenize":
                return Reply({"tokens": [self._id(token) for token in self.tokens(request.json["content"])]})
            if path == "/completion":
                return self._forced(request.json["prompt"], request.json, request.json["n_predict"])
        return Reply({"detail": "Not Found"}, 404)

    def _forced(self, prompt: str, body: dict[str, Any], limit: int) -> Reply:
        """The reply of llama.cpp to a grammar of token ids: the forced tokens and the end, as likely as without it."""
        if "grammar" in self.refuses:
            return _refusal("Failed to initialize samplers: failed to parse grammar")
        if refusal := self._too_long(prompt, body | {"max_tokens": limit}):
            return refusal
        entries, said = [], list[str]()
        forced = [self._token(int(number)) for number in re.findall(r"<\[(\d+)\]>", body["grammar"])]
        for token in [*forced, END][:limit]:
            p = self.next(prompt, said).get(token, 0.0)
            entries.append({"id": self._id(token), "token": token, "logprob": _log(p), "top_logprobs": []})
            said.append(token)
        usage = {"prompt_tokens": 7, "completion_tokens": len(entries)}
        message = {"role": "assistant", "content": "".join(forced)}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": entries}}
        native = {
            "completion_probabilities": entries,
            "tokens_evaluated": 7,
            "tokens_predicted": len(entries),
        }
        return Reply({"choices": [choice], "usage": usage} if "messages" in body else native)

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text."""
        found = _TOKEN.findall(text)
        if self.collides:
            found = [
                part
                for token in found
                for part in ((token[0], token[1:]) if token in ("NO", "No") else (token,))
            ]
        return found

    def next(self, prompt: str, said: list[str]) -> dict[str, float]:
        """Returns the tokens that may follow, each with its probability."""
        said = self.tokens(prompt.rpartition("<assistant>")[2]) + said
        if self._is_thinking(prompt, "".join(said)):
            if "<think>" not in said:
                return {"<think>": 0.97, "A": 0.02, "B": 0.01}
            return {"</think>": 1.0} if said[-1] == " hmm" else {" hmm": 1.0}
        if "</think>" in said:
            said = said[len(said) - said[::-1].index("</think>") :]
        said = [token for token in said if token.strip()]
        if not said:
            start = {"N" if self.collides and token == "NO" else token: p for token, p in ANSWERS.items()}
            return start | {END: 1.0 - sum(start.values())}
        if self.collides and said[-1] == "N":
            return {"O": 1.0}
        return _NEXT.get("NO" if self.collides and said[-1] == "O" else said[-1], {END: 1.0})

    def _is_thinking(self, prompt: str, said: str) -> bool:
        if "<silent>" in prompt or (self.thinks == "no" and not self.template_opens_thought):
            return False
        if self.thinks == "always":
            # An empty thought does not convince it.
            return "hmm</think>" not in said
        return "</think>" not in said

    def _render(self, body: dict[str, Any]) -> str:
        parts = ["<bos>"]
        arguments = body.get("chat_template_kwargs") or {}
        if arguments.get("enable_thinking") is False and self.thinks == "switched":
            parts.append("<silent>")
        for message in body["messages"]:
            if message["role"] == "system" and self.template == "no system":
                raise ValueError("System role not supported by the template")
            content = message["content"]
            content = content.strip() if self.template == "trims" else content
            content = content.lower() if self.template == "changes" else content
            parts.append(f"<{message['role']}>{content}\n")
        return "".join(parts) + "<assistant>" + ("<think>\n" if self.template_opens_thought else "")

    def _tokenize(self, body: dict[str, Any]) -> Reply:
        if "messages" in body:
            if "chat_template_kwargs" in self.refuses & body.keys():
                return _refusal("Extra inputs are not permitted: chat_template_kwargs")
            if self.template == "none":
                return _refusal("As of transformers v4.44, a chat template must be given")
            try:
                text = self._render(body)
            except ValueError as error:
                return _refusal(str(error))
        else:
            text = body["prompt"]
        ids = [self._id(token) for token in self.tokens(text)]
        shown = {"token_strs": self.tokens(text)} if body.get("return_token_strs") else {}
        return Reply({"tokens": ids, "count": len(ids), "max_model_len": self.context, **shown})

    def _complete(self, body: dict[str, Any]) -> Reply:
        if refusal := self._check(body):
            return refusal
        choices: list[dict[str, Any]] = []
        prompts = [p if isinstance(p, str) else self.text(p) for p in body["prompt"]]
        for prompt in prompts:
            if refusal := self._too_long(prompt, body):
                return refusal
            for index in range(body.get("n", 1)):
                said, steps, finished = self._generate(prompt, body, index)
                wanted = body.get("logprob_token_ids") if self.exact else None
                tops = [
                    {f"token_id:{i}": _log(step.get(self._token(i), 0.0)) for i in wanted} if wanted
                    else {f"token_id:{self._id(t)}": _log(p) for t, p in _likeliest(step, body.get("logprobs") or 0)}
                    for step in steps
                ]  # fmt: skip
                logprobs = [_log(step[token]) for token, step in zip([*said, END], steps, strict=False)]
                choices.append({
                    "index": len(choices), "text": "".join(said), "finish_reason": "stop" if finished else "length",
                    "logprobs": {"top_logprobs": tops, "token_logprobs": logprobs} if "logprobs" in body else None,
                    "prompt_logprobs": self._prompt_logprobs(prompt) if "prompt_logprobs" in body else None,
                })  # fmt: skip
        return Reply(
            {"choices": choices, "usage": {"prompt_tokens": 7 * len(prompts), "completion_tokens": 1}}
        )

    def _prompt_logprobs(self, prompt: str) -> list[dict[str, Any] | None]:
        """Returns the log-probability of each token of a prompt; only those of the answer are the model's."""
        head = prompt[: prompt.rindex("<assistant>") + len("<assistant>")]
        tokens, start = self.tokens(prompt), len(self.tokens(head))
        answer = [
            _log(self.next(head, tokens[start:at]).get(tokens[at], 0.0)) for at in range(start, len(tokens))
        ]
        values = [-1.0] * start + answer
        return [{str(self._id(token)): {"logprob": p}} for token, p in zip(tokens, values, strict=True)]

    def _chat(self, body: dict[str, Any]) -> Reply:
        if refusal := self._check(body):
            return refusal
        if body.get("top_logprobs", 0) > self.top > 0:
            return _refusal(f"Invalid value for 'top_logprobs': must be at most {self.top}")
        n = body.get("n", 1)
        if n > 1 and self.many == "refused":
            return _refusal("Only one completion is allowed", "n")
        prompt = self._render(body)
        if self.face == "llamacpp" and "grammar" in body:
            return self._forced(prompt, body, body["max_tokens"])
        if refusal := self._too_long(prompt, body):
            return refusal
        choices = []
        for index in range(n if self.many == "yes" else 1):
            said, steps, finished = self._generate(prompt, body, index)
            message: dict[str, Any] = {"role": "assistant", "content": "".join(said)}
            if self.reasoning_field and "</think>" in said:
                at = said.index("</think>")
                message = {"content": "".join(said[at + 1 :]), "reasoning_content": "".join(said[1:at])}
            shown = min(body.get("top_logprobs", 0), self.top if self.shown is None else self.shown)
            content = [
                {"token": token, "logprob": _log(step[token]),
                 "top_logprobs": [{"token": t, "logprob": _log(p)} for t, p in _likeliest(step, shown)]}
                for token, step in zip(said, steps, strict=False)
            ]  # fmt: skip
            shows = body.get("logprobs") and self.top
            choices.append({
                "index": index, "message": message, "finish_reason": "stop" if finished else "length",
                "logprobs": {"content": content} if shows else None,
            })  # fmt: skip
        return Reply({"choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 3 * n}})

    def _generate(
        self, prompt: str, body: dict[str, Any], index: int
    ) -> tuple[list[str], list[dict[str, float]], bool]:
        draw = random.Random(f"{body.get('seed')} {index} {prompt}")
        said: list[str] = []
        steps = []
        for _ in range(body.get("max_tokens") or body.get("max_completion_tokens") or 16):
            step = self.next(prompt, said)
            steps.append(step)
            greedy = body.get("temperature") == 0
            token = max(step, key=step.__getitem__) if greedy else draw.choices([*step], [*step.values()])[0]
            if token == END:
                return said, steps, True
            said.append(token)
        return said, steps, False

    def _check(self, body: dict[str, Any]) -> Reply | None:
        if body.get("model") not in self.models:
            return Reply({"error": {"message": f"The model `{body.get('model')}` does not exist."}}, 404)
        for name in self.refuses & body.keys():
            hint = " Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
            return _refusal(f"Unsupported parameter: '{name}' is not supported with this model.{hint}", name)
        return None

    def _too_long(self, prompt: str, body: dict[str, Any]) -> Reply | None:
        length = len(self.tokens(prompt))
        if length + (body.get("max_tokens") or 0) <= self.context:
            return None
        return _refusal(
            f"This model's maximum context length is {self.context} tokens. However, your messages resulted in "
            f"{length} tokens."
        )

    def _id(self, token: str) -> int:
        return self._ids.setdefault(token, len(self._ids))

    def _token(self, number: int) -> str:
        return list(self._ids)[number]

    def text(self, ids: list[int]) -> str:
        tokens = list(self._ids)
        return "".join(tokens[number] for number in ids)


def _likeliest(step: dict[str, float], count: int) -> list[tuple[str, float]]:
    return sorted(step.items(), key=lambda item: -item[1])[:count]


def _log(p: float) -> float:
    return math.log(p) if p > 0 else -9999.0


def _refusal(message: str, parameter: str | None = None) -> Reply:
    return Reply(
        {"error": {"message": message, "type": "BadRequestError", "param": parameter, "code": 400}}, 400
    )
