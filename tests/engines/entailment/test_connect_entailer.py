"""`connect_entailer`."""

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard.engines.connected_entailer import connect_entailer, open_entailer
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.nli_models import ClassifyEntailer
from ragguard.errors import InvalidInput, UnknownName


async def test_an_address_a_model_and_an_entailer():
    served = open_entailer("http://127.0.0.1:9/v1#nli")
    assert isinstance(served, ClassifyEntailer)
    assert "nli" in repr(served)
    await served.aclose()
    own = EngineEntailer(ScriptedEngine())
    assert open_entailer(own) is own


async def test_a_model_of_transformers():
    pytest.importorskip("torch", reason="the extra hf is not installed")
    from ragguard.engines.nli_models import CrossEncoder

    here = open_entailer("hf:some/nli-model")
    assert isinstance(here, CrossEncoder)
    await here.aclose()


@pytest.mark.parametrize("wrong", ["deberta", "hf:", "ftp://x", ""])
def test_an_unknown_word_is_refused_with_what_is_known(wrong):
    with pytest.raises(UnknownName, match="cross-encoder"):
        connect_entailer(wrong)


def test_something_else_is_refused():
    with pytest.raises(InvalidInput, match="entailer"):
        connect_entailer(5)
