"""A trajectory that is posted to the service becomes a run, with the tools that were declared as retrievals."""

from ragguard import RagGuard
from ragguard.serve.ingest import Ingest
from ragguard.traces.spool import Spool
from ragguard.traces.trace_spans import packed_data

STEPS = [
    {"source": "user", "message": "Which flag disables it?"},
    {"source": "agent", "message": "", "tool_calls": [
        {"tool_call_id": "c1", "function_name": "read_file", "arguments": {"path": "forms.py"}}],
     "observation": {"results": [{"source_call_id": "c1", "content": "disabled=True switches it off"}]}},
    {"source": "agent", "message": "disabled=True"},
]  # fmt: skip
TRAJECTORY = {"schema_version": "ATIF-v1.7", "session_id": "s1", "agent": {"name": "coder"}, "steps": STEPS}


async def test_a_posted_trajectory_becomes_a_run(client):
    async with client() as asked:
        done = await asked.post("/v1/traces", json=TRAJECTORY)
        assert (done.status_code, asked.ingest.spool.counts["taken"]) == (200, 4)
        asked.clock[0] += 10
        await asked.ingest.hand_over()
        assert len(asked.rg.runs()) == 0, "a plain text is no search result"
        bad = await asked.post("/v1/traces", json={**TRAJECTORY, "schema_version": "ATIF-v9"})
        assert bad.status_code == 400
        assert "ATIF-v1.0 to ATIF-v1.7" in bad.text


async def test_declared_tools_are_retrievals():
    async with RagGuard("nano", store=None, scorers=()) as rg:
        now = [1000.0]
        ingest = Ingest(
            rg, Spool(), settle=5, quiet=60, live=False, tools=["read_file"], clock=lambda: now[0]
        )
        await ingest.take(lambda: packed_data(TRAJECTORY, []))
        now[0] += 10
        await ingest.hand_over()
        (run,) = rg.runs()
        assert (run.question, run.steps[0].passages[0].text) == (
            STEPS[0]["message"],
            "disabled=True switches it off",
        )
        ingest.spool.close()
