"""Attaches capture to LlamaIndex's dispatcher and detaches it, and finds the call that plain code runs in, so that
`ragguard.retrieved` finds its run."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from llama_index.core.instrumentation.events.llm import LLMChatEndEvent, LLMCompletionEndEvent
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.event_handlers import BaseEventHandler
from llama_index_instrumentation.span import BaseSpan
from llama_index_instrumentation.span_handlers import BaseSpanHandler

from ragguard.capture.declarations import CaptureOptions, Locate, Tools
from ragguard.capture.plain_steps import CurrentCall, frameworks
from ragguard.capture.recorder import recorder_of
from ragguard.runtime.per_process import PerProcess
from ragguard_llamaindex.calls import Call, Kind, note_step
from ragguard_llamaindex.runs import retrieves, step_metadata
from ragguard_llamaindex.spans import Spans

if TYPE_CHECKING:
    from ragguard import RagGuard


class SpanHandler(BaseSpanHandler[BaseSpan]):
    """The handler that the dispatcher calls. It makes no spans of its own, so that the dispatcher keeps none."""

    spans: ClassVar[Spans]

    def __init__(self, spans: Spans) -> None:
        super().__init__()
        # Set past pydantic, whose private attributes take microseconds to read; the hooks are bound methods of `spans`.
        object.__setattr__(self, "spans", spans)
        object.__setattr__(self, "span_enter", spans.entered)
        object.__setattr__(self, "span_exit", spans.exited)
        object.__setattr__(self, "span_drop", spans.dropped)

    @classmethod
    def class_name(cls) -> str:
        """Returns the name of this handler for LlamaIndex."""
        return "RagGuardSpanHandler"

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Makes no span, so that the dispatcher keeps none."""

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
        """Keeps no span."""

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
        """Keeps no span."""


class StreamEnds(BaseEventHandler):
    """Hears of the ends of streamed replies, which no span tells of."""

    spans: ClassVar[Spans]

    def __init__(self, spans: Spans) -> None:
        super().__init__()
        object.__setattr__(self, "spans", spans)  # as above

    @classmethod
    def class_name(cls) -> str:
        """Returns the name of this handler for LlamaIndex."""
        return "RagGuardStreamEnds"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Takes in an event; of the many only the end of a reply matters."""
        if type(event) in _ENDS and event.span_id is not None:
            self.spans.replied(event.span_id, event.response)  # type: ignore[attr-defined]


_ENDS = (LLMChatEndEvent, LLMCompletionEndEvent)
_lock = PerProcess(threading.Lock)


def instrument(
    rg: RagGuard,
    *,
    tools: Tools | None = None,
    question: str | Locate | None = None,
    answer: str | Locate | None = None,
) -> None:
    """Captures every LlamaIndex pipeline of this process that retrieves, from now on.

    Calling it again changes what is attached: one RagGuard at a time. A pipeline may say more in LlamaIndex's own
    `instrument_tags`: `ragguard_references`, `ragguard_name`, `ragguard_run_id`,
    `ragguard_resume`; inside `with rg.run(...)` it joins that run.

    Args:
        rg: The RagGuard that gets the runs.
        tools: Tools that retrieve and return text or JSON: name → splitter (`ragguard.splitters` has the usual
            ones), or a list of the names of those that give search results, MCP's among them. `auto`: every tool is
            a retrieval whose output has the shape of a search result; it is read in the hook, and a log line says
            once which tools it took. Retrievers inside tools, and tools that return nodes or documents, need no
            declaration.
        question: Where a pipeline of your own has its question: a key of its start event, or a function of
            it, which runs inside the application. None: the usual places.
        answer: Where a pipeline of your own has its answer: a key of its result, or a function of it, which runs
            inside the application. None: the usual places.
    """
    recorder = recorder_of(rg)
    options = CaptureOptions.checked(tools, question, answer)
    recorder.here.calls.declared.update(options.tools)
    with _lock.get():
        found = attached()
        for handler in found:
            if handler.spans.recorder is recorder:
                handler.spans.runs.options = options
                return
        _detach(found)
        spans, root = Spans(recorder, options), get_dispatcher("root")
        root.add_span_handler(SpanHandler(spans))
        root.add_event_handler(StreamEnds(spans))


def uninstrument() -> None:
    """Stops capturing; open runs end now, with the status `interrupted`."""
    with _lock.get():
        _detach(attached())


def attached() -> list[SpanHandler]:
    """Returns the handlers that capture: none or one."""
    return [one for one in get_dispatcher("root").span_handlers if isinstance(one, SpanHandler)]


def _detach(handlers: list[SpanHandler]) -> None:
    dispatcher = get_dispatcher("root")
    # By identity, since LlamaIndex's handlers compare by value. A new list: another thread may iterate the old one.
    dispatcher.span_handlers = [
        one for one in dispatcher.span_handlers if all(one is not old for old in handlers)
    ]
    gone = [handler.spans for handler in handlers]
    dispatcher.event_handlers = [
        one for one in dispatcher.event_handlers if not (isinstance(one, StreamEnds) and one.spans in gone)
    ]
    for spans in gone:
        spans.close()


def current_call() -> CurrentCall | None:
    """Returns the innermost captured call around the caller; None outside of any."""
    for handler in attached():
        call = handler.spans.here()
        if call is not None and call.kind is not Kind.IGNORED:
            return CurrentCall(
                handler.spans.recorder, call.run.id, call.tool, call.turn, within=call.step_id, names=call.run.names,
                about=step_metadata(call), begin=partial(_begin, handler.spans, call), ended=partial(_ended, call),
                path=call.path,
            )  # fmt: skip
    return None


def _begin(spans: Spans, call: Call, query: str) -> None:
    spans.runs.begin(call.run)
    retrieves(call)


def _ended(call: Call, step_id: str) -> None:
    if not call.step_id:
        note_step(call, step_id)


frameworks["llama-index"] = current_call
