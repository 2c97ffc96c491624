"""`ragguard init` on small real projects: what it prints is run against the real framework."""

import os
import re
import textwrap
from functools import partial

import pytest
from support.commands import ragguard
from support.warm_python import run_python

from ragguard.engines import connect as connecting

pytestmark = pytest.mark.slow

PROGRAMS = {
    "LangChain": """
        '''A program.'''
        from langchain_core.documents import Document
        from langchain_core.retrievers import BaseRetriever


        class Search(BaseRetriever):
            def _get_relevant_documents(self, query, *, run_manager):
                return [Document("Elmer Hagblad was born in East Dundale.")]


        if __name__ == "__main__":
            Search().invoke("Where was Elmer Hagblad born?")
    """,
    "LangGraph": """
        from langchain_core.documents import Document
        from langchain_core.retrievers import BaseRetriever
        from langgraph.graph import END, START, MessagesState, StateGraph


        class Search(BaseRetriever):
            def _get_relevant_documents(self, query, *, run_manager):
                return [Document("Elmer Hagblad was born in East Dundale.")]


        def look(state):
            Search().invoke(state["messages"][-1].content)
            return {"messages": []}


        graph = StateGraph(MessagesState)
        graph.add_node("look", look)
        graph.add_edge(START, "look")
        graph.add_edge("look", END)
        graph.compile().invoke({"messages": [("user", "Where was Elmer Hagblad born?")]})
    """,
    "LlamaIndex": """
        from llama_index.core.base.base_retriever import BaseRetriever
        from llama_index.core.schema import NodeWithScore, TextNode


        class Search(BaseRetriever):
            def _retrieve(self, query_bundle):
                return [NodeWithScore(node=TextNode(text="Elmer Hagblad was born in East Dundale."))]


        if __name__ == "__main__":
            Search().retrieve("Where was Elmer Hagblad born?")
    """,
    "Haystack": """
        from haystack import Document, Pipeline
        from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
        from haystack.document_stores.in_memory import InMemoryDocumentStore

        documents = InMemoryDocumentStore()
        documents.write_documents([Document(content="Elmer Hagblad was born in East Dundale.")])
        pipeline = Pipeline()
        pipeline.add_component("retriever", InMemoryBM25Retriever(documents))
        pipeline.run({"retriever": {"query": "Where was Elmer Hagblad born?"}})
    """,
}
SHOW = "\nrg.flush(timeout=60)\nprint([(run.question, len(run.steps)) for run in rg.runs()])\n"


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Writes a project's files, and makes its folder the current one."""
    monkeypatch.chdir(tmp_path)

    def written(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(textwrap.dedent(text).lstrip().encode())
        return tmp_path

    return written


@pytest.fixture(autouse=True)
def no_engine(monkeypatch):
    """No engine is named, and none answers on this machine."""
    for name in ("RAGGUARD_ENGINE", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(connecting, "PORTS", ())
    connecting.local_server.cache_clear()
    yield
    connecting.local_server.cache_clear()


init = partial(ragguard, "init")


def printed(output):
    """The lines that are to be added, as they are printed."""
    return "\n".join(line[4:] for line in output.splitlines() if line.startswith("    ") or not line)


def carried_out(path):
    environment = {**os.environ, "RAGGUARD_ENGINE": "nano", "HAYSTACK_TELEMETRY_ENABLED": "False"}
    return run_python(str(path), cwd=path.parent, environment=environment)


@pytest.mark.parametrize("framework", PROGRAMS)
def test_written_lines_capture_the_retrieval_of_the_real_framework(make, framework):
    folder = make(app_dot_py=PROGRAMS[framework])
    before = (folder / "app.py").read_text()
    shown = init(code=0)
    assert f"found {framework.replace('Graph', 'Chain')} (app.py:" in shown.output
    assert (folder / "app.py").read_text() == before
    init("--write", code=0)
    after = (folder / "app.py").read_text()
    assert printed(shown.output).strip() in after
    assert after.replace(printed(shown.output).strip(), "").split() == before.split()
    (folder / "app.py").write_text(after + SHOW)
    ran = carried_out(folder / "app.py")
    assert "[('Where was Elmer Hagblad born?', 1)]" in ran.stdout, ran.stderr
    again = init("--write")
    assert "there already: app.py:" in again.output


def test_engine_that_is_there_is_written_with_what_a_hop_costs(make, monkeypatch):
    make(app_dot_py=PROGRAMS["LangChain"])
    monkeypatch.setenv("RAGGUARD_ENGINE", "nano")
    done = init()
    assert 'rg = RagGuard(engine="nano")' in done.output
    cost = r"scores by nano: a run of one hop with five passages takes \d+ requests, [\d,]+ tokens, about \d+\.\d s"
    assert re.search(cost, done.output), done.output


@pytest.mark.parametrize(("head", "line"), [
    ("", "rg = RagGuard(engine=None)  # captures only; remove engine=None once OPENAI_BASE_URL"),
    ("import os\nos.environ['A'] = 'b'\n", "rg = RagGuard()  # scores if OPENAI_BASE_URL, OPENAI_API_KEY"),
])  # fmt: skip
def test_without_an_engine_the_lines_capture_only_and_say_so(make, head, line):
    make(app_dot_py=f"{head}import langchain\n")
    done = init()
    assert line in done.output
    assert "no scores yet: no engine is named" in done.output


def test_engine_that_does_not_answer_is_said_and_no_password_is_written(make, monkeypatch):
    folder = make(app_dot_py="import langchain\n")
    monkeypatch.setenv("RAGGUARD_ENGINE", "http://me:secret-of-mine@127.0.0.1:9/v1")
    done = init("--write")
    assert "the cost of a hop could not be measured" in done.output
    assert "secret-of-mine" not in done.output + (folder / "app.py").read_text()


def test_pipes_and_large_files_are_passed_over(make, monkeypatch):
    folder = make(app_dot_py="import langchain\n", large_dot_py="#" * 2_000_001)
    os.mkfifo(folder / "pipe.py")
    os.mkfifo(folder / "requirements.txt")
    done = init()
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "requirements.txt" in done.output
    assert "no regular file" in done.output
    (folder / "requirements.txt").unlink()
    done = init(code=0)
    for name in ("pipe.py", "large.py"):
        assert f"{name} could not be read as Python" in done.output


def test_project_without_a_framework_gets_lines_of_plain_code_that_run(make):
    folder = make(app_dot_py="print(1)\n")
    done = init()
    assert "plain code" in done.output
    (folder / "lines.py").write_text(printed(done.output) + SHOW)
    ran = carried_out(folder / "lines.py")
    assert "[('a question of your user', 1)]" in ran.stdout, ran.stderr
    (folder / "lines.py").unlink()
    assert init("--write").exit_code == 2


@pytest.mark.parametrize("tracer", ["phoenix.otel", "langfuse"])
def test_tracer_that_takes_a_sink_has_it_in_the_lines_and_these_run(make, tracer):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    folder = make(app_dot_py=f"import {tracer}\nfrom langchain_core.documents import Document\n")
    done = init()
    assert "sinks=[" in done.output
    (folder / "lines.py").write_text(printed(done.output) + "\nrg.close(timeout=0)\n")
    ran = carried_out(folder / "lines.py")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(("name", "content", "found"), [
    ("requirements_dot_txt", "langgraph>=1.0\n", "LangChain (requirements.txt)"),
    ("pyproject_dot_toml", "[project]\nname='x'\ndependencies=['llama-index']\n", "LlamaIndex (pyproject.toml)"),
    ("pyproject_dot_toml", "[tool.poetry.dependencies]\nhaystack-ai = '^3'\n", "Haystack (pyproject.toml)"),
    ("pyproject_dot_toml", "[dependency-groups]\ndev=['logfire']\n", "Logfire (pyproject.toml)"),
    ("app_dot_py", "def late():\n    import openinference.semconv\n", "OpenInference (app.py:2)"),
])  # fmt: skip
def test_dependencies_and_imports_are_found(make, name, content, found):
    make(**{name: content})
    done = init()
    assert (done.exit_code, f"found {found}" in done.output) == (0, True), done.output


def test_project_whose_name_is_a_framework_is_not_said_to_use_it(make):
    make(pyproject_dot_toml="[project]\nname = 'haystack-of-mine'\ndescription = 'langchain'\n")
    assert "found Haystack" not in init().output


@pytest.mark.parametrize(("files", "said"), [
    ({"a_dot_py": "import langchain\n", "b_dot_py": "import langchain\n"}, "by --file"),
    ({"a_dot_py": "import langchain\nrg = 1\n"}, "the name rg"),
    ({"requirements_dot_txt": "langchain\n"}, "imports a framework"),
])  # fmt: skip
def test_write_refuses_in_one_sentence_what_it_cannot_place(make, files, said):
    folder = make(**files)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = init("--write", code=2)
    assert said in done.output.splitlines()[-1]
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(("text", "first", "then"), [
    ("import os\r\nos.environ['A'] = 'b'\r\nimport langchain\r\nprint(1)\r\n", b"import langchain\r\n", b"print(1)"),
    ("import langchain\nfrom dotenv import load_dotenv\n\nload_dotenv()\nprint(1)\n", b"load_dotenv()\n", b"print(1)"),
    ("import langchain; x = '''\n'''; y = [\n]\nprint(1)\n", b"y = [\n]\n", b"print(1)"),
    ("#!/usr/bin/env python\ndef f():\n    import langchain\n", b"#!/usr/bin/env python\n", b"def f"),
])  # fmt: skip
def test_lines_stand_behind_imports_and_head_and_the_file_keeps_its_line_ends(make, text, first, then):
    folder = make(app_dot_py=text)
    assert init("--write").exit_code == 0
    written = (folder / "app.py").read_bytes()
    assert written.index(first) < written.index(b"rg = RagGuard") < written.index(then)
    assert b"\r\n" not in written or written.count(b"\n") == written.count(b"\r\n")


def test_several_files_are_settled_by_the_program_or_by_the_option(make):
    make(a_dot_py="import langchain\n", b_dot_py="import langchain\nif __name__ == '__main__':\n    pass\n")
    assert "add to b.py, after line 1" in init().output
    assert "add to a.py, after line 1" in init("--file", "a.py").output
    assert init("--file", "no.py").exit_code == 2


def test_folders_of_others_and_broken_files_are_passed_over(make):
    make(
        broken_dot_py="def\n",
        env__x_dot_py="import langchain\n",
        tests__x_dot_py="import haystack\n",
        b_dot_py="1\n",
    )
    done = init()
    assert "found LangChain" not in done.output
    assert "broken.py could not be read as Python" in done.output
    assert init("missing").exit_code == 2
