"""Trains nano: `python -m training.nano.train --out DIR`. Needs PyTorch; the package itself never
imports this.

Muon for the matrices between layers and Adam for the rest; constant rate, then linear decay over the
last steps. Each step's data follows from the seed and the step's number, so a run that is stopped and
called again with the same arguments takes up the checkpoint in DIR and goes on as if never stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from training.nano.batches import Batch, make_batch
from training.nano.initial_weights import set_initial_weights
from training.nano.lessons import Level
from training.nano.network import Network, Shape
from training.nano.optimizer import Muon


def level_at(step: int, args: argparse.Namespace) -> Level:
    """The curriculum: grids of few documents in plain words at first, the whole from `--grown` on."""
    grown = min(1.0, max(0.0, (step - args.basics) / max(1, args.grown - args.basics)))
    return Level(
        documents=round(4 + (args.documents - 4) * grown),
        two_hops=0.15 + (args.two_hops - 0.15) * grown,
        reading=0.85 + (args.reading - 0.85) * grown,
        grids=0.85 + (args.grids - 0.85) * grown,
        plain=0.9 * (1 - grown),
    )


class Batches(Dataset[Batch]):  # type: ignore[misc]
    """A data set with one batch for each step, made in another process."""

    def __init__(self, args: argparse.Namespace, first: int, last: int) -> None:
        self.args, self.first, self.last = args, first, last

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> Batch:
        step = self.first + index
        return make_batch(self.args.seed, step, self.args.rows, self.args.length, level_at(step, self.args))


def rate_at(step: int, args: argparse.Namespace) -> float:
    """Returns the learning rate at a step: warm-up, constant, then linear to (almost) nothing."""
    left = float((args.steps - step) / max(1, args.decay))
    return min(1.0, (step + 1) / 100, max(0.02, left))


def loss_of(network: Any, head: Network, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted loss, and the share of first answer words (weight 1) that are right."""
    ids, positions, branch = (torch.from_numpy(a) for a in (batch.ids, batch.positions, batch.branch))
    seen = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
    mask = seen & torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
    bias = torch.zeros(mask.shape).masked_fill_(~mask, -1e9)[:, None]
    hidden = network(ids, positions, bias)
    weights = torch.from_numpy(batch.weights).flatten()
    chosen = weights.nonzero().squeeze(1)
    targets, weights = torch.from_numpy(batch.targets).flatten()[chosen], weights[chosen]
    logits = head.logits(hidden.flatten(0, 1)[chosen])
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    firsts = weights == 1.0
    right = (logits.argmax(-1) == targets)[firsts].float().mean()
    return (losses * weights).sum() / weights.sum(), right.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10600)
    parser.add_argument(
        "--decay", type=int, default=4800, help="over how many last steps the rate falls to nothing"
    )
    parser.add_argument(
        "--grown", type=int, default=2500, help="the step from which the curriculum is complete"
    )
    parser.add_argument("--basics", type=int, default=700, help="the step up to which it stays easy")
    parser.add_argument("--documents", type=int, default=9, help="the most in a row, once grown")
    parser.add_argument(
        "--two-hops", type=float, default=0.5, help="their share among what is read, once grown"
    )
    parser.add_argument("--reading", type=float, default=0.6, help="the share of rows with several documents")
    parser.add_argument("--grids", type=float, default=0.2, help="the share of grids among those, once grown")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--muon", type=float, default=0.014)
    parser.add_argument("--adam", type=float, default=0.002)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=100, help="steps between lines of the log")
    parser.add_argument("--save", type=int, default=250, help="steps between checkpoints")
    parser.add_argument("--stop", type=int, default=0, help="stop after this step, for a trial")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--shape", type=json.loads, default={}, help="fields of Shape, as JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    head = Network(Shape(**args.shape))
    set_initial_weights(head)
    matrices = [p for name, p in head.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in head.named_parameters() if p.ndim < 2 or "embed" in name]
    muon = Muon(matrices, args.muon)
    adam = torch.optim.Adam(others, lr=args.adam, betas=(0.9, 0.95), eps=1e-10)
    saved, step, spent = args.out / "checkpoint.pt", 0, 0.0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        head.load_state_dict(state["model"])
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        step, spent = state["step"], state["seconds"]
        for optimizer, rate in ((muon, args.muon), (adam, args.adam)):
            for group in optimizer.param_groups:
                group["initial_lr"] = rate
    network: Any = head if args.no_compile else torch.compile(head)
    last = args.stop or args.steps
    loader = DataLoader(Batches(args, step, last), batch_size=None, num_workers=1, prefetch_factor=8)
    started, tokens, sums = time.monotonic(), 0, [0.0, 0.0, 0]
    print(f"{sum(p.numel() for p in head.parameters()):,} parameters, from step {step}", flush=True)
    for batch in loader:
        scale = rate_at(step, args)
        for group in (*muon.param_groups, *adam.param_groups):
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * scale
        loss, right = loss_of(network, head, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        muon.step()
        adam.step()
        muon.zero_grad()
        adam.zero_grad()
        step += 1
        tokens += int((batch.branch >= 0).sum())
        sums = [sums[0] + float(loss.detach()), sums[1] + float(right), sums[2] + 1]
        if not math.isfinite(sums[0]):
            raise SystemExit(f"the loss is not finite at step {step}")
        seconds = spent + time.monotonic() - started
        if step % args.every == 0:
            line = {
                "step": step,
                "loss": round(sums[0] / sums[2], 4),
                "first_word": round(sums[1] / sums[2], 4),
                "rate": scale,
                "documents": level_at(step, args).documents,
                "seconds": round(seconds),
                "tokens_per_second": round(tokens / (time.monotonic() - started)),
            }
            with (args.out / "curve.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            print(line, flush=True)
            sums = [0.0, 0.0, 0]
        if step % args.save == 0 or step == last:
            state = {"model": head.state_dict(), "muon": muon.state_dict(), "adam": adam.state_dict()}
            torch.save({**state, "step": step, "seconds": seconds, "shape": args.shape}, f"{saved}.new")
            os.replace(f"{saved}.new", saved)


if __name__ == "__main__":
    main()
