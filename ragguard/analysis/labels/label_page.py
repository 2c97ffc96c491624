"""Writes the page of `ragguard label --page`: one HTML file that a browser opens without a server.

It shows one item after the other, takes the label of each by a key, and saves the file of labels.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragguard.analysis.labels.items import LabelItem
from ragguard.analysis.labels.label_file import line_of
from ragguard.analysis.page import PAGE_FILES, content_policy, page_json, write_data


def write_label_page(items: Sequence[LabelItem], path: Path, asked: Mapping[str, str]) -> None:
    """Writes the page, which saves labels as the file that `read_label_file` reads.

    Args:
        items: The items in the order in which they are shown.
        path: The file to write.
        asked: The question that a person answers, by the kind of item.
    """
    page, style, script = (
        (PAGE_FILES / f"label.{end}").read_text(encoding="utf-8") for end in ("html", "css", "js")
    )
    data = io.StringIO()
    write_data(
        data, "items", page_json({"items": [json.loads(line_of(item)) for item in items], "asked": asked})
    )
    for name, text in (("policy", content_policy(style, script)), ("style", style), ("script", script)):
        page = page.replace(f"{{{{{name}}}}}", text)
    path.write_text(page.replace("<!-- data -->", data.getvalue()), encoding="utf-8")
