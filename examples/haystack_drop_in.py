"""A Haystack pipeline that is captured and scored. ragguard needs two lines.

    pip install './ragguard[haystack]'
    python ragguard/examples/haystack_drop_in.py

Documents and model come from nano's made-up world, which ships with ragguard: no GPU, no key, no download.
"""

import asyncio

from haystack import Document, Pipeline, component
from haystack.components.builders import PromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from ragguard import RagGuard, connect, print_hops, world
from ragguard_haystack import instrument

NANO, CASES = connect("nano"), world.cases(3)
PROMPT = "{% for one in documents %}- {{ one.content }}\n{% endfor %}Question: {{ question }}\nAnswer:"


@component
class Nano:
    """nano, as a generator of Haystack."""

    @component.output_types(replies=list[str])
    def run(self, prompt: str):
        """Answers a prompt."""
        samples = asyncio.run(NANO.sample([prompt], n=1, max_tokens=8, temperature=0))
        return {"replies": [samples[0][0].text]}


documents = InMemoryDocumentStore()
texts = {passage.text for case in CASES for passage in case.pool()}
documents.write_documents([Document(content=text) for text in sorted(texts)])
pipeline = Pipeline()
pipeline.add_component("retriever", InMemoryBM25Retriever(documents, top_k=4))
pipeline.add_component("prompt", PromptBuilder(PROMPT, required_variables="*"))
pipeline.add_component("nano", Nano())
pipeline.connect("retriever.documents", "prompt.documents")
pipeline.connect("prompt", "nano")

with RagGuard(engine=NANO, store=None) as rg:  # 1: the scorer
    instrument(rg)  # 2: every pipeline of this process
    for case in CASES:
        with rg.run(case.question, references=case.references):
            given = {"retriever": {"query": case.question}, "prompt": {"question": case.question}}
            reply = pipeline.run(given)
            print(case.question, "→", reply["nano"]["replies"][0])
    rg.flush(timeout=300)
    print_hops(rg)
