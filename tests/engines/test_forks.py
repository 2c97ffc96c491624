"""A fork while a thread of the parent process is inside an engine's part: the child begins with a lock of its own."""

import asyncio
import signal

import pytest
from support.child import in_child
from support.scripted_engine import ScriptedEngine

from ragguard.engines.account import Account, Cost
from ragguard.engines.http.client import HttpClient
from ragguard.engines.layers import Budget

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.parametrize(
    ("part", "use"),
    [
        (Account(requests=5), lambda account: account.spent.requests == 0),
        (
            Budget(ScriptedEngine(), tokens=10_000),
            lambda budget: asyncio.run(budget.label_probs(["a"], ["X"])),
        ),
        (HttpClient("http://127.0.0.1:9/v1"), lambda client: asyncio.run(client.aclose())),
    ],
    ids=["account", "budget", "client"],
)
def test_a_lock_that_a_thread_of_the_parent_held_does_not_hold_up_the_child(part, use):
    def child() -> bool:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        return use(part) is not False

    with part._lock:
        in_child(child)


def test_what_calls_of_the_parent_reserved_is_not_reserved_in_the_child():
    account = Account(requests=5)
    with account.reserving(Cost(requests=5)):
        in_child(lambda: account.left.requests == 5)
        assert account.left.requests == 0
