"""`ragguard export-nano`: a checkpoint where there is room for one, and a sentence where there is not."""

import pytest
from typer.testing import CliRunner

from ragguard.cli.app import app


def export(*words):
    return CliRunner().invoke(app, ["export-nano", *map(str, words)])


def test_export_writes_the_checkpoint_and_says_how_to_serve_it(tmp_path):
    folder = tmp_path / "made" / "nano"
    done = export(folder)
    assert done.exit_code == 0, done.output
    assert f"vllm serve {folder} --max-model-len 1024" in done.output
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    again = export(folder)
    assert again.exit_code == 2
    assert "an empty directory" in again.output


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_export_to_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, place):
    (tmp_path / "file").touch()
    done = export(tmp_path / place)
    assert done.exit_code == 2
    assert len(done.output.strip().splitlines()) == 1
