"""Addresses of servers, and the key in the environment that goes to one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from ragguard.errors import InvalidInput
from ragguard.text.credentials import Credentials, checked_key, split_credentials


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a server's address."""

    base: str
    """The URL before the OpenAI paths, such as `http://host:8000/v1`."""
    root: str
    """The URL before vLLM's own paths (`/version`, `/tokenize`)."""
    model: str | None = None
    """The model named in the address: `…/v1#MODEL` or `…/v1?model=MODEL`."""
    credentials: Credentials | None = field(default=None, repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The parameters that each request carries, such as `api-version`; they may hold a key and are never shown."""
    loopback: bool = False

    @property
    def is_azure(self) -> bool:
        """True for Azure's OpenAI service, which wants the key in a header of its own."""
        return ".azure.com" in self.base or "/openai/deployments/" in self.base


def parse_address(url: str) -> Address:
    """Takes an address apart: `http(s)://host:port/v1`, with or without `/v1`, `#model` or `?model=`. Other
    parameters of the query are sent with each request. A deployment of Azure's names its model in the path."""
    allowed = "http(s)://HOST[:PORT][/v1][#MODEL]"
    bare, credentials = split_credentials("engine", url, allowed)
    parts = urlsplit(bare)
    host, port = parts.hostname, parts.port
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInput("engine", bare, allowed)
    name = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{name}" + (f":{port}" if port else "")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    base = origin + (path or "/v1")
    query = parse_qsl(parts.query)
    asked = unquote(parts.fragment) or next((value for name, value in query if name == "model"), "")
    asked = asked or unquote(path.partition("/openai/deployments/")[2].partition("/")[0])
    sent = tuple((name, value) for name, value in query if name != "model")
    return Address(
        base,
        base.removesuffix("/v1"),
        asked or None,
        credentials,
        query=sent,
        loopback=host in ("127.0.0.1", "localhost", "::1"),
    )


def key_from_environment(address: Address) -> str | None:
    """Returns `RAGGUARD_API_KEY`, else `OPENAI_API_KEY`, which goes over https or to this machine only. For Azure that
    is `AZURE_OPENAI_API_KEY`."""
    names = ["RAGGUARD_API_KEY"]
    if address.loopback or address.base.startswith("https:"):
        names.append("AZURE_OPENAI_API_KEY" if address.is_azure else "OPENAI_API_KEY")
    return next((key for name in names if (key := checked_key(name, os.environ.get(name, "")))), None)
