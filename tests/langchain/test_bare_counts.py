"""A bare retriever's call is counted as the run that it is."""

import pytest
from support.langchain_parts import ListRetriever

from ragguard import RagGuard
from ragguard_langchain import RagGuardCallback


@pytest.mark.parametrize("scorers", [(), ["utility"]])
def test_runs_of_a_bare_retriever_are_in_the_report_of_flush(scorers):
    with RagGuard(engine="nano", store=None, scorers=scorers) as rg:
        config = {"callbacks": [RagGuardCallback(rg)]}
        for number in range(1, 4):
            ListRetriever().invoke("Who founded the firm?", config)
            report = rg.flush()
            assert report
            assert (report.captured, report.steps, report.no_capture_reason) == (number, number, "")
            assert report.unscored == (0 if scorers else number)
        assert "everything is" in str(report)
