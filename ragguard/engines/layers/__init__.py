"""Layers: each wraps an engine and is an engine itself, so that they stack.

The usual stack, outermost first, and why in this order:

    Cache(Coalesce(Priority(Retry(Budget(engine, account)))))

- `Cache` outermost: what is known costs no wait, no slot, no money, and what two callers want at
  once is asked once, before anything is counted or merged.
- `Coalesce` above `Priority`: calls merge while they are still many, and are cut again to what the engine has shown
  that it can do.
- `Retry` below `Priority`: each part is repeated for itself, so that the others are asked once. A part that waits
  for its next attempt keeps its place: an engine that fails is not given more meanwhile.
- `Budget` innermost, and only where something is limited: every attempt passes it. The HTTP client counts each request
  where it leaves, inner retries included.

Every layer hands `deadline` and `priority` on, passes `info` through and closes what it wraps.
All of them may be called from several event loops at once, if the engine may.
"""

from ragguard.engines.layers.budget import Account, Budget, Price, Spent
from ragguard.engines.layers.cache import Cache
from ragguard.engines.layers.coalesce import Coalesce
from ragguard.engines.layers.priority import Priority
from ragguard.engines.layers.retry import Patience, Retry

__all__ = ["Account", "Budget", "Cache", "Coalesce", "Patience", "Price", "Priority", "Retry", "Spent"]
