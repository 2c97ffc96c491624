"""An async service under load. It answers at once; runs are scored in the background.

pip install ./ragguard fastapi
python ragguard/examples/fastapi_service.py                 # asks itself 24 questions and prints what was measured
uvicorn --app-dir ragguard/examples fastapi_service:app     # serves, after `pip install uvicorn`
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

import httpx
from fastapi import FastAPI, Request

from ragguard import RagGuard, print_hops, world

SEARCH = world.retriever(k=3, noise=0.2)
rg = RagGuard(engine="nano", store=None, score_rate=0.25)  # all runs are captured, a quarter is scored


@asynccontextmanager
async def life(app: FastAPI) -> AsyncIterator[None]:
    """Loads the index before the first question, and finishes the scores before the service ends."""
    SEARCH("warm up")
    yield
    await rg.aclose(timeout=300)


app = FastAPI(lifespan=life)


@app.get("/ask")
async def ask(question: str, request: Request) -> dict[str, str]:
    """Retrieves and answers. The client's id is stored beside the run's own, since two requests may send the same."""
    asked = {"request_id": request.headers.get("x-request-id", "")}
    async with rg.run(question, name="/ask", metadata=asked) as run:
        await asyncio.sleep(0.02)  # as long as a search over the network takes
        run.retrieved(question, found := SEARCH(question))
        run.answered(answer := found[0].text if found else "")
    return {"answer": answer, "run": run.id}


async def timed(web: httpx.AsyncClient, id: str, question: str) -> float:
    began = time.perf_counter()
    (await web.get("/ask", params={"question": question}, headers={"x-request-id": id})).raise_for_status()
    return (time.perf_counter() - began) * 1000


async def main() -> None:
    async with life(app), httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as web:
        asked = (timed(web, f"request-{n}", case.question) for n, case in enumerate(world.cases(24)))
        times = await asyncio.gather(*asked)
        print(f"{len(times)} questions at once, {median(times):.0f} ms at the median, before any was scored")
        print(await rg.aflush(timeout=300))
        print_hops(rg)


if __name__ == "__main__":
    asyncio.run(main())
