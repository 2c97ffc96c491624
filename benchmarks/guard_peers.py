"""Other tools that cut passages: LangChain's LLMChainFilter, LlamaIndex's SimilarityPostprocessor; on the guard's
model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.resources import as_file, files

import numpy as np
from langchain_classic.output_parsers.boolean import BooleanOutputParser
from langchain_classic.retrievers.document_compressors import LLMChainFilter
from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import NodeWithScore, TextNode
from numpy.typing import NDArray

from ragguard.engines.base import Engine
from ragguard.engines.nano.nano_engine import load_tokenizer
from ragguard.engines.prompts import load_prompts
from ragguard.records import Passage


class ChainFilter:
    """LLMChainFilter, whose prompt is the relevance prompt in nano's words and whose answer is one greedy word."""

    def __init__(self, engine: Engine) -> None:
        rendered = load_prompts("nano").render("relevance", ["{context}"], query="{question}")
        text = "\n".join(message.content for message in rendered.messages)

        def say(prompt: PromptValue) -> str:
            drawn = asyncio.run(engine.sample([prompt.to_string()], n=1, max_tokens=1, temperature=0.0))
            return drawn[0][0].text

        async def asay(prompt: PromptValue) -> str:
            drawn = await engine.sample([prompt.to_string()], n=1, max_tokens=1, temperature=0.0)
            return drawn[0][0].text

        parser = BooleanOutputParser(true_val="A", false_val="B")
        chain = PromptTemplate.from_template(text) | RunnableLambda(say, afunc=asay) | parser
        self._filter = LLMChainFilter(llm_chain=chain)

    async def kept(self, query: str, passages: Sequence[Passage]) -> list[int]:
        """The places of the passages that stay."""
        given = [Document(passage.text, metadata={"at": place}) for place, passage in enumerate(passages)]
        return [one.metadata["at"] for one in await self._filter.acompress_documents(given, query)]


class Similarity:
    """SimilarityPostprocessor over the cosine of mean word vectors: those of nano's own embedding."""

    def __init__(self, cutoff: float = 0.0) -> None:
        package = files("ragguard.engines.nano")
        with as_file(package / "weights.npz") as path, np.load(path) as arrays:
            self._vectors = arrays["embed"].astype(np.float32)
        self._filter = SimilarityPostprocessor(similarity_cutoff=cutoff)

    def scores(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Returns how like the query each passage is."""
        asked = self._vector(query)
        return [float(asked @ self._vector(passage.text)) for passage in passages]

    def kept(self, query: str, passages: Sequence[Passage]) -> list[int]:
        """The places of the passages that stay."""
        nodes = [
            NodeWithScore(node=TextNode(text=passage.text, metadata={"at": place}), score=score)
            for place, (passage, score) in enumerate(zip(passages, self.scores(query, passages), strict=True))
        ]
        return [one.node.metadata["at"] for one in self._filter.postprocess_nodes(nodes, query_str=query)]

    def _vector(self, text: str) -> NDArray[np.float32]:
        mean: NDArray[np.float32] = self._vectors[load_tokenizer().encode(text)].mean(axis=0)
        return mean / (np.linalg.norm(mean) or 1.0)
