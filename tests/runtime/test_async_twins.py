"""Methods that come in two forms say the same of themselves, take the same and refuse the same."""

import inspect
import re

import pytest

from ragguard import DistractorGuard, RagGuard
from ragguard.advice import Adviser
from ragguard.advice.loop import LoopAdviser
from ragguard.capture.handle import RunHandle
from ragguard.errors import RagguardError

CLASSES = (RagGuard, DistractorGuard, Adviser, LoopAdviser, RunHandle)
TWINS = [
    (cls, name)
    for cls in CLASSES
    for name, method in inspect.getmembers(cls, callable)
    if inspect.iscoroutinefunction(getattr(cls, f"a{name}", None)) and not name.startswith("_")
]


def test_all_twins_are_known():
    assert {name for _, name in TWINS} == {
        "flush",
        "close",
        "prune",
        "calibrate",
        "use",
        "advise",
        "after",
        "retrieved",
    }


@pytest.mark.parametrize(("cls", "name"), TWINS, ids=lambda one: getattr(one, "__name__", one))
def test_twins_share_one_documentation_and_one_signature(cls, name):
    method, twin = getattr(cls, name), getattr(cls, f"a{name}")
    first, _, shared = inspect.getdoc(twin).partition("\n\n")
    assert first.startswith(f"Does what `{name}` does, without blocking the event loop.")
    assert shared == inspect.getdoc(method)
    assert inspect.signature(twin) == inspect.signature(method)
    own = inspect.Signature.from_callable(twin.__wrapped__ if hasattr(twin, "__wrapped__") else _plain(twin))
    if "more" not in own.parameters:  # which hands on what it is given
        assert list(own.parameters) == list(inspect.signature(method).parameters)
        assert [one.default for one in own.parameters.values()] == [
            one.default for one in inspect.signature(method).parameters.values()
        ]


def _plain(twin):
    """Returns a function with the code and defaults of a twin, and nothing that was said of it."""
    made = type(twin)(twin.__code__, twin.__globals__, twin.__name__, twin.__defaults__, twin.__closure__)
    made.__kwdefaults__ = twin.__kwdefaults__
    return made


async def refused(call):
    try:
        found = call()
        if inspect.isawaitable(found):
            found = await found
    except RagguardError as error:
        return type(error), re.sub("[0-9a-f]{32}", "ID", str(error))
    raise AssertionError(f"nothing was refused: {found}")


WRONG = {
    "guard.prune": lambda rg, guard, a: getattr(guard, f"{a}prune")("who?", 3),
    "guard.calibrate": lambda rg, guard, a: getattr(guard, f"{a}calibrate")([]),
    "guard.use": lambda rg, guard, a: getattr(guard, f"{a}use")("no such file.json"),
    "adviser.calibrate": lambda rg, guard, a: getattr(rg.advice, f"{a}calibrate")([]),
    "adviser.use": lambda rg, guard, a: getattr(rg.advice, f"{a}use")("no such file.json"),
    "run.advise, no step": lambda rg, guard, a: getattr(rg.run("who?"), f"{a}advise")(),
    "rg.flush": lambda rg, guard, a: getattr(rg, f"{a}flush")(timeout="soon"),
    "rg.close": lambda rg, guard, a: getattr(rg, f"{a}close")(timeout="soon"),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
async def test_twins_refuse_the_same_with_the_same_words(call):
    with RagGuard("nano", store=None, scorers=()) as rg:
        guard = DistractorGuard("nano")
        assert await refused(lambda: call(rg, guard, "")) == await refused(lambda: call(rg, guard, "a"))
        await guard.aclose()
