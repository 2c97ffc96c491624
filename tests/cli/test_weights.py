"""`ragguard export-nano`: a checkpoint where there is room for one, and a sentence where there is not."""

from functools import partial

import pytest
from support.commands import ragguard, refusal

export = partial(ragguard, "export-nano")


def test_export_writes_the_checkpoint_and_says_how_to_serve_it(tmp_path):
    folder = tmp_path / "made" / "nano"
    done = export(folder, code=0)
    assert f"vllm serve {folder} --max-model-len 1024" in done.output
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    again = export(folder, code=2)
    assert "an empty directory" in again.output


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_export_to_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, place):
    (tmp_path / "file").touch()
    refusal("export-nano", tmp_path / place)
