"""Training and evaluating nano: `make train-nano`, `make evaluate-nano`. Needs PyTorch; not part of the package."""

from pathlib import Path

from ragguard.engines import nano

SHIPPED = Path(nano.__path__[0])
"""The folder of the package that holds nano's weights, vocabulary and card."""
