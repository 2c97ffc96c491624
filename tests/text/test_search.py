"""A folder of texts: what is read, how it is split, and what is found in it."""

import pytest

from ragguard.errors import InvalidInput
from ragguard.records import Passage
from ragguard.text import search
from ragguard.text.search import Search, left_open, read_folder, split


def test_folder_gives_passages_of_its_texts_named_by_file_and_counts_what_it_skips(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "page.html").write_text(
        "<style>p {}</style><p>Ada was born in London.</p><script>x</script>"
    )
    (tmp_path / "a.md").write_text("# Tea\n\nTea is grown in Assam.")
    (tmp_path / "binary.txt").write_bytes(b"\0\1\2")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "large.txt").write_bytes(b"a" * (search.LONGEST_FILE + 1))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden.md").write_text("not read")
    found = read_folder(tmp_path)
    assert [(one.id, one.text) for one in found.passages] == [
        ("a.md#1", "# Tea\nTea is grown in Assam."),
        ("below/page.html#1", "Ada was born in London."),
    ]
    assert found.skipped == {"binary": 1, "not readable as UTF-8": 1, "over 2 MB": 1}


def test_folder_with_more_files_than_are_read_stops_at_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "MOST_FILES", 2)
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(name)
    found = read_folder(tmp_path)
    assert [one.text for one in found.passages] == ["a", "b"]
    assert found.skipped == {"beyond the first 2": 1}


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_folder_without_texts_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="a folder"):
        read_folder(tmp_path / name)


def test_split_joins_short_paragraphs_and_cuts_long_ones():
    parts = split("Short.\n\nAlso short.\n\n" + "word " * 250)
    assert parts[0] == "Short.\nAlso short."
    assert [len(part.split()) for part in parts[1:]] == [120, 120, 10]


def test_search_ranks_rare_words_above_common_ones_and_leaves_out_what_was_found():
    passages = [
        Passage(text, str(at)) for at, text in enumerate(["tea tea cup", "cup cup", "tea in Assam", "milk"])
    ]
    find = Search(passages)
    assert [one.id for one in find(["assam", "tea"], 2)] == ["2", "0"]
    assert [one.id for one in find(["assam", "tea"], 2, without=[passages[2]])] == ["0"]
    assert find(["coffee"], 2) == []


def test_second_search_asks_for_open_words_and_new_names():
    passages = [Passage("The tea is grown in Assam.", "0"), Passage("Assam lies in India.", "1")]
    assert left_open("Which country grows the tea?", passages[:1], Search(passages)) == [
        "country",
        "grows",
        "Assam",
    ]
    assert left_open("tea", [], Search(passages)) == ["tea"]
