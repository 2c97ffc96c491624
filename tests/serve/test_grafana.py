"""The dashboard and the alert rules in docs/grafana: every name is exported, and a real Prometheus takes them."""

import json
import os
import re
import shutil
from pathlib import Path

import httpx
import pytest
from support.polling import eventually
from support.served import served
from support.server_process import free_port, healthy_server

FOLDER = Path(__file__).parents[2] / "docs/grafana"
RULES = FOLDER / "alerts.yml"
PROMETHEUS = shutil.which("prometheus")


def expressions():
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]] + [RULES.read_text()]


async def test_every_name_is_exported(client):
    used = {name for one in expressions() for name in re.findall(r"\bragguard_\w+", one)}
    async with client() as asked:
        exported = set(re.findall(r"^# TYPE (\w+)", (await asked.get("/metrics")).text, re.M))
    assert used == exported | {"ragguard_remarks_total"}  # it appears with the first remark


async def test_counts_that_alerts_ask_for_are_there_from_the_start(client):
    async with client() as asked:
        page = (await asked.get("/metrics")).text
    for sample in (
        'requests_total{address="/v1/traces",status="503"}', 'store_total{what="runs_failed"}',
        'store_total{what="runs_scored"}', 'spans_total{what="that came too late for its trace"}',
    ):  # fmt: skip
        assert f"\nragguard_{sample} 0.0\n" in page


async def test_page_comes_in_the_format_that_a_scraper_accepts(client):
    async with client() as asked:
        wanted = {"accept": "application/openmetrics-text; version=1.0.0"}
        plain, opened = await asked.get("/metrics"), await asked.get("/metrics", headers=wanted)
    assert (plain.headers["content-type"][:10], opened.headers["content-type"][:28]) == (
        "text/plain",
        wanted["accept"][:28],
    )
    assert (plain.text.endswith("# EOF\n"), opened.text.endswith("# EOF\n")) == (False, True)


@pytest.mark.skipif(PROMETHEUS is None, reason="NO prometheus HERE: apt-get install prometheus")
def test_a_real_prometheus_scrapes_the_service_and_runs_its_rules_and_queries(tmp_path):
    with served(tmp_path) as service:
        (tmp_path / "p.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "ragguard", "static_configs": [{"targets": [service.url[7:]]}]}],
        }))  # fmt: skip
        url = f"http://127.0.0.1:{free_port()}"
        command = [
            PROMETHEUS, f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={url[7:]}",
        ]  # fmt: skip
        with (
            healthy_server(
                command, f"{url}/-/ready", tmp_path / "log", environment=os.environ, patience_s=60
            ),
            httpx.Client(base_url=f"{url}/api/v1", timeout=10) as ask,
        ):
            eventually(lambda: results(ask, "ragguard_traces_waiting"), 60, every=0.2)
            for query in expressions()[:-1]:
                results(ask, query)
            eventually(lambda: {rule["health"] for rule in rules(ask)} == {"ok"}, 60, every=0.2)
            assert len(rules(ask)) == RULES.read_text().count("- alert:")


def results(ask, query):
    reply = ask.get("/query", params={"query": query}).json()
    assert reply["status"] == "success", reply
    return reply["data"]["result"]


def rules(ask):
    (group,) = ask.get("/rules").json()["data"]["groups"]
    return group["rules"]
