"""The servers that people have: `doctor` says what each is, and a hop gets its scores there."""

from __future__ import annotations

import pytest
from support.misbehaving_server import serving
from support.providers import KEY, PROVIDERS
from typer.testing import CliRunner

from ragguard import RagGuard
from ragguard.cli.app import app


@pytest.fixture(params=PROVIDERS)
def provider(request, monkeypatch):
    """Yields a provider, its address here, and the requests that it gets; its key stands in the environment."""
    found, asked = PROVIDERS[request.param], []
    for name in ("RAGGUARD_API_KEY", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    if found.key_name:
        monkeypatch.setenv(found.key_name, KEY)

    def handle(sent):
        asked.append(sent)
        return found.handle(sent)

    with serving(handle) as url:
        yield found, url.removesuffix("/v1") + found.path, asked


def test_doctor_says_how_exact_the_server_is(provider):
    found, address, asked = provider
    result = CliRunner().invoke(app, ["doctor", address])
    assert result.exit_code == 0, result.output
    last = result.stdout.splitlines()[-1]
    assert last.startswith("ready: exact" if found.exact else "ready: estimated"), result.output
    assert len(asked) < 400  # 961 and more where each label costs a request a sample
    assert KEY not in result.output


def test_hop_gets_utility_and_belief(provider):
    found, address, asked = provider
    with RagGuard(engine=address, scorers=["utility", "belief"], store=None) as rg:
        with rg.run("Who wrote it?", references=["Ada Berg"]) as run:
            run.retrieved("author", ["Ada Berg wrote it.", "It is long."])
        assert rg.flush(timeout=60), rg.flush()
        names = {score.name for score in rg.scores(run.id)}
    assert {"utility", "p_abstain", "p_relevant", "delta_seper"} <= names
    wanted = [sent.json.get("n", 1) for sent in asked if sent.path.endswith("/chat/completions")]
    # A limit is learnt from the first refusal: only what is in flight at that moment is refused as well.
    assert sum(n > found.most_choices for n in wanted) <= 8
