"""A pipeline in plain Python, captured by hand: it reports what it retrieved and what it answered.

    pip install ./ragguard
    python ragguard/examples/manual_capture.py

Model and passages come from nano's made-up world, which ships with ragguard: no GPU, no key, no download.
"""

from __future__ import annotations

import asyncio

from ragguard import Passage, RagGuard, connect, print_hops, world

NANO = connect("nano")
SEARCH = world.retriever(k=6, noise=0.2)


async def answer(question: str, read: list[Passage]) -> str:
    """Answers with nano from the passages that were read."""
    found = "\n".join(f"- {passage.text}" for passage in read)
    prompt = f"{found}\nQuestion: {question}\nAnswer:"
    return (await NANO.sample([prompt], n=1, max_tokens=8, temperature=0))[0][0].text


async def ask(rg: RagGuard, case: world.Case) -> None:
    """One run: a search for each hop, the best four passages of each, then the answer."""
    read: list[Passage] = []
    async with rg.run(case.question, references=case.references, name="by hand") as run:
        for hop in case.sub_questions:
            found = SEARCH(hop)
            run.retrieved(hop, found[:4], candidates=found)
            read += found[:4]
        run.answered(await answer(case.question, read))


async def main() -> None:
    async with RagGuard(engine=NANO, store=None) as rg:
        for case in world.cases(2, hops=2):
            await ask(rg, case)
        await rg.aflush(timeout=300)
        print_hops(rg)


if __name__ == "__main__":
    asyncio.run(main())
