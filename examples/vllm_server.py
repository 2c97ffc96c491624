"""Runs and scores with a real vLLM server, whatever model it serves.

    vllm serve Qwen/Qwen3-8B                        # or any model of yours
    pip install ./ragguard
    python ragguard/examples/vllm_server.py http://localhost:8000/v1        # or URL#MODEL

`ragguard doctor URL` says what such a server can do, and what to change on it to get more.
"""

from __future__ import annotations

import asyncio
import sys

from ragguard import RagGuard, connect, load_prompts, print_hops, world


async def main(url: str) -> None:
    engine = connect(url)
    info = await engine.info()
    print(f"{info.model} at {info.location}, prompts: {info.prompts}")
    prompts, search = load_prompts(info.prompts), world.retriever(k=4, noise=0.2)
    async with RagGuard(engine=engine, store=None) as rg:
        for case in world.cases(2, hops=2):
            read: list[str] = []
            async with rg.run(case.question, references=case.references) as run:
                for hop in case.sub_questions:
                    found = search(hop)
                    run.retrieved(hop, found)
                    read += [passage.text for passage in found]
                prompt = prompts.render("answer", read, question=case.question)
                run.answered((await engine.sample([prompt], n=1, max_tokens=16, temperature=0))[0][0].text)
        await rg.aflush(timeout=600)
        print_hops(rg)
    await engine.aclose()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
