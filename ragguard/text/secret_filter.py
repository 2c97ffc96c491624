"""Removes what must not be shown (API keys, passwords, characters that control a terminal or hide a text) from every
text that leaves the package: in errors, logs, records, spans and at terminals.

A secret is registered before it is used (see `credentials`), and a text made of foreign parts passes
through `without_secrets` before it is cut. Every error and every logger of the package does so by itself.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterable
from itertools import takewhile
from operator import eq
from urllib.parse import quote, quote_plus

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_SEPARATORS = (0x2028, 0x2029)
"""Characters that end a line for some terminals and log readers, so that a text can pretend to be a line of its own."""
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that reverse the order of letters, so that a line can be read as another text."""
_TAGS = range(0xE0000, 0xE0080)
"""Characters that spell a hidden text in ASCII."""
_INVISIBLE = (
    0xAD,
    0x61C,
    0x180E,
    0x200B,
    0x200E,
    0x200F,
    *range(0x2060, 0x2066),
    *range(0x206A, 0x2070),
    0xFEFF,
)
"""Characters without width, which are left out. The joiners U+200C and U+200D stay: Persian and emoji need them."""
_REPLACED: dict[int, str | None] = {
    **dict.fromkeys((*_CONTROLS, *_SEPARATORS, *_DIRECTIONS, *_TAGS), "\N{REPLACEMENT CHARACTER}"),
    **dict.fromkeys(_INVISIBLE),
    ord("\r"): " ",
    ord("\t"): " ",
    ord("\n"): "\n",
}


def strip_control_characters(text: str) -> str:
    """Returns the text without invisible characters, and with a mark in place of each character that moves the cursor,
    clears the screen, starts a line, reverses the order of letters or spells a hidden text; line feeds stay."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_REPLACED)


HIDDEN = "…"
"""Stands in place of a secret."""

_SHORTEST_PART = 8
"""The least characters at the beginning of a secret by which a secret that was cut off is found."""
_SHORTEST = 4
"""The least length of a secret that is removed from any text; shorter ones, which are parts of ordinary words, are
removed from addresses alone."""
_MOST = 1000
"""The most secrets that are remembered; a process that makes new keys all the time forgets the oldest."""
_PLACEHOLDERS = frozenset(
    "empty none null dummy test local nano vllm ollama token user admin model not-needed no-key".split()
)
"""Words that users give in place of a key to servers that need no key."""
_PATTERNS = (
    # The user and the password of an address. A password may hold "/", "#", "?" and "@": the last "@" ends it.
    (re.compile(r"(://)[^\s'\"<>]*@"), rf"\1{HIDDEN}@"),
    # A credential in a header.
    (re.compile(r"\b([Bb]earer|[Bb]asic)(\s+|%20)(?=\S*[\d=_-])[\w.~+/=-]{8,}"), rf"\1\2{HIDDEN}"),
    # Keys of well-known shapes.
    (re.compile(r"\b(?:sk|pk|hf)[-_][\w-]{16,}"), HIDDEN),
)


_lock = threading.Lock()
_secrets: OrderedDict[str, frozenset[str]] = OrderedDict()
"""The secrets of this process, each with the forms in which it may show up in a text."""


def keep_secret(*secrets: str) -> None:
    """Registers secrets: from now on `without_secrets` removes them."""
    for secret in {form for given in secrets for form in (given, given.strip())}:
        if len(secret) >= _SHORTEST and secret.lower() not in _PLACEHOLDERS:
            with _lock:
                _secrets[secret] = _forms_of(secret)
                _secrets.move_to_end(secret)
                if len(_secrets) > _MOST:
                    _secrets.popitem(last=False)


def without_secrets(text: str) -> str:
    """Returns the text with "…" in place of every secret, however it is escaped, and of the beginning of one."""
    with _lock:
        forms = frozenset().union(*_secrets.values())
    text = _without_forms(text, forms)
    for pattern, hidden in _PATTERNS:
        text = pattern.sub(hidden, text)
    return text


def without(text: str, quoted: Iterable[str]) -> str:
    """Returns the text with "…" in place of other texts that it quotes, escaped or cut off."""
    return _without_forms(text, frozenset().union(*map(_forms_of, quoted)))


def _without_forms(text: str, forms: frozenset[str]) -> str:
    """Returns the text without whole forms, of which a short one is removed as a whole word only, and without the
    beginnings of longer ones: remains of a secret that was cut off."""
    for form in sorted(forms, key=len, reverse=True):  # the beginning of one form is often that of the others
        if len(form) >= _SHORTEST_PART:
            text = text.replace(form, HIDDEN)
        elif form in text:
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", HIDDEN, text)
    for head in {form[:_SHORTEST_PART] for form in forms if len(form) > _SHORTEST_PART}:
        # An ordinary word, such as "ragguard", is no remains.
        while head in text and not (head.isalpha() and head.islower()):
            before, _, after = text.partition(head)
            rest = [form[_SHORTEST_PART:] for form in forms if form.startswith(head)]
            text = before + HIDDEN + after[max(sum(takewhile(bool, map(eq, after, one))) for one in rest) :]
    return text


def clean_cause(error: BaseException) -> BaseException | None:
    """Returns a foreign error to `raise … from`; None where its own text holds a secret."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the error is somebody else's
        return None
    return error if without_secrets(text) == text else None


def logger(name: str) -> logging.Logger:
    """Returns the logger of that name, whose messages and tracebacks hold no secret."""
    found = logging.getLogger(name)  # noqa: TID251 - the one place
    if not any(isinstance(one, _Cleaning) for one in found.filters):
        found.addFilter(_Cleaning())
    return found


class _Cleaning(logging.Filter):
    """Removes secrets and control characters for terminals from a log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a wrong format string is the handler's to report
            return True
        clean = strip_control_characters(without_secrets(message))
        if clean != message:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
            if (clean := strip_control_characters(without_secrets(trace))) != trace:
                record.exc_info, record.exc_text = None, clean
        return True


def _forms_of(secret: str) -> frozenset[str]:
    """Returns the forms of a secret in a text: as it is, in a URL, in JSON, in a repr, in base64."""
    raw = secret.encode("utf-8", "replace")
    encoded = [b64encode(raw).decode(), urlsafe_b64encode(raw).decode()]
    return frozenset(
        [
            secret, quote(secret, safe=""), quote(secret), quote_plus(secret),
            json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1],
            *encoded, *(one.rstrip("=") for one in encoded),
        ]
    )  # fmt: skip
