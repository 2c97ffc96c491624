"""JudgingChat: a model of chat completions whose server answers typed questions, too. It reads by the former and judges
by the latter."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ragguard.engines.base import EngineInfo, LabelProbs, Samples
from ragguard.engines.decisions.decision_engine import find_decisions
from ragguard.engines.decisions.decision_model import FORM, DecisionModel
from ragguard.engines.decisions.wires import WIRES
from ragguard.engines.engine import FoundModel
from ragguard.engines.http.http_client import HttpClient
from ragguard.engines.http.openai import ChatModel
from ragguard.engines.http.served import ServedModel
from ragguard.engines.requests.continuations import ContinuationReply, ContinuationRequest
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.errors import EngineError, EngineProtocolError
from ragguard.runtime.notices import NOTICES


@dataclass(frozen=True, slots=True)
class JudgingChat:
    """A `FoundModel`: label questions that carry options go to `judge`, everything else to `reader`."""

    info: EngineInfo
    reader: FoundModel
    judge: DecisionModel

    async def labels(self, request: LabelRequest) -> LabelProbs:
        """Returns the probability of each label."""
        return await (self.judge if request.is_typed(self.info) else self.reader).labels(request)

    async def draws(self, request: DrawRequest) -> Samples:
        """Has the reader draw answers."""
        return await self.reader.draws(request)

    async def continuations(self, request: ContinuationRequest) -> ContinuationReply:
        """Asks the reader how probable given texts are."""
        return await self.reader.continuations(request)


async def with_decisions(
    reader: ChatModel, client: HttpClient, served: ServedModel, at_once: int
) -> FoundModel:
    """Returns a model that judges by typed questions where its server answers these, else the model as it is.

    A server of chat completions takes one prompt a request: typed questions are fewer requests at equal numbers, and
    exact where labels would be sampled (docs/studies/decisions.md). Labels that the server shows, with how much of its
    probability lies on them, are not given up for typed questions that do not tell that.
    """
    try:
        judge = await find_decisions(
            client, served, [wire for some in WIRES.values() for wire in some], at_once
        )
    except EngineProtocolError:  # something answers there, and not typed questions
        return reader
    except EngineError as error:
        unknown = f"labels judge: whether the server answers typed questions could not be found out ({error})"
        return replace(reader, info=replace(reader.info, notes=(*reader.info.notes, unknown)))
    if not isinstance(judge, DecisionModel):
        return reader
    tells_mass = judge.info.capabilities & {"label_mass"}
    if "top_logprobs" in reader.info.capabilities and not tells_mass:
        return reader
    form = judge.info.fingerprint.split("/")[1]
    said = (
        f"{client.address.base} answers typed questions, too: it judges by these ({form}), all questions about a "
        f"passage in one request; `labels:{client.address.base}` judges by labels"
    )
    NOTICES.once(f"typed questions of {client.address.base}", said)
    info = replace(
        reader.info,
        prompts="default+decisions",
        fingerprint=f"{reader.info.fingerprint}+judges:{form}/{FORM}",
        capabilities=reader.info.capabilities | {"typed_questions"} | tells_mass,
        notes=(*reader.info.notes, said),
    )
    return JudgingChat(info, reader, judge)
