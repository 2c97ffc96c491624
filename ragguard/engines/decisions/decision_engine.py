"""DecisionEngine: a server that answers typed questions. It judges and does not read: it writes no text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from ragguard.engines.decisions.decision_model import Decided, DecisionModel, info_of
from ragguard.engines.decisions.questions import TypedQuestion
from ragguard.engines.decisions.wires import WIRES, Wire
from ragguard.engines.http.body import usage_of
from ragguard.engines.http.http_client import HttpClient
from ragguard.engines.http.served import HttpEngine, ServedModel, served_model
from ragguard.engines.layers.retry import Patience
from ragguard.errors import EngineOverloaded, EngineRejected, UnfitText

_LABELS_INSTEAD = (
    "give the same server without `{}:`, so that it is asked for labels, if it shows log-probabilities"
)
_PUBLISHED: Mapping[tuple[str, str], float] = {("api.openai.com", "gpt-6-luna"): 0.10}
"""Published prices of a million tokens read, in dollars, by host and model; answers are free (read 2026-11-23)."""
_EXACTLY = 1e-9
"""The distance from 1 up to which a sum is 1: no model puts so little on all else, so that no mass was told."""
_REFUSED = re.compile(r"refus|declin|content[_ ]policy|safety|moderation", re.IGNORECASE)


class DecisionEngine(HttpEngine):
    """The decision model behind a server, such as `systemone:https://HOST/v1#MODEL` or `decisions:http://HOST/v1`.

    Args:
        scheme: `systemone`, or `decisions` for OpenAI's form or SGLang's, whichever the server speaks.
        url: The server's address.
        model: The model to ask for, where the server has several. None: the only one.
        api_key: The key that the server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take.
        headers: More headers of each request. None: those of RAGGUARD_HEADERS alone.
        at_once: How many requests may be in flight together.
    """

    only_judges = True

    def __init__(
        self,
        scheme: str,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        headers: Mapping[str, str] | None = None,
        at_once: int = 16,
    ) -> None:
        super().__init__(
            url, model, api_key=api_key, timeout_s=timeout_s, connections=at_once, headers=headers
        )
        self._scheme, self._at_once = scheme, at_once

    async def look(self) -> DecisionModel:
        """Asks one question in each form until the server answers."""
        served = await served_model(self._client, self._wanted)
        found = await find_decisions(self._client, served, WIRES[self._scheme], self._at_once)
        if isinstance(found, DecisionModel):
            return found
        raise EngineRejected(
            f"{self._client.address.base} does not answer typed questions in the form of {self._scheme}: "
            f"{'; '.join(found)}; {_LABELS_INSTEAD.format(self._scheme)}"
        )


async def find_decisions(
    client: HttpClient, served: ServedModel, wires: Sequence[Wire], at_once: int
) -> DecisionModel | list[str]:
    """Asks one question in each form until the server answers; returns the model, or what was said to each form."""
    base, faults = client.address.base, list[str]()
    trial = TypedQuestion("Does the text name a town?", ("yes", "no"), ("it names one", "it names none"))
    for wire in wires:
        decide = partial(_decide, client, wire, served.id)
        try:
            (answer,), _ = await decide("Oslo is a town.", [trial], None)
        except (EngineRejected, EngineOverloaded) as error:
            if error.status not in (400, 404, 405, 415, 422, 501):
                raise
            faults.append(str(error))
            continue
        server = hashlib.sha256(base.encode()).hexdigest()[:12]
        notes = [served.note] if served.note else []
        if price := _PUBLISHED.get((urlsplit(base).hostname or "", served.id)):
            notes.append(
                f"published price: ${price:.2f} for a million tokens read: Price(prompt={price}, output=0)"
            )
        info = info_of(served.id, f"{wire.name}/{served.id}/{server}", base, tuple(notes))
        if sum(answer.p) < 1 - _EXACTLY:
            info = replace(info, capabilities=info.capabilities | {"label_mass"})
        return DecisionModel(info, decide, Patience(), at_once)
    return faults


async def _decide(
    client: HttpClient,
    wire: Wire,
    model: str,
    state: str,
    questions: Sequence[TypedQuestion],
    deadline: float | None,
) -> Decided:
    try:
        reply = await client.post(wire.path, wire.body(model, state, questions), deadline=deadline)
    except EngineRejected as error:
        if error.status == 400 and _REFUSED.search(str(error)):
            raise UnfitText(f"the server declined to judge a text: {error}") from error
        raise
    url = f"POST {client.address.base}{wire.path}"
    return wire.answers(reply, questions, url), usage_of(reply, len(questions))
