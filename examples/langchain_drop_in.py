"""A LangChain chain that is captured and scored. ragguard needs one callback.

    pip install './ragguard[langchain]'
    python ragguard/examples/langchain_drop_in.py

Model and passages come from nano's made-up world, which ships with ragguard: no GPU, no key, no download.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from ragguard import RagGuard, connect, print_hops, world
from ragguard_langchain import RagGuardCallback

NANO = connect("nano")
SEARCH = world.retriever(k=4, noise=0.2)


class WorldRetriever(BaseRetriever):
    """Searches nano's world. A fifth of the passages that it returns are random ones."""

    def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
        return [Document(p.text, id=p.id, metadata={"score": p.score}) for p in SEARCH(query)]


async def read(given: dict[str, Any]) -> AsyncIterator[str]:
    """Answers with nano from the passages, one character at a time."""
    found = "\n".join(f"- {document.page_content}" for document in given["context"])
    prompt = f"{found}\nQuestion: {given['question']}\nAnswer:"
    for letter in (await NANO.sample([prompt], n=1, max_tokens=8, temperature=0))[0][0].text:
        yield letter


async def main() -> None:
    cases = world.cases(3)
    rg = RagGuard(engine=NANO, store=None, references={case.question: case.references for case in cases}.get)
    chain = {"context": WorldRetriever(), "question": RunnablePassthrough()} | RunnableLambda(read)
    config = {"callbacks": [RagGuardCallback(rg)]}
    for answer in await chain.abatch([case.question for case in cases], config):
        print(answer)
    await rg.aflush(timeout=300)
    print_hops(rg)
    rg.close()


if __name__ == "__main__":
    asyncio.run(main())
