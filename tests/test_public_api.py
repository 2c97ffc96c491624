"""The public names are exactly these; what a page tells a reader to import or to set exists."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from support.program import run_program

import ragguard

ROOT = Path(__file__).parent.parent
PUBLIC = {
    "ragguard": """
        Account Advice Caps DistractorGuard Engine Entailer Failure Passage Price PromptSet RagGuard RetrievalStep Run
        Score ScoredRun Scorer Sink __version__ connect current_run errors load_prompts metrics paused print_hops
        read_lines read_runs read_scored retrieval retrieved runs_from splitters traces world write_runs write_scores
    """,
    "ragguard.advice": "Advice AdviceCalibration Adviser KnownOutcome LoopAdviser",
    "ragguard.engines": """
        Account Budget Cache ClassifyEntailer Coalesce Continuation Continuations CrossEncoder
        Engine EngineEntailer EngineInfo Entailer
        Entailments HfEngine InProcessVllmEngine LabelProbs Message NanoEngine OpenAIEngine Pair Patience Price Priority
        Prompt Retry Sample Samples Span VllmEngine connect_entailer
    """,
    "ragguard.guard": """
        Calibration DistractorGuard Example HelpThreshold Judged Policy TopUtility
        UtilityThreshold
    """,
    "ragguard.scale": """
        PartFolder PartJob Processes ScoringSettings carry_out prepare
    """,
    "ragguard.scorers": """
        Ask Belief Caps Contested Coverage EntailQuestion Grades LabelQuestion PassageBelief Plan RandomBaseline
        SampleQuestion Scorer StepView Utility View
    """,
    "ragguard.telemetry": "BufferingSink JsonlSink OtelSink PhoenixSink ScoredRun Sink SpanSink",
    "ragguard_langchain": """
        AdviceMiddleware DistractorFilter GuardMiddleware GuardedRetriever RagGuardCallback
        instrument uninstrument
    """,
    "ragguard_haystack": "DocumentGuard instrument uninstrument",
    "ragguard_llamaindex": """
        AdvisedFunctionAgent DistractorPostprocessor GuardedRetriever instrument uninstrument
    """,
    "ragguard_ray": "RayActors",
}
"""The front doors: what a user imports comes from one of these, or from `ragguard`'s modules."""
NAMES = [(module, name) for module, names in PUBLIC.items() for name in names.split()]
DOCUMENTED_ELSEWHERE = {"__version__", "metrics", "splitters", "traces", "world", "errors"}
MODULES = {f"ragguard.{name}" for name in ("errors", "metrics", "splitters", "traces", "world")}
FRAMEWORKS = (
    "langchain", "langchain_core", "langgraph", "llama_index", "torch", "transformers", "vllm",
    "scipy", "sklearn", "pyarrow", "pydantic", "opentelemetry.sdk",
)  # fmt: skip


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_exactly_the_list(module):
    found = import_module(module)
    assert set(found.__all__) == set(PUBLIC[module].split())
    assert all(hasattr(found, name) for name in found.__all__)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_every_public_name_resolves_and_says_what_it_is(module, name):
    value = getattr(import_module(module), name)
    if not isinstance(value, str) and callable(value):
        own = inspect.getdoc(value) if not inspect.isclass(value) else value.__doc__
        assert own, f"{module}.{name} has no docstring"
        assert not own.startswith(f"{name}("), f"{module}.{name} has the docstring that dataclasses make"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        ragguard.nonsense  # noqa: B018


CAPTURE = """
from ragguard.capture.handle import RunHandle
from ragguard.capture.recorder import Recorder
with RunHandle(Recorder(lambda event: None), "q") as run: run.retrieved("hop", ["a"])
"""


@pytest.mark.parametrize(("code", "absent"), [
    ("import ragguard\nfor name in ragguard.__all__: getattr(ragguard, name)", FRAMEWORKS),
    ("from ragguard.metrics import udcg, find; udcg([0.5])", ("scipy", "sklearn", "pandas", "httpx", "opentelemetry")),
    (CAPTURE, ("opentelemetry",)),
    ("from ragguard.capture.snapshot import passages_of; passages_of([('a', 0.5), {'text': 'b'}])", ("numpy",)),
    ("import ragguard.pytest_gate", ("numpy", "rich")),  # pytest loads it wherever ragguard is installed
], ids=["package", "metrics", "capture", "passages", "gate"])  # fmt: skip
def test_what_a_part_does_not_need_is_not_imported(code, absent):
    loaded = set(run_program(f"{code}\nimport sys; print(*sys.modules)").stdout.split())
    assert "ragguard" in loaded
    assert not loaded & {*FRAMEWORKS, *absent}


def shown():
    """Every import of ours that a page or an example shows."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    for page in pages:
        for line in re.findall(
            r"^ *(from ragguard\S* import [^(#\n]+|import ragguard\S*)", page.read_text(), re.MULTILINE
        ):
            yield pytest.param(line.strip(), id=f"{page.name}: {line.strip()}")


@pytest.mark.parametrize("line", sorted(set(shown()), key=lambda one: one.id))
def test_import_in_the_docs_names_a_public_module(line):
    (node,) = ast.parse(line).body
    if isinstance(node, ast.ImportFrom):
        assert node.module in PUBLIC or node.module in MODULES, f"{line}: not a front door"
        if node.module in PUBLIC:
            assert {alias.name for alias in node.names} <= set(PUBLIC[node.module].split())


@pytest.mark.parametrize(("module", "name"), [one for one in NAMES if one[1] not in DOCUMENTED_ELSEWHERE])
def test_every_public_name_stands_in_the_reference(module, name):
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert re.search(rf":: ragguard[\w.]*\.{name}$", page, re.MULTILINE), (
        f"docs/reference/api.md lacks {module}.{name}"
    )


CALLS = {
    "RagGuard": ragguard.RagGuard,
    "DistractorGuard": ragguard.DistractorGuard,
    "connect": ragguard.connect,
    "rg.run": ragguard.RagGuard.run,
    "Caps": ragguard.Caps,
    "Price": ragguard.Price,
    "OtelSink": import_module("ragguard.telemetry").OtelSink,
}
SAID = re.compile(rf"\b({'|'.join(map(re.escape, CALLS))})\(([^()]*)\)")


def settings_in_texts():
    """Every setting that a text in the code names as an argument, such as `RagGuard(budget=…)`."""
    for path in [*(ROOT / "ragguard").rglob("*.py"), *(ROOT / "integrations").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for call, arguments in SAID.findall(node.value):
                    for name in re.findall(r"(\w+) ?=(?!=)", arguments):
                        yield path.relative_to(ROOT), call, name


def test_a_setting_that_a_message_names_exists():
    found = list(settings_in_texts())
    assert len(found) > 5
    for path, call, name in found:
        assert name in inspect.signature(CALLS[call]).parameters, f"{path}: {call}({name}=…) does not exist"
