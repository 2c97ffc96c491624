"""Writes what the pages take from the code, between markers: `python docs/generate.py`.

Settings and commands (settings.md), metrics (metrics.md), telemetry's names (telemetry.md), the attributes of traces
(traces.md) and what capture adds (neighbours.md, from the stored benchmark). The descriptions of settings stand in the
code: an `Args:` section of a docstring, the docstring of a dataclass field, the help of an option.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS.parent / "integrations")]

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "RagGuard": {
        "ragguard": """
            RagGuard RagGuard.run RagGuard.score RagGuard.score_runs RagGuard.flush RagGuard.close Caps
        """,
    },
    "What `rg.run` yields": {
        "ragguard.capture.handle": "RunHandle.retrieved RunHandle.failed RunHandle.answered RunHandle.advise",
    },
    "Engines and what they may cost": {
        "ragguard": "connect Account Price load_prompts PromptSet",
        "ragguard.engines": "VllmEngine OpenAIEngine HfEngine InProcessVllmEngine NanoEngine",
    },
    "Layers": {"ragguard.engines": "Cache Coalesce Retry Patience Priority Budget"},
    "Entailers": {"ragguard.engines": "connect_entailer ClassifyEntailer CrossEncoder EngineEntailer"},
    "Scorers": {"ragguard.scorers": "Belief PassageBelief RandomBaseline Utility Coverage Contested Grades"},
    "The guard": {
        "ragguard.guard": """
            DistractorGuard DistractorGuard.calibrate UtilityThreshold HelpThreshold TopUtility
            Example
        """,
    },
    "Scoring in parts": {
        "ragguard.scale": """
            ScoringSettings PartJob Processes prepare carry_out PartFolder
        """,
        "ragguard_ray": "RayActors",
    },
    "Advice": {"ragguard.advice": "Adviser.calibrate Adviser.use KnownOutcome LoopAdviser"},
    "Sinks": {"ragguard.telemetry": "OtelSink PhoenixSink JsonlSink"},
    "LangChain": {
        "ragguard_langchain": """
            RagGuardCallback instrument GuardMiddleware GuardedRetriever DistractorFilter
            AdviceMiddleware
        """,
    },
    "Haystack": {"ragguard_haystack": "instrument DocumentGuard"},
    "LlamaIndex": {
        "ragguard_llamaindex": "instrument DistractorPostprocessor GuardedRetriever AdvisedFunctionAgent",
    },
    "Capture in plain code": {
        "ragguard": "retrieved retrieval paused print_hops splitters.separated_by",
    },
    "Files": {"ragguard": "runs_from read_runs write_runs read_lines read_scored write_scores"},
}
"""Heading → module → the names there that take settings."""
NOT_CONFIGURED = frozenset(
    """
    Advice AdviceCalibration Adviser
    Ask BufferingSink Calibration Continuation Continuations Engine EngineInfo EntailQuestion Entailer Entailments
    Failure
    Judged LabelProbs LabelQuestion Message Pair Passage Plan Policy
    Prompt RetrievalStep Run Sample SampleQuestion Samples Score
    ScoredRun Scorer Sink Span SpanSink StepView View __version__ current_run errors metrics splitters
    traces uninstrument world
    """.split()
)
"""Public names without settings: records and results, protocols, modules, and functions without arguments."""
_ITEM = re.compile(r"\*{0,2}(\w+): (.+)")


class Argument(NamedTuple):
    """One argument of a class or a function, or one option of a command."""

    name: str
    default: str
    meaning: str


def arguments(value: Any) -> list[Argument]:
    """Returns the arguments of a class or a function with their descriptions; '' where there is none."""
    if inspect.isclass(value) and (description := getattr(value.__init__, "description", None)):
        return list(_fields(description))  # of `takes`
    is_protocol = getattr(value, "_is_protocol", False)
    own_init = inspect.isclass(value) and inspect.isfunction(value.__init__) and not is_protocol
    if dataclasses.is_dataclass(value) and not inspect.getsource(value).count("def __init__"):
        return list(_fields(value))
    if inspect.isclass(value) and not own_init:
        return []
    function = value.__init__ if inspect.isclass(value) else value
    # An argument is described where the constructor is defined: a kind of engine may inherit it.
    bases = inspect.getmro(value) if inspect.isclass(value) else ()
    owner = next((base for base in bases if "__init__" in vars(base)), value)
    said = described(inspect.getdoc(owner) or "")
    node = _definition(function)
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    defaults: list[ast.expr | None] = [None] * (
        len(given) - len(node.args.defaults) - len(node.args.kwonlyargs)
    )
    defaults += [*node.args.defaults, *node.args.kw_defaults]
    names = getattr(inspect.unwrap(function), "__globals__", {})
    found = [
        Argument(arg.arg, _written(_number_in(default, names)), said.get(arg.arg, ""))
        for arg, default in zip(given, defaults, strict=True)
        if arg.arg not in ("self", "cls")
    ]
    if node.args.kwarg is not None:
        name = node.args.kwarg.arg
        found.append(Argument(f"**{name}", "", said.get(name, "")))
    return found


def described(docstring: str) -> dict[str, str]:
    """Returns argument → description from the `Args:` section of a docstring."""
    _, _, section = docstring.partition("\nArgs:\n")
    section = textwrap.dedent(re.split(r"\n(?=\S)", section)[0])
    items = [" ".join(item.split()) for item in re.split(r"\n(?=\S)", section.strip("\n"))]
    return {match[1]: match[2] for match in map(_ITEM.fullmatch, items) if match}


def _fields(cls: type) -> Iterator[Argument]:
    """The arguments of a dataclass, in the order of its signature, with the docstrings under its fields."""
    described = {one.name: one for base in reversed(cls.__mro__) for one in _own_fields(base)}
    for name in inspect.signature(cls).parameters:
        yield described[name]


def _own_fields(cls: type) -> Iterator[Argument]:
    """The fields that the body of a dataclass defines, with the docstrings under them."""
    if not dataclasses.is_dataclass(cls):
        return
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = (
                after.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            )
            meaning = " ".join(str(text.value).split()) if isinstance(text, ast.Constant) else ""
            default = _number_in(_default_in(node.value), vars(sys.modules[cls.__module__]))
            yield Argument(node.target.id, _written(default), meaning)


def _number_in(default: ast.expr | None, names: Mapping[str, Any]) -> ast.expr | None:
    """The number that a default names by a constant; any other default as it is."""
    value = names.get(default.id) if isinstance(default, ast.Name) else None
    return ast.Constant(value) if type(value) in (int, float) else default


def _default_in(value: ast.expr | None) -> ast.expr | None:
    """The default that a field has, also one that is given by `field(default=...)`."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        given = {word.arg: word.value for word in value.keywords}
        factory = given.get("default_factory")
        return given.get("default", factory and ast.Call(factory, [], []))
    return value


