"""`ragguard export-nano`: a checkpoint where there is room for one, and a sentence where there is not."""

from support.commands import ragguard


def test_export_writes_the_checkpoint_and_says_how_to_serve_it(tmp_path):
    folder = tmp_path / "made" / "nano"
    done = ragguard("export-nano", folder, code=0)
    assert f"vllm serve {folder} --max-model-len 1024" in done.output
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    again = ragguard("export-nano", folder, code=2)
    assert "an empty directory" in again.output
