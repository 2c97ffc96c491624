"""A vLLM server as it was found at first use: which model, what it accepts, how it must be asked.

Some fifteen small requests, once. Every step down on an older or differently started server is
written into `EngineInfo.notes`, with what to change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragguard.engines.base import EngineInfo, LabelMode
from ragguard.engines.http.client import HttpClient
from ragguard.engines.http.completions import Completions
from ragguard.engines.http.served import ServedModel, served_model
from ragguard.engines.http.templates import Rendered, Templates
from ragguard.engines.labels import ABSTENTION, CONTRASTS, colliding
from ragguard.engines.prompts import load_prompts
from ragguard.engines.thinking import ENOUGH_MASS, LETTERS, QUESTION, SWITCH_OFF, begun_thought, open_thought
from ragguard.errors import EngineProtocolError, EngineRejected

_TOPS = (20, 5, 1)


@dataclass(frozen=True, slots=True)
class VllmServer:
    """What is known of the server, and the two things to ask it with."""

    completions: Completions
    templates: Templates
    info: EngineInfo
    lead: str
    """What stands before a label where the answer begins: nothing, or the space that some models put there."""
    thinks: bool
    """It thinks before it answers and cannot be told not to: its first tokens are no labels."""


async def look_at(client: HttpClient, wanted: str | None) -> VllmServer:
    """Finds out all of it."""
    model = await served_model(client, wanted)
    version = await _version(client)
    notes = []
    templates = Templates(client, model.id, SWITCH_OFF)
    await templates.learn()
    if templates.plain:
        notes.append(
            "the model has no chat template: prompts are sent as plain text; serve an instruction-tuned model"
        )
    if templates.folds:
        notes.append(
            "the chat template knows no system turn: instructions are put before the first user turn"
        )
    prompts = "nano" if await is_nano(templates) else "default"
    question = QUESTION
    if prompts == "nano":
        example = load_prompts("nano").render("relevance", ["Ada Berg founded it."], query="Who founded it?")
        question = example.without_cuts()
    (rendered,) = await templates.render([question])
    text = rendered if isinstance(rendered, str) else await templates.text_of(rendered)
    if isinstance(rendered, list):
        notes.append(
            "the chat template cannot be learned from outside: one extra small request for each prompt"
        )
    opened = open_thought(text)
    if opened:
        templates.ending = f"\n{opened.closes}\n\n"
        notes.append(f"the chat template opens a thought: it is closed at once with {opened.closes}")

    completions = Completions(client, model.id, special_tokens=templates.plain)
    leads = {
        lead: [ids[0] for ids in await templates.continuations([lead + x for x in LETTERS])]
        for lead in ("", " ")
    }
    (rendered,) = await templates.render([question])
    completions, found = await _accepted(
        completions, rendered, [token for ids in leads.values() for token in ids]
    )
    notes += found
    thought = begun_thought(await completions.beginning(rendered, deadline=None))
    if thought:
        templates.ending += thought.empty
        (rendered,) = await templates.render([question])
        notes.append(f"the model thinks first ({thought.opens}): an empty thought is put before its answer")
    masses = await _masses(completions, rendered, leads)
    lead = " " if masses[" "] >= ENOUGH_MASS > masses[""] else ""
    thinks = bool(opened or thought) and masses[lead] < ENOUGH_MASS
    if thinks:
        notes.append("the model goes on thinking and cannot be told not to")
    elif masses[lead] < ENOUGH_MASS:
        notes.append(
            f"only {masses[lead]:.0%} of its probability is on the two letters of a plain A/B question: "
            "judgements by label may fail; serve an instruction-tuned model"
        )
    words = await templates.continuations([lead + word for word in (ABSTENTION, *CONTRASTS)])
    mode: LabelMode = "first_token"
    if any(colliding([words[0], word]) for word in words[1:]):
        mode = "sequence"
        notes.append(
            f"{ABSTENTION} begins with the same token as a common word: its whole sequence is asked for (mode sequence)"
        )
    info = EngineInfo(
        model=model.id, kind="vllm", fingerprint=_fingerprint(model, mode, completions, rendered, lead),
        mode=mode, prompts=prompts, context=model.context, capabilities=_capabilities(completions),
        location=client.address.base,
        notes=(f"vLLM {version}" if version else "vLLM, of a version it does not tell", *notes),
    )  # fmt: skip
    return VllmServer(completions, templates, info, lead, thinks=thinks)


async def is_nano(templates: Templates) -> bool:
    """Whether the model behind the server is an exported nano: its vocabulary has a word no other model has."""
    from ragguard.engines.nano.tokenizer import MARKER

    ids = await templates.tokens(MARKER)
    # A vocabulary without the word may make one "unknown" of it, which does not come back as the word.
    return not templates.plain and len(ids) == 1 and (await templates.text_of(ids)).strip() == MARKER


async def _version(client: HttpClient) -> str:
    try:
        answer = await client.get("/version", root=True)
    except (EngineRejected, EngineProtocolError):
        return ""
    return str(answer.get("version", "")) if isinstance(answer, Mapping) else ""


async def _accepted(
    completions: Completions, question: Rendered, tokens: Sequence[int]
) -> tuple[Completions, list[str]]:
    """What the server takes of what only vLLM has, one thing at a time."""
    notes = []
    try:
        await completions.label_logprobs([question], tokens, deadline=None)
    except (EngineRejected, EngineProtocolError):
        completions = replace(completions, exact=False)
        for top in _TOPS:
            completions = replace(completions, top=top)
            try:
                await completions.label_logprobs([question], tokens, deadline=None)
                break
            except (EngineRejected, EngineProtocolError):
                if top == _TOPS[-1]:
                    raise
        notes.append(
            f"this server does not know logprob_token_ids: a label outside the {completions.top} most probable tokens "
            "has only an upper bound; a newer vLLM gives exact values, --max-logprobs a longer list"
        )
    try:
        await completions.beginning(question, deadline=None, priority=1)
    except EngineRejected:
        completions = replace(completions, takes_priority=False)
        notes.append("priorities are ignored; start the server with --scheduling-policy priority")
    return completions, notes


async def _masses(
    completions: Completions, question: Rendered, leads: Mapping[str, Sequence[int]]
) -> dict[str, float]:
    masses = {}
    for lead, tokens in leads.items():
        logprobs, bounds, _ = await completions.label_logprobs([question], tokens, deadline=None)
        masses[lead] = float(np.exp(logprobs[~bounds]).sum())
    return masses


def _fingerprint(
    model: ServedModel, mode: LabelMode, completions: Completions, question: Rendered, lead: str
) -> str:
    shown = "exact" if completions.exact else f"top{completions.top}"
    digest = hashlib.sha256(repr((model.root, question, lead)).encode()).hexdigest()[:12]
    return f"vllm/{model.id}/{mode}/{shown}/{digest}"


def _capabilities(completions: Completions) -> frozenset[str]:
    known = {"sequence", "sample_logprobs", "batch", "n_samples", "seed"}
    known.add("exact_labels" if completions.exact else "top_logprobs")
    if completions.takes_priority:
        known.add("priority")
    return frozenset(known)
