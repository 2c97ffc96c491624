"""`connect_entailer`: from a word or an address to a judge of entailment."""

from __future__ import annotations

from ragguard.engines.account import Account
from ragguard.engines.entailment.base import Entailer
from ragguard.engines.entailment.budget import EntailmentBudget
from ragguard.errors import InvalidInput, UnknownName
from ragguard.secrets import without_secrets

SCHEMES = (
    "http(s)://HOST:PORT/v1[#MODEL] (vLLM's /classify), hf:MODEL_OR_FOLDER (a cross-encoder), or an Entailer"
)


def connect_entailer(entailer: str | Entailer, account: Account | None = None) -> Entailer:
    """Returns an NLI model to compare answers with. Nothing is asked or loaded before its first use.

    Args:
        entailer: The address of a vLLM server (`http://HOST:PORT/v1`, optionally with `#MODEL`), `hf:MODEL` or
            `hf:FOLDER`, or an Entailer.
        account: What it may spend, shared with engines. None: no limit.
    """
    opened = _opened(entailer)
    return opened if account is None else EntailmentBudget(opened, account)


def _opened(entailer: str | Entailer) -> Entailer:
    if not isinstance(entailer, str):
        if not isinstance(entailer, Entailer):
            raise InvalidInput("entailer", entailer, SCHEMES)
        return entailer
    scheme, _, rest = entailer.strip().partition(":")
    if scheme in ("http", "https"):
        from ragguard.engines.entailment.classify import ClassifyEntailer

        return ClassifyEntailer(entailer)
    if scheme == "hf" and rest:
        from ragguard.engines.entailment.cross_encoder import CrossEncoder

        return CrossEncoder(rest)
    raise UnknownName("entailer", without_secrets(entailer), SCHEMES)
