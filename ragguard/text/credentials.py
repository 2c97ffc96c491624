"""Checks keys and addresses before they are used, and registers what is secret in them."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ragguard.errors import InvalidInput
from ragguard.text.secret_filter import keep_secret, without_secrets

_HEADERS = "a mapping from names to values of printable ASCII characters, such as {'api-key': KEY}"
_HEADER_NAME = re.compile(r"(?!(?i:content-length|transfer-encoding)$)[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The names of headers, but for those that follow from the body of a request."""
_HOLDS_KEYS = re.compile("auth|key|token|secret|password|cookie", re.IGNORECASE)
"""The header names whose values are secret whatever they look like."""
_ORDINARY_WORD = re.compile("[A-Za-z][a-z]{0,15}")


class Credentials(NamedTuple):
    """The user and the password of an address."""

    user: str
    password: str

    @property
    def header(self) -> str:
        """The value of an `Authorization` header."""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


def checked_key(argument: str, value: object) -> str:
    """Returns a key without the white space around it, such as the line end of a mounted secret, and registers it.

    Raises InvalidInput for a key that no HTTP header can hold; the key itself is not shown.
    """
    if not isinstance(value, str):
        raise InvalidInput(argument, type(value).__name__, "a text")
    keep_secret(value)
    key = value.strip()
    if not all("!" <= character <= "~" for character in key):
        allowed = "a key of printable ASCII characters without spaces"
        raise InvalidInput(argument, f"{len(key)} characters", allowed)
    return key


def checked_headers(argument: str, given: object) -> dict[str, str]:
    """Returns HTTP headers, whose values are registered as secrets: they may hold a key. An ordinary word, as in
    `X-Team: search`, is none: it would be hidden wherever else it stands.

    Raises InvalidInput for what no HTTP header can hold; the values are not shown.
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(argument, type(given).__name__, _HEADERS)
    try:
        items = list(given.items())
    except Exception as error:  # a mapping of the user's own may raise anything when it is read
        raise InvalidInput(argument, "a mapping that cannot be read", _HEADERS) from error
    headers = {}
    for name, value in items:
        if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name.strip()) and isinstance(value, str)):
            raise InvalidInput(argument, f"a header named {str(name)[:40]!r}", _HEADERS)
        if _HOLDS_KEYS.search(name) or not _ORDINARY_WORD.fullmatch(value.strip()):
            keep_secret(value.strip())
        if not value.strip().isascii() or not value.strip().isprintable():
            raise InvalidInput(argument, f"a value of {name.strip()} with other characters", _HEADERS)
        headers[name.strip()] = value.strip()
    return headers


def keep_keys_secret(options: Mapping[str, Any]) -> None:
    """Registers the values of options that hold keys by their names, such as `hf_token`, also within other options."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            keep_keys_secret(value)
        elif isinstance(value, str) and _HOLDS_KEYS.search(str(name)):
            keep_secret(value)


def header_lines(argument: str, text: str) -> dict[str, str]:
    """Returns the headers of a text with one `NAME: VALUE` a line."""
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    if not all(colon for _, colon, _ in lines):
        raise InvalidInput(argument, "a line without a colon", "NAME: VALUE, one a line")
    return checked_headers(argument, {name: value for name, _, value in lines})


def split_credentials(argument: str, url: str, allowed: str) -> tuple[str, Credentials | None]:
    """Returns an address without its user and password, and these two, registered as secrets. What else may be a key,
    the values of its query, is registered as well.

    Raises InvalidInput for an address whose password holds a "/", "#" or "?" that is not percent-encoded.
    """
    if not isinstance(url, str):
        raise InvalidInput(argument, url, allowed)
    url = url.strip()
    try:
        parts = urlsplit(url)
        _ = parts.port
        # A model's name behind "#" may hold an "@"; without a path before it, it is a password that was torn apart.
        torn = "@" in parts.path + parts.query + ("" if parts.path else parts.fragment)
    except ValueError:
        torn = True
    if torn:
        userinfo = url.partition("://")[2].rpartition("@")[0]
        keep_secret(userinfo, userinfo.partition(":")[2])
        raise InvalidInput(
            argument, without_secrets(url),
            f"{allowed}; '/', '#', '?' and '@' in a password are written as %2F, %23, %3F and %40",
        )  # fmt: skip
    for name, value in parse_qsl(parts.query):
        if name != "model":
            keep_secret(value, quote(value, safe=""))
    if "@" not in parts.netloc:
        return url, None
    userinfo, _, host = parts.netloc.rpartition("@")
    credentials = Credentials(unquote(parts.username or ""), unquote(parts.password or ""))
    encoded = credentials.header.removeprefix("Basic ")
    keep_secret(credentials.user, credentials.password, userinfo, encoded, encoded.rstrip("="))
    return parts._replace(netloc=host).geturl(), credentials if credentials.user else None
