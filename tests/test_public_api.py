"""The public names are exactly these; importing them brings in no framework."""

import subprocess
import sys

import pytest

import ragguard

PUBLIC = {
    "DistractorGuard",
    "Failure",
    "Passage",
    "RagGuard",
    "RetrievalStep",
    "Run",
    "Score",
    "__version__",
    "connect",
    "current_run",
    "errors",
    "metrics",
    "paused",
    "retrieval",
    "retrieved",
    "world",
}
FRAMEWORKS = (
    "langchain", "langchain_core", "langgraph", "llama_index", "torch", "transformers", "vllm",
    "scipy", "sklearn", "pyarrow", "pydantic", "opentelemetry.sdk",
)  # fmt: skip


def test_the_public_api_is_exactly_the_list():
    assert set(ragguard.__all__) == PUBLIC
    assert dir(ragguard) == sorted(ragguard.__all__, key=ragguard.__all__.index)


def test_every_public_name_resolves():
    for name in ragguard.__all__:
        assert getattr(ragguard, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        ragguard.nonsense  # noqa: B018


def test_no_framework_is_imported_with_the_package_and_its_names():
    code = (
        "import sys, ragguard\n"
        "for name in ragguard.__all__: getattr(ragguard, name)\n"
        f"print([m for m in {FRAMEWORKS!r} if m in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
