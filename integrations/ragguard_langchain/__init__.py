"""ragguard for LangChain and LangGraph.

agent.invoke(question, {"callbacks": [RagGuardCallback(rg)]})     # one call
instrument(rg)                                                    # every call of this process
"""

from __future__ import annotations

from ragguard_langchain.attachment import instrument, uninstrument
from ragguard_langchain.callback import RagGuardCallback

__all__ = ["RagGuardCallback", "instrument", "uninstrument"]
