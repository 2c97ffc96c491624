"""Pictures of a scored two-hop run as Phoenix shows it: `make pictures` puts them into docs/images/."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import httpx
from support.browser import Browser, chromium
from support.environments import PHOENIX
from support.phoenix_server import serve

from ragguard import DistractorGuard, RagGuard, world
from ragguard.telemetry.back_ends import PhoenixSink

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PROJECT = "two hops"
SPANS = """query ($id: ID!) { node(id: $id) { ... on Project { spans(first: 99) { edges { node {
    id name spanKind startTime attributes trace { traceId } documentEvaluations { name } } } } } } }"""


async def send(url: str) -> None:
    """An agent's run of two guarded hops, of a case in which the guard has something to drop."""
    rg = RagGuard("nano", store=None, sinks=[PhoenixSink(url, project=PROJECT, capture_content=True)])
    guard, search = DistractorGuard(rg.engine, budget_ms=5_000), world.retriever(k=4)
    most = -1
    for one in world.cases(30, hops=2):
        found = {query: search(query) for query in one.sub_questions}
        decisions = [await guard.aprune(query, passages) for query, passages in found.items()]
        dropped = sum(len(decision.dropped) for decision in decisions if decision.kept)
        if dropped > most:
            most, case, finds = dropped, one, found
    async with rg.run(case.question, references=case.references, name="agent") as run:
        for query, found in finds.items():
            started = time.time_ns()
            decision = await guard.aprune(query, found)
            run.retrieved(
                query, decision.kept, candidates=found, decision=decision, tool="search", started_ns=started
            )
        run.answered(case.references[0])
    assert await rg.aflush(timeout=120)
    await rg.aclose()


def arrived(url: str) -> dict[str, dict]:
    """The first span of each name (of guards one that dropped something), once Phoenix has them and their scores."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        projects = httpx.get(f"{url}/v1/projects").json()["data"]
        for project in projects:
            body = {"query": SPANS, "variables": {"id": project["id"]}}
            edges = httpx.post(f"{url}/graphql", json=body).json()["data"]["node"]["spans"]["edges"]
            spans = sorted((edge["node"] for edge in edges), key=lambda span: span["startTime"], reverse=True)
            retrievals = [span for span in spans if span["spanKind"] == "retriever"]
            if len(spans) >= 8 and all(span["documentEvaluations"] for span in retrievals):
                spans.sort(key=lambda span: '"pruned"' in span["attributes"])
                return {span["name"]: span | {"project": project["id"]} for span in spans}
        time.sleep(0.5)
    raise TimeoutError("Phoenix did not take in the run")


def picture(browser: Browser, url: str, span: dict, name: str, height: int, opened: str = "") -> None:
    """The page on which that span is selected, with one of its cards opened."""
    path = f"/projects/{span['project']}/traces/{span['trace']['traceId']}?selectedSpanNodeId={span['id']}"
    page = browser.open(url + path, 1500, height, dark=True, until="document.readyState === 'complete'")
    page.wait(f"document.querySelector('h2, h3') && document.body.innerText.includes('{span['name']}')")
    if opened:
        page.wait(f"""(() => {{
            const button = document.querySelector("button[aria-label={opened}]");
            if (button?.ariaExpanded === "false") button.click();
            return button?.ariaExpanded === "true";
        }})()""")
    page.value("new Promise((done) => setTimeout(done, 2000))")  # while it draws
    page.picture(IMAGES / f"{name}.png")


def main() -> None:
    """One picture a kind of span."""
    PHOENIX.install()
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as url, chromium() as browser:
        asyncio.run(send(url))
        spans = arrived(url)
        picture(browser, url, spans["run agent"], "phoenix-run", 900, "Annotations")
        picture(browser, url, spans["retrieval search"], "phoenix-retrieval", 1500)
        picture(browser, url, spans["guard"], "phoenix-guard", 800)


if __name__ == "__main__":
    main()
