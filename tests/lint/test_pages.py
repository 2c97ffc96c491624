"""The pages say what the code says: what is generated is fresh, every setting is described, what is named exists."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from support.floors import FLOORS

from docs import generate

ROOT = Path(__file__).parents[2]
DOORS = ("ragguard", "ragguard.advice", "ragguard.engines", "ragguard.guard", "ragguard.scale", "ragguard.scorers",
         "ragguard.telemetry",
         "ragguard_haystack", "ragguard_langchain", "ragguard_llamaindex", "ragguard_ray")  # fmt: skip
NAMES = [(module, name) for module in DOORS for name in import_module(module).__all__]
SETTINGS = [pytest.param(value, id=f"{module}.{name}") for _, module, name, value in generate.public()]
COMMANDS = [pytest.param(found, id=name) for name, _, found in generate.commands()]


@pytest.mark.parametrize(("page", "marker"), generate.GENERATED)
def test_a_generated_page_is_fresh(page, marker):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text == generate.written(page, marker), "run `python docs/generate.py`"


def test_an_option_whose_default_is_made_by_the_command_is_shown_with_that_default():
    (options,) = (found for name, _, found in generate.commands() if name == "score")
    assert {one.name: one.default for one in options}["--store, -s"] == "ragguard.db"


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


ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_every_file_that_the_architecture_names_exists():
    named = set(re.findall(r"`([\w/]+(?:/|\.py))`", ARCHITECTURE))
    assert len(named) > 50
    roots = (ROOT, ROOT / "ragguard", ROOT / "integrations")
    assert not [path for path in sorted(named) if not any((root / path).exists() for root in roots)]


def test_the_picture_of_the_floors_is_the_one_that_imports_are_held_to():
    picture = ARCHITECTURE.split("```")[1]
    shown, floor = {}, None
    for line in picture.splitlines():
        floor = int(number.group()) if (number := re.match(r"\d+", line)) else floor
        shown |= dict.fromkeys(re.findall(r"ragguard\.\w+", line), floor)
    assert shown == FLOORS


def test_every_thread_is_in_the_table():
    code = "".join(path.read_text() for path in (ROOT / "ragguard").rglob("*.py"))
    names = set(re.findall(r'[=(](?:[^"\n(]*, )?"(ragguard-[a-z]+|nano)"\)', code))
    names |= set(re.findall(r'name(?:_prefix)?="(ragguard-[a-z]+)"', code))
    assert len(names) > 6
    assert not [name for name in sorted(names) if f"`{name}`" not in ARCHITECTURE]


PAGES = sorted(
    str(path.relative_to(ROOT / "docs").with_suffix(""))
    for folder in (".", "tutorial", "how-to", "reference", "background")
    for path in (ROOT / "docs" / folder).glob("*.md")
)


def test_readme_and_changelog_are_short():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 90
    assert max(map(len, readme.splitlines())) <= 120
    assert len(words(readme)) <= 550
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 60


HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_how_to_page_is_short(page):
    assert len(words(page.read_text(encoding="utf-8"))) <= 1200


def words(page):
    """Returns the words of a page, code included; what stands in comments is not read."""
    return re.findall(r"\S*\w\S*", re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL))


def test_the_index_of_the_site_has_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^(?:[\w ]+ <)?([\w/-]+)>?$", index, re.MULTILINE))
    assert listed >= set(PAGES) - {"index"}


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "benchmarks/README.md",
        *(f"docs/{page}.md" for page in PAGES),
    ],
)
def test_every_file_that_is_linked_to_exists(page):
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
    assert not [link for link in links if not (path.parent / link).exists()]
