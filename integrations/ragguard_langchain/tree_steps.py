"""Keeps the steps in LangChain's call trees: begins and ends retrievals, and relates guards' decisions to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from ragguard.capture.decisions import TOOL_CALL, guard_decided, joined
from ragguard.capture.handle import innermost
from ragguard.capture.open_runs import Unpack
from ragguard.capture.recorder import Recorder
from ragguard.records import Decision, Passage, TraceContext
from ragguard_langchain.messages import Taken
from ragguard_langchain.open_calls import OpenCall
from ragguard_langchain.options import unpack_of
from ragguard_langchain.scopes import Scope, ToolCall, TreeRun, VerdictReport
from ragguard_langchain.spans import span_of
from ragguard_langchain.tree_runs import TreeRuns


class TreeSteps:
    """Opens and closes the steps of calls, and amends steps about which a guard has decided."""

    def __init__(self, recorder: Recorder, runs: TreeRuns) -> None:
        self.recorder, self._runs = recorder, runs

    def begin(
        self,
        open_call: OpenCall,
        query: str,
        name: str,
        metadata: Mapping[str, Any] | None,
        *,
        started_ns: int = 0,
        top_k: int | None = None,
    ) -> None:
        """Opens the step of a call; a part where the call is inside another retrieval. A tool call is given no
        `name`."""
        scope = open_call.notes
        run = scope.run
        whole = open_call.root is None and run.owned and not run.begun
        self._runs.retrieves(open_call, query)
        about: dict[str, Any] = {"retriever": name} if name else {}
        if metadata:
            if "langgraph_node" in metadata:
                about["langgraph_node"] = metadata["langgraph_node"]
            if "lc_agent_name" in metadata:
                about["agent"] = metadata["lc_agent_name"]
        if scope.tool is not None and scope.tool.id:
            about[TOOL_CALL] = scope.tool.id
        step_id = open_call.run_id if whole else str(open_call.id)
        trace = span_of(open_call.id, retrieval=bool(name))
        if trace is None and not name and scope.tool is not None:
            trace = scope.tool.trace
        if not open_call.step_id:
            run.asked(query, condensed=open_call.condenses and scope.tool is None)
        self.recorder.step_started(
            step_id, open_call.run_id, query, within=open_call.step_id, tool=open_call.tool, name=name,
            turn=open_call.turn, metadata=about, started_ns=started_ns,
            trace=trace or (run.trace if whole else "here"), top_k=top_k, followed=True,
        )  # fmt: skip
        open_call.outer_step, open_call.step_id, open_call.is_step = open_call.step_id, step_id, True
        open_call.query = query

    def end(
        self,
        open_call: OpenCall,
        found: Any,
        trace: TraceContext | None = None,
        *,
        unpack: Unpack | None = None,
    ) -> None:
        """Closes the step of a call: with a snapshot of the documents that the call returned, or with what `unpack`
        takes apart."""
        candidates, decision = self._judged(open_call, found if unpack is None else None)
        self.recorder.step_ended(
            open_call.step_id,
            found,
            unpack=unpack or unpack_of(open_call.notes.run.options),
            candidates=candidates,
            decision=decision,
            trace=trace,
        )

    def decided(self, open_call: OpenCall, report: VerdictReport) -> None:
        """Records a guard's decision that was made in a call: it is about the retrieval around the call, else about
        retrievals that have ended. Passages of no known retrieval become a step of their own."""
        if not report.verdict.judged:
            return
        run = open_call.notes.run
        if open_call.step_id:
            run.verdicts.setdefault(open_call.step_id, []).append(report.verdict)
            return
        if not guard_decided(
            self.recorder, open_call.run_id, report.verdict, query=report.query, tool_call=report.call
        ):
            self._retrieved_by_other_means(open_call, report)

    def decided_outside(self, report: VerdictReport) -> None:
        """Records a guard's decision that was made outside of any call: in the user's own code, inside a run."""
        handle = innermost(self.recorder)
        if handle is not None and handle.sampled:
            run = TreeRun(self.recorder, handle.id, "", "", {})
            run.owned, run.begun = False, True
            self.decided(OpenCall(uuid4(), run.id, Scope(run)), report)

    def _retrieved_by_other_means(self, around: OpenCall, report: VerdictReport) -> None:
        scope, decision = around.notes, report.verdict.decision
        call = scope.tool
        if report.tool:
            call = ToolCall(report.tool, report.query, report.call, report.started_ns)
        id = uuid4()
        turn = (*around.turn, around.branch_of_call(id)) if report.call else around.turn
        open_call = OpenCall(id, around.run_id, Scope(scope.run, scope.graph_node, call), turn)
        open_call.root, open_call.tool = around.root or around, report.tool or around.tool
        self.begin(
            open_call, report.query, "", report.metadata, started_ns=report.started_ns or decision.started_ns
        )
        self.recorder.step_ended(
            open_call.step_id, decision.kept, candidates=report.verdict.judged, decision=decision
        )

    def _judged(
        self, open_call: OpenCall, taken: Taken | None
    ) -> tuple[list[Passage] | None, Decision | None]:
        """Returns what a retrieval found before the guards inside it dropped passages, and what these guards decided.

        `taken` is None for a tool that gave one string: that string is split later, so the candidates are what the
        guards let through."""
        run = open_call.notes.run
        verdicts = run.verdicts.pop(open_call.step_id, None) if run.verdicts else None
        if not verdicts:
            return None, None
        if open_call.outer_step:
            parts = [replace(verdict, part=True) for verdict in verdicts]
            run.verdicts.setdefault(open_call.outer_step, []).extend(parts)
        if taken is not None:
            return joined(verdicts, unpack_of(run.options)(taken))
        if len(verdicts) == 1:
            return verdicts[0].judged, verdicts[0].decision
        return joined(verdicts, [passage for verdict in verdicts for passage in verdict.decision.kept])
