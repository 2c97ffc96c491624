"""A folder of texts: what is read, what is not and why."""

import csv
import os
import sys

import pytest

from ragguard.errors import InvalidInput
from ragguard.text import folder
from ragguard.text.folder import read_bytes, read_folder


def test_folder_gives_passages_of_its_texts_named_by_file_and_counts_what_it_skips(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "page.html").write_text(
        "<style>p {}</style><p>Ada was born in London.</p><script>x</script>"
    )
    (tmp_path / "a.md").write_text("# Tea\n\nTea is grown in Assam.")
    (tmp_path / "binary.txt").write_bytes(b"\0\1\2")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    for number in range(4):
        (tmp_path / f"latin{number}.txt").write_bytes(b"caf\xe9")
    for name in ("large.txt", "large2.txt"):
        (tmp_path / name).write_bytes(b"a" * (folder.LONGEST_FILE + 1))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden.md").write_text("not read")
    (tmp_path / "_build").mkdir()
    (tmp_path / "_build" / "a.html").write_text("not read")
    (tmp_path / "try-out").mkdir()  # the results of an earlier call
    (tmp_path / "try-out" / "ragguard.db").touch()
    (tmp_path / "try-out" / "report.html").write_text("not read")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "device.txt").symlink_to("/dev/zero")
    (tmp_path / "link.txt").symlink_to(__file__)
    found = read_folder(tmp_path)
    assert [(one.id, one.text) for one in found.passages] == [
        ("a.md#1", "Tea\nTea is grown in Assam."),
        ("below/page.html#1", "Ada was born in London."),
    ]
    assert found.remarks == [
        "1 not read, binary: binary.txt",
        "2 not read, over 2 MB (split it): large.txt, large2.txt",
        "5 not read, no UTF-8 text: latin.txt, latin0.txt, latin1.txt, …",
        "1 not read, of another kind: picture.png",
    ]


@pytest.mark.parametrize(("name", "text"), [
    ("a.csv", 'name,joined\n"Holm, Grete",2019\n\nBasil Quist,2021\n'),
    ("a.csv", 'name;joined\n"Holm, Grete";2019\nBasil Quist;2021\n'),
    ("a.tsv", "name\tjoined\nHolm, Grete\t2019\nBasil Quist\t2021\n"),
])  # fmt: skip
def test_rows_of_a_table_are_read_with_the_names_of_their_columns(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (passage,) = read_folder(tmp_path).passages
    assert passage.text == "name: Holm, Grete; joined: 2019\nname: Basil Quist; joined: 2021"


def test_damaged_table_is_named(tmp_path):
    """The limit is the process's; a command that reads tables raises it."""
    before = csv.field_size_limit(131_072)
    (tmp_path / "a.csv").write_text(f"name\n{'x' * 200_000}\n")
    (tmp_path / "b.txt").write_text("Tea")
    try:
        remarks = read_folder(tmp_path).remarks
    finally:
        csv.field_size_limit(before)
    assert remarks == ["1 not read, damaged table (field larger than field limit (131072)): a.csv"]


def test_folder_with_more_files_than_are_read_stops_at_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "MOST_FILES", 2)
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(name)
    found = read_folder(tmp_path)
    assert [one.text for one in found.passages] == ["a", "b"]
    assert found.remarks == ["2 not read, as only 2 texts are (name a folder below): c.txt, d.txt"]


def test_pdf_is_read_where_pypdf_is_there(tmp_path):
    pytest.importorskip("pypdf")
    (tmp_path / "tea.pdf").write_bytes(pdf("Tea is grown in Assam."))
    (tmp_path / "scan.pdf").write_bytes(pdf(""))
    (tmp_path / "cut.pdf").write_bytes(b"%PDF-1.4\n")
    found = read_folder(tmp_path)
    assert [(one.id, one.text) for one in found.passages] == [("tea.pdf#1", "Tea is grown in Assam.")]
    assert found.skipped == {
        "PDF that is damaged or encrypted": ["cut.pdf"],
        "PDF without text, as of a scan (recognise its text first)": ["scan.pdf"],
    }


def test_pdf_without_pypdf_is_counted_with_the_way_to_read_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    (tmp_path / "tea.pdf").write_bytes(pdf("Tea"))
    with pytest.raises(InvalidInput, match=r"1 not read, PDF \(pip install './ragguard\[pdf\]' reads them\)"):
        read_folder(tmp_path)


def pdf(text):
    """A PDF of one page, written by hand."""
    stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET" if text else ""
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        f"<</Length {len(stream)}>>stream\n{stream}\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    body, places = "%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj{one}endobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    body += f"xref\n0 6\n0000000000 65535 f \n{table}trailer<</Size 6/Root 1 0 R>>\nstartxref\n{len(body)}\n%%EOF\n"
    return body.encode()


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_folder_without_texts_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="a folder"):
        read_folder(tmp_path / name)


@pytest.mark.parametrize(
    "page", ["<!--" * 300_000, "<a" * 600_000, "<script>" + "</script " * 200_000, "<td " * 400_000]
)
def test_page_that_closes_nothing_is_read_in_linear_time(tmp_path, page):
    """A rule that goes through the rest of the page at each opening needs hours for these 1.6 MB."""
    (tmp_path / "page.html").write_text(f"<h1>Tea</h1><p>Tea is grown in Assam.</p>{page}")
    (passage,) = read_folder(tmp_path).passages[:1]
    assert passage.text.startswith("Tea\nTea is grown in Assam.")


def test_pdf_is_given_up_whose_pages_draw_too_much_or_take_too_long(tmp_path, monkeypatch):
    pytest.importorskip("pypdf")
    (tmp_path / "large.pdf").write_bytes(pdf("a" * 3_000))
    monkeypatch.setattr(folder, "LONGEST_FILE", 2_000)
    with pytest.raises(InvalidInput, match=r"1 not read, PDF with a page of over 0 MB: large.pdf"):
        read_folder(tmp_path)
    monkeypatch.setattr(folder, "LONGEST_FILE", 2_000_000)
    monkeypatch.setattr(folder, "PDF_SECONDS", -1.0)
    with pytest.raises(InvalidInput, match=r"1 not read, PDF that takes over -1 s: large.pdf"):
        read_folder(tmp_path)


def test_pipe_and_device_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    for path in (tmp_path / "pipe.py", "/dev/zero"):
        with pytest.raises(OSError, match="no regular file"):
            read_bytes(path, 10)
