"""Removes from every text that leaves the package what must not be shown: API keys, passwords, and characters that
control a terminal or hide a text. It leaves in errors, logs, records, spans and at terminals.

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


class _Registry:
    """The secrets of this process, each with the forms in which it may show up in a text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forms: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def add(self, secret: str) -> None:
        """Remembers a secret."""
        with self._lock:
            self._forms[secret] = _forms_of(secret)
            self._forms.move_to_end(secret)
            if len(self._forms) > _MOST:
                self._forms.popitem(last=False)

    def forms(self) -> list[str]:
        """Returns every form of every secret, longer forms first."""
        with self._lock:
            forms = {form for forms in self._forms.values() for form in forms}
        return sorted(forms, key=len, reverse=True)


_registry = _Registry()


def keep_secret(*secrets: str) -> None:
    """Registers secrets: from now on `without_secrets` removes them."""
    for secret in secrets:
        for form in {secret, secret.strip()}:
            if len(form) >= _SHORTEST and form.lower() not in _PLACEHOLDERS:
                _registry.add(form)


def without_secrets(text: str) -> str:
    """Returns the text with "…" in place of every secret, however it is escaped, and of the beginning of one."""
    text = _without_forms(text, _registry.forms())
    for pattern, hidden in _PATTERNS:
        text = pattern.sub(hidden, text)
    return text


def without(text: str, quoted: Iterable[str]) -> str:
    """Returns the text with "…" in place of other texts that it quotes, escaped or cut off."""
    forms = {form for one in quoted for form in _forms_of(one)}
    return _without_forms(text, sorted(forms, key=len, reverse=True))


def _without_forms(text: str, forms: list[str]) -> str:
    for form in forms:  # whole forms first, since the beginning of one form is often that of the others
        text = _without(text, form)
    for head in {form[:_SHORTEST_PART] for form in forms if len(form) > _SHORTEST_PART}:
        if head in text:
            text = _without_beginnings(text, head, [form for form in forms if form.startswith(head)])
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


def _forms_of(secret: str) -> tuple[str, ...]:
    """Returns the forms of a secret in a text: as it is, in a URL, in JSON, in a repr, in base64."""
    raw = secret.encode("utf-8", "replace")
    encoded = [b64encode(raw).decode(), urlsafe_b64encode(raw).decode()]
    return tuple(
        dict.fromkeys(
            [
                secret, quote(secret, safe=""), quote(secret), quote_plus(secret),
                json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1],
                *encoded, *(one.rstrip("=") for one in encoded),
            ]
        )
    )  # fmt: skip


def _without(text: str, form: str) -> str:
    """Returns the text without one whole form of a secret; a short form is removed as a whole word only."""
    if len(form) >= _SHORTEST_PART:
        return text.replace(form, HIDDEN)
    return re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", HIDDEN, text) if form in text else text


def _without_beginnings(text: str, head: str, forms: list[str]) -> str:
    """Returns the text without the beginnings of forms that start with `head`: remains of a secret that was cut off."""
    found = text.find(head)
    while found >= 0:
        end = found + max(_equal(text[found : found + len(form)], form) for form in forms)
        if head.isalpha() and head.islower():  # an ordinary word, such as "ragguard"
            found = text.find(head, end)
        else:
            text = text[:found] + HIDDEN + text[end:]
            found = text.find(head, found + len(HIDDEN))
    return text


def _equal(text: str, form: str) -> int:
    """Returns how many first characters two texts have in common."""
    return next((at for at, (a, b) in enumerate(zip(text, form, strict=False)) if a != b), len(text))
