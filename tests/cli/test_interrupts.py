"""Ctrl-C while a command still loads its modules is one sentence, as it is later."""

import pytest
from support.program import run_program

PROGRAM = """
import sys
interrupted = sys.argv[1]
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == interrupted:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from ragguard.cli import main
sys.argv[1:] = ["metrics"]
main()
"""


@pytest.mark.parametrize("module", ["ragguard.cli.app", "ragguard.cli.metrics", "ragguard.metrics.registry"])
def test_an_interrupt_while_modules_are_loaded_is_one_sentence(module):
    done = run_program(PROGRAM, module, check=False)
    assert done.returncode == 130
    assert done.stderr.strip() in ("", "ragguard: stopped")
    assert "Traceback" not in done.stderr