def _definition(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _written(default: ast.expr | None) -> str:
    """A default as a reader would write it; '' where the argument must be given."""
    if default is None:
        return ""
    if isinstance(default, ast.Constant) and type(default.value) is int:
        return f"{default.value:_}" if default.value >= 10_000 else str(default.value)
    text = ast.unparse(default).replace(" ** ", "**")
    return text if '"' in text else text.replace("'", '"')


def public() -> Iterator[tuple[str, str, str, Any]]:
    """Every heading, module, name and value of `SETTINGS`."""
    for heading, modules in SETTINGS.items():
        for module, names in modules.items():
            for name in names.split():
                value: Any = import_module(module)
                for part in name.split("."):
                    value = getattr(value, part)
                yield heading, module, name, value


class _Described:
    """An engine that is described and never asked: a server that answers many prompts in one request, with exact
    probabilities."""

    def __getattr__(self, verb: str) -> Any:
        raise AssertionError(f"a plan asks no model: {verb}")

    async def sample(self, *args: Any, **named: Any) -> Any: ...
    async def label_probs(self, *args: Any, **named: Any) -> Any: ...
    async def aclose(self) -> None: ...
    async def info(self) -> Any:
        from ragguard.engines import EngineInfo

        able = frozenset({"batch", "n_samples", "exact_labels", "continuations"})
        return EngineInfo("described", "described", "described", capabilities=able)


def effort() -> str:
    """What each level of effort gives, asks and costs for a hop of five passages, by the planner, as Markdown."""
    from ragguard import Passage, RetrievalStep, Run
    from ragguard.scorers.catalogue import LEVELS
    from ragguard.scorers.settings import ScoringSettings

    passages = [Passage(f"{number} " + "word " * 100, f"p{number}") for number in range(5)]
    question = "Who founded the firm that is based in Oslo?"
    step = RetrievalStep("s1", "r1", query=question, passages=passages, candidates=passages)
    run = Run("r1", question, ["Ada Berg"], "Ada Berg", steps=[step])
    lines = [
        "| effort | what the scores say | requests | prompts | tokens read | tokens written, at most | most a run |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, level in LEVELS.items():
        pipeline = ScoringSettings(engine=_Described(), effort=name).build()
        total = asyncio.run(pipeline.plan(run)).total
        lines.append(
            f"| `{name}` | {level.gives} | {total.requests} | {total.prompts} | {total.prompt_tokens:,} | "
            f"{total.output_tokens:,} | {level.caps.prompt_tokens:,} tokens read |"
        )
    return "\n".join(lines) + "\n"


def settings() -> str:
    """Every argument of what a user configures, as Markdown."""
    lines: list[str] = []
    headings: set[str] = set()
    for heading, module, name, value in public():
        if heading not in headings:
            headings.add(heading)
            lines += [f"## {heading}", ""]
        lines += [f"### `{module}.{name}`", "", _summary(value), ""]
        found = arguments(value)
        lines += (
            _table(("argument", "default", "what it does"), found)
            if found
            else ["It takes no arguments.", ""]
        )
    return "\n".join(lines).strip() + "\n"


def commands() -> Iterator[tuple[str, str, list[Argument]]]:
    """Every command with its summary, which ends with its exit codes, and its options."""
    from ragguard.cli.app import COMMANDS, LazyGroup

    group = LazyGroup()
    for name, summary in COMMANDS.items():
        found, command = [], group.get_command(None, name)
        codes = re.search(r"Exit code 0[^\n]*(\n[^\n]+)*", command.help or "")
        summary += f" {' '.join(codes[0].split())}" if codes else ""
        for parameter in command.params:
            is_option = parameter.param_type_name == "option"
            shown = (
                ", ".join(parameter.opts + parameter.secondary_opts) if is_option else parameter.name.upper()
            )
            found.append(Argument(shown, _default_of(parameter), " ".join((parameter.help or "").split())))
        yield name, summary, found


def _default_of(parameter: Any) -> str:
    if parameter.required:
        return ""
    if getattr(parameter, "is_flag", False):
        return "off"
    default = parameter.default
    if isinstance(shown := getattr(parameter, "show_default", None), str):
        return shown
    return "none" if default in (None, "", [], ()) else str(default)


def command_tables() -> str:
    """Every option of every command, as Markdown."""
    lines: list[str] = []
    for name, summary, found in commands():
        lines += [f"### `ragguard {name}`", "", summary, ""]
        lines += _table(("option", "default", "what it does"), found)
    return "\n".join(lines).strip() + "\n"


def _summary(value: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _table(heads: tuple[str, str, str], rows: list[Argument]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|"]
    for name, default, meaning in rows:
        shown = f"`{default}`" if default else "required" if not name.startswith("**") else ""
        lines.append(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{name}`", shown, meaning)) + " |"
        )
    return [*lines, ""]


def metrics() -> str:
    """Every metric, as Markdown."""
    from ragguard.metrics.registry import by_level

    rows = [metric.cells() for metric in by_level()]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def telemetry() -> str:
    """Every attribute, event and metric of OpenTelemetry, as Markdown."""
    from ragguard.telemetry import names

    lines: list[str] = []
    for group, found in names.ATTRIBUTES.items():
        lines += [f"### {group}", "", "| attribute | type | on | meaning |", "|---|---|---|---|"]
        for name in found:
            kept = " *(only if content is captured)*" if name.content else ""
            lines.append(f"| `{name}` | {name.type} | {', '.join(name.carriers)} | {name.meaning}{kept} |")
        lines.append("")
    lines += ["### With an index in the name", "", "| attribute | meaning |", "|---|---|"]
    lines += [f"| `{pattern}` | {meaning} |" for pattern, meaning in names.PATTERNS.items()]
    lines += ["", "### Events", "", "| name | meaning |", "|---|---|"]
    lines += [f"| `{event}` | {meaning} |" for event, meaning in names.EVENTS.items()]
    lines += ["", "### Metrics", "", "| metric | kind | unit | meaning |", "|---|---|---|---|"]
    for metric, (kind, unit, meaning) in names.METRICS.items():
        lines.append(f"| `{metric}` | {kind} | {unit} | {meaning} |")
    return "\n".join(lines) + "\n"


def capture() -> str:
    """What capture adds to a retrieval beside tracers, from the stored run of the benchmark, as Markdown."""
    figures = json.loads(
        (DOCS.parent / "benchmarks" / "results" / "capture.json").read_text(encoding="utf-8")
    )
    frameworks = [figures[name]["contenders"] for name in ("langchain", "llama_index")]
    machine = figures["machine"]
    lines = [
        f"{figures['measured']}, {machine['cores']} cores of {machine['processor']}, load {machine['load'][0]:.0f}.",
        "",
        "| added to a retrieval | LangChain, sync | LangChain, async | LlamaIndex, sync | LlamaIndex, async |",
        "|---|---|---|---|---|",
    ]
    for key, shown in (
        ("ragguard", "ragguard"),
        ("openinference", "OpenInference"),
        ("langfuse", "Langfuse"),
    ):
        cells = [
            f"{found[key][how]['added_p50']:,.0f} µs" if key in found else "–"
            for found in frameworks
            for how in ("sync", "async")
        ]
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def traces() -> str:
    """What the reader of traces reads in each convention, as Markdown."""
    from ragguard.traces.conventions import KINDS, NAMES

    lines = ["| convention | attribute | what its values mean: kind of span, and values |", "|---|---|---|"]
    for (convention, name), kinds in KINDS.items():
        read: dict[str, list[str]] = {}
        for value, kind in kinds.items():
            read.setdefault(kind, []).append("any other" if value == "*" else f"`{value}`")
        said = "; ".join(f"{kind}: {', '.join(values)}" for kind, values in read.items())
        lines.append(f"| {convention} | `{name}` | {said} |")
    lines += ["", "| what | attributes; the first that a span has counts |", "|---|---|"]
    lines += [f"| {what} | {', '.join(f'`{name}`' for name in names)} |" for what, names in NAMES.items()]
    return "\n".join(lines) + "\n"


GENERATED: Mapping[tuple[str, str], Callable[[], str]] = {
    ("reference/settings.md", "effort"): effort,
    ("reference/settings.md", "settings"): settings,
    ("reference/settings.md", "commands"): command_tables,
    ("reference/metrics.md", "metrics"): metrics,
    ("reference/telemetry.md", "names"): telemetry,
    ("reference/traces.md", "conventions"): traces,
    ("background/neighbours.md", "capture"): capture,
}
"""Page and marker → what stands between `<!-- marker -->` and `<!-- /marker -->`."""


def written(page: str, marker: str) -> str:
    """Returns the page as it should be."""
    text = (DOCS / page).read_text(encoding="utf-8")
    before, opening, rest = text.partition(f"<!-- {marker} -->\n")
    _, closing, after = rest.partition(f"<!-- /{marker} -->")
    if not opening or not closing:
        raise SystemExit(f"docs/{page} lacks the markers <!-- {marker} --> and <!-- /{marker} -->")
    return before + opening + GENERATED[page, marker]() + closing + after


if __name__ == "__main__":
    for page, marker in GENERATED:
        (DOCS / page).write_text(written(page, marker), encoding="utf-8")
