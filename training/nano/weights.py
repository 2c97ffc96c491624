"""Writes a trainer's checkpoint as float16, the weights that ship. `python -m training.nano.weights CHECKPOINT`.
Needs PyTorch."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training.nano import SHIPPED
from training.nano.network import Shape


def export_weights(checkpoint: Path, to: Path) -> int:
    """Writes the file and says how many parameters it holds."""
    state = torch.load(checkpoint, weights_only=True)
    model, shape = state["model"], Shape(**state["shape"])
    arrays: dict[str, NDArray[np.generic]] = {
        "config": np.frombuffer(json.dumps(asdict(shape)).encode(), np.uint8),
        "embed": model["embed"].half().numpy(),
        "norm": model["norm"].half().numpy(),
    }
    for name in (
        "input_norm",
        "post_norm",
        "q.weight",
        "k.weight",
        "v.weight",
        "o.weight",
        "gate.weight",
        "up.weight",
        "down.weight",
    ):
        layers = [model[f"layers.{i}.{name}"] for i in range(shape.num_hidden_layers)]
        arrays[name.removesuffix(".weight")] = torch.stack(layers).half().numpy()
    np.savez(to, allow_pickle=False, **arrays)
    return sum(int(p.numel()) for p in model.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--to", type=Path, default=SHIPPED / "weights.npz")
    args = parser.parse_args()
    print(f"{export_weights(args.checkpoint, args.to):,} parameters, {args.to.stat().st_size:,} bytes")
