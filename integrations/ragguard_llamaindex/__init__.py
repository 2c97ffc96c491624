"""ragguard for LlamaIndex.

instrument(rg)      # every query engine, chat engine, agent and workflow of this process
"""

from __future__ import annotations

from ragguard_llamaindex.instrumentation import instrument, uninstrument

__all__ = ["instrument", "uninstrument"]
