"""Makes nano's word list from the world's words: `python -m training.nano.vocabulary` writes it.

The list is frozen with the weights: a word's place in it is the row of its embedding.
"""

from __future__ import annotations

import json
import re
from itertools import chain

from ragguard.engines.nano.nano_engine import NEWLINE, PATTERN, SPECIAL
from ragguard.engines.prompts import load_prompts
from ragguard.engines.token_model import MARKER
from ragguard.world import grammar
from training.nano import SHIPPED


def build_vocabulary() -> list[str]:
    """Builds the vocabulary: special tokens, labels and signs, then all words of frames and prompts, then names and
    values."""
    found: dict[str, None] = dict.fromkeys((*SPECIAL, NEWLINE, MARKER, "NO-RESPONSE"))
    found |= dict.fromkeys([chr(c) for c in range(ord("A"), ord("Z") + 1)])
    found |= dict.fromkeys("0123456789.,?!;:-'\"()")
    phrases = [*grammar.FACT_OPENINGS, *grammar.HEDGES, *grammar.QUESTION_OPENINGS, *grammar.THAT.values()]
    for relation in grammar.RELATIONS.values():
        phrases += [*relation.facts, *relation.questions, *relation.nouns]
    phrases += [template.user for template in load_prompts("nano").templates.values()]
    frames: dict[str, None] = {}
    for phrase in phrases:
        bare = re.sub(r"\{\w+\}", " ", phrase.replace("{s}'s", "{s} 's"))
        for word in re.findall(PATTERN, bare):
            frames |= {word: None}
        first = re.findall(PATTERN, bare)[:1]
        if not phrase.startswith("{"):
            frames |= dict.fromkeys(word[:1].upper() + word[1:] for word in first)
            frames |= dict.fromkeys(word[:1].lower() + word[1:] for word in first)
    found |= dict.fromkeys(sorted(frames))
    entities = chain(grammar.NAMES["person"], grammar.NAMES["town"], grammar.NAMES["firm"])
    for words in chain(entities, grammar.VALUES.values()):
        found |= dict.fromkeys(words)
    return list(found)


if __name__ == "__main__":
    path = SHIPPED / "checkpoint" / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"] = {word: i for i, word in enumerate(build_vocabulary())}
    path.write_text(json.dumps(tokenizer, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
