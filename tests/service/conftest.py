"""A service on a scripted pipeline: each module says in `SETTINGS` what it does otherwise."""

from contextlib import suppress

import pytest
from support.scripted_pipeline import ScriptedPipeline, ScriptedSettings

from ragguard.service.configuration import Configuration
from ragguard.service.service import in_each_process


@pytest.fixture
def make(tmp_path, request):
    """Makes services, which are closed at the end; `scripted` is the pipeline of one, `services` what made it."""
    made = []

    def service(pipeline=None, *, path=tmp_path / "s.db", **settings):
        pipeline = pipeline or ScriptedPipeline(live=getattr(request.module, "LIVE", ()))
        scoring = ScriptedSettings(pipeline) if isinstance(pipeline, ScriptedPipeline) else pipeline
        given = {
            "scoring": scoring,
            "store": path,
            "exit_timeout": 0.5,
            **getattr(request.module, "SETTINGS", {}),
        }
        services = in_each_process(Configuration(**given | settings))
        services.get().scripted, services.get().services = pipeline, services
        made.append(services.get())
        return services.get()

    yield service
    for one in made:
        with suppress(AttributeError):  # no gate
            one.scripted.gate.set()
        one.close(1.0)
