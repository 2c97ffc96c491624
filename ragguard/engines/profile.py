"""Finds the profile of a language model that shows its tokens: its chat template, its thinking, and the way to read
labels.

One procedure for every such model, behind a server or in this process: `find_out`. A model that ships with the package
brings its profile along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ragguard.engines.base import EngineInfo, LabelMode, Prompt
from ragguard.engines.labels import ABSTENTION, CONTRASTS, colliding, plan_labels
from ragguard.engines.nano.tokenizer import MARKER
from ragguard.engines.prompts import load_prompts
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.thinking import LETTERS, QUESTION, begun_thought, open_thought
from ragguard.engines.token_model import ProfiledModel, TokenModel, Tokens

ENOUGH_MASS = 0.5
"""The least probability that a model puts on the two letters of a plain A/B question if it answers by label."""


async def find_out(model: TokenModel) -> ProfiledModel:
    """Returns a model with its profile; it is asked some small questions."""
    tokens, notes = model.tokens, []
    if tokens.plain:
        notes.append("the model has no chat template: prompts are plain text; use an instruction-tuned model")
    if tokens.folds:
        notes.append(
            "the chat template knows no system turn: instructions are put before the first user turn"
        )
    prompts, question = "default", QUESTION
    if await _is_nano(tokens):
        prompts = "nano"
        example = load_prompts("nano").render("relevance", ["Ada Berg founded it."], query="Who founded it?")
        question = example.without_cuts()
    (rendered,) = await tokens.render([question])
    if isinstance(rendered, list):
        notes.append(
            "the chat template cannot be learned from outside: one extra small request for each prompt"
        )
    opened = open_thought(rendered if isinstance(rendered, str) else await tokens.text_of(rendered))
    if opened:
        tokens.ending = f"\n{opened.closes}\n\n"
        notes.append(f"the chat template opens a thought: it is closed at once with {opened.closes}")
    letters = {
        prefix: await tokens.continuations([prefix + letter for letter in LETTERS]) for prefix in ("", " ")
    }
    facts = await model.facts(question, [ids[0] for both in letters.values() for ids in both])
    thought = begun_thought(await model.first_words(question))
    if thought:
        tokens.ending += thought.empty
        notes.append(f"the model thinks first ({thought.opens}): an empty thought is put before its answer")
    masses = {prefix: await _mass(model, question, ids) for prefix, ids in letters.items()}
    prefix = " " if masses[" "] >= ENOUGH_MASS > masses[""] else ""
    thinks = bool(opened or thought) and masses[prefix] < ENOUGH_MASS
    if thinks:
        notes.append("the model goes on thinking and cannot be told not to")
    elif masses[prefix] < ENOUGH_MASS:
        notes.append(weak_letters(masses[prefix]))
    mode: LabelMode = "first_token"
    abstention, *others = await tokens.continuations([prefix + word for word in (ABSTENTION, *CONTRASTS)])
    if any(colliding([abstention, other]) for other in others):
        mode = "sequence"
        notes.append(
            f"{ABSTENTION} begins with the same token as a common word: its whole sequence is asked for (mode sequence)"
        )
    (rendered,) = await tokens.render([question])
    digest = hashlib.sha256(repr((facts.identity, rendered, prefix)).encode()).hexdigest()[:12]
    info = EngineInfo(
        model=facts.name,
        kind=facts.kind,
        fingerprint="/".join((facts.kind, facts.name, mode, *facts.shown, digest)),
        mode=mode,
        prompts=prompts,
        context=facts.context,
        capabilities=facts.capabilities,
        location=facts.location,
        notes=(*facts.notes, *notes),
    )
    return ProfiledModel(model, info, prefix, thinks)


def weak_letters(mass: float) -> str:
    """Returns the note on a model that puts too little probability on the two letters of a plain question."""
    return (
        f"only {mass:.0%} of its probability is on the two letters of a plain A/B question: judgements by label may "
        "fail; use an instruction-tuned model"
    )


async def _is_nano(tokens: Tokens) -> bool:
    """True for an exported nano, by a word that no other vocabulary has."""
    ids = await tokens.tokens(MARKER)
    # A vocabulary without the word may make one "unknown" of it, which does not come back as the word.
    return not tokens.plain and len(ids) == 1 and (await tokens.text_of(ids)).strip() == MARKER


async def _mass(model: TokenModel, question: Prompt, letters: Sequence[Sequence[int]]) -> float:
    """Returns the probability of the two letters as the answer's first token; upper bounds do not count."""
    plan = plan_labels(letters, "first_token")
    found = await model.next_tokens(LabelRequest((question,), LETTERS, "first_token"), plan.asks)
    p = plan.combine(found.logprobs)
    return float(p.sum() if found.bounds is None else p[~plan.any_of(found.bounds)].sum())
