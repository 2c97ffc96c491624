"""The pages say what the code says: what is generated is fresh, every setting is described, what is named exists."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from docs import generate

ROOT = Path(__file__).parent.parent
DOORS = ("ragguard", "ragguard.engines", "ragguard.guard", "ragguard.scorers", "ragguard.sinks", "ragguard_langchain",
         "ragguard_llamaindex")  # fmt: skip
NAMES = [(module, name) for module in DOORS for name in import_module(module).__all__]
SETTINGS = [pytest.param(value, id=f"{module}.{name}") for _, module, name, value in generate.public()]
COMMANDS = [pytest.param(found, id=name) for name, _, found in generate.commands()]


@pytest.mark.parametrize(("page", "marker"), generate.GENERATED)
def test_a_generated_page_is_fresh(page, marker):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text == generate.written(page, marker), "run `python docs/generate.py`"


@pytest.mark.parametrize("value", SETTINGS)
def test_every_argument_is_described_and_nothing_else(value):
    found = generate.arguments(value)
    assert all(one.meaning for one in found), [one.name for one in found if not one.meaning]
    if "\nArgs:\n" in (inspect.getdoc(value) or ""):
        assert generate.described(inspect.getdoc(value)).keys() == {one.name.lstrip("*") for one in found}


@pytest.mark.parametrize("value", SETTINGS)
def test_the_arguments_are_those_of_the_signature(value):
    called = (
        value.__init__ if inspect.isclass(value) else value
    )  # pydantic shows another signature of a class
    signature = inspect.signature(called).parameters
    assert [one.name.lstrip("*") for one in generate.arguments(value)] == [
        name for name in signature if name != "self"
    ]


@pytest.mark.parametrize("found", COMMANDS)
def test_every_option_of_a_command_is_described(found):
    assert all(len(one.meaning.split()) > 1 for one in found), found


def test_every_public_name_has_its_settings_on_the_page_or_has_none():
    shown = {name.partition(".")[0] for _, _, name, _ in generate.public()}
    missing = [f"{module}.{name}" for module, name in NAMES if name not in shown | generate.NOT_CONFIGURED]
    assert not missing, "add them to SETTINGS or NOT_CONFIGURED in docs/generate.py"


def test_no_name_is_called_free_of_settings_that_is_not_public():
    assert {name for _, name in NAMES} >= generate.NOT_CONFIGURED


def test_a_description_is_read_from_a_docstring():
    said = generate.described(
        "Does it.\n\nArgs:\n    first: One\n        and more.\n    rest: Others.\n\nEnd."
    )
    assert said == {"first": "One and more.", "rest": "Others."}
