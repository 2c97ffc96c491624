"""A LlamaIndex query engine that is captured and scored. ragguard needs one line, `instrument(rg)`.

    pip install './ragguard[llama-index]'
    python ragguard/examples/llamaindex_drop_in.py

Model and passages come from nano's made-up world, which ships with ragguard: no GPU, no key, no download.
"""

import asyncio
from typing import Any, ClassVar

from llama_index.core import PromptTemplate
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from ragguard import RagGuard, connect, print_hops, world
from ragguard_llamaindex import instrument

NANO, CASES, SEARCH = connect("nano"), world.cases(3), world.retriever(k=4, noise=0.2)


class WorldRetriever(BaseRetriever):
    """Searches nano's world. A fifth of the passages that it returns are random ones."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = SEARCH(query_bundle.query_str)
        return [NodeWithScore(node=TextNode(id_=p.id, text=p.text), score=p.score) for p in found]


class Nano(CustomLLM):
    """nano, as a language model of LlamaIndex."""

    metadata: ClassVar[LLMMetadata] = LLMMetadata(model_name="nano")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        bulleted = prompt.replace("\n\n", "\n- ")  # its passages are a list
        samples = asyncio.run(NANO.sample([bulleted], n=1, max_tokens=8, temperature=0))
        return CompletionResponse(text=samples[0][0].text)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        text = self.complete(prompt).text
        yield CompletionResponse(text=text, delta=text)


rg = RagGuard(engine=NANO, store=None, references={case.question: case.references for case in CASES}.get)
instrument(rg)
template = PromptTemplate("- {context_str}\nQuestion: {query_str}\nAnswer:")
engine = RetrieverQueryEngine.from_args(WorldRetriever(), Nano(), text_qa_template=template)
for case in CASES:
    print(case.question, "→", engine.query(case.question))
rg.flush(timeout=300)
print_hops(rg)
rg.close()
