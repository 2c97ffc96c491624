"""How the site is built: `make docs`. Markdown pages by MyST, the reference from the docstrings by autodoc."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.ext.napoleon import Config, GoogleDocstring

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "integrations")]

# Imported before autodoc does it: autodoc sets TYPE_CHECKING, which the frameworks' modules do not survive.
import ragguard_langchain  # noqa: E402, F401
import ragguard_llamaindex  # noqa: E402, F401
from ragguard import __version__  # noqa: E402

project = "ragguard"
author = "The ragguard authors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"ragguard {__version__}"
html_copy_source = False
html_show_copyright = False
# Fields called `bytes` are taken for targets of the type `bytes` in signatures; nothing refers to such a field.
suppress_warnings = ["ref.python"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "undoc-members": False, "exclude-members": "count,index"}
add_module_names = False
_GOOGLE = Config(napoleon_use_param=True)
_CODE = re.compile(r"(?<![`:])`([^`\n]+)`(?!`)")


def _as_rst(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Docstrings name code between single backticks and show it indented, as Markdown does; reStructuredText wants two
    backticks, and two colons before an indented block. `Args:` is read as in Google's style. A field has none, and what
    stands before a colon in its docstring is no type."""
    marked: list[str] = []
    shown = False
    for number, line in enumerate(lines):
        indented = line.startswith("    ")
        if indented and number and not lines[number - 1] and not shown:
            marked += ["::", ""]
            shown = True
        elif line and not indented:
            shown = False
        marked.append(line if shown else _CODE.sub(r"``\1``", line).replace("*", "\\*"))
    lines[:] = marked if what == "attribute" else GoogleDocstring(marked, _GOOGLE, app, what).lines()


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _as_rst)
