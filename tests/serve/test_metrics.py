"""Figures that add up, under names that dashboards know."""

import asyncio
import json
import re
from pathlib import Path

import pytest

import streamed
import swiftk
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from gates import Gate, post, until
from serving import app_of, ask, client_of, figures

ASKED = {"prompt": [5, 6, 7], "max_tokens": 4, "temperature": 0, "ignore_eos": True}
BOARD = json.loads((Path(swiftk.__file__).parent / "serve" / "grafana.json").read_text())


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    work = tmp_path_factory.mktemp("metrics")
    folder = make_tiny(work / "tiny", "llama3")
    with swiftk.load(folder, device="cpu", threads=1, prefix_cache=work / "prefixes") as found:
        yield found


def page_of(app):
    """Figures by name and labels."""

    class Client:
        get = staticmethod(lambda path: ask(app, "GET", path))

    return figures(Client)


def test_texts_and_answers_are_counted(lm):
    with app_of(lm, names=("mine",)) as app:
        for seed in range(3):
            assert ask(app, "POST", "/v1/completions", json={**ASKED, "n": 2, "seed": seed}).status_code == 200
        assert ask(app, "POST", "/v1/completions", json={"prompt": 5}).status_code == 400
        assert ask(app, "GET", "/nope/1").status_code == ask(app, "GET", "/nope/2").status_code == 404
        assert ask(app, "HEAD", "/v1/models").status_code == ask(app, "GET", "/v1/models/mine").status_code == 200
        page, text = page_of(app), ask(app, "GET", "/metrics").text
    assert text.count('model_name="mine"') == len([line for line in text.splitlines() if line[0] != "#"])
    assert page["vllm:generation_tokens_total"] == 24 and page["vllm:prompt_tokens_total"] == 18
    assert page['vllm:request_success_total{finished_reason="length"}'] == 6
    assert page['vllm:request_success_total{finished_reason="abort"}'] == 0
    assert page["vllm:prefix_cache_queries_total"] == 18 >= page["vllm:prefix_cache_hits_total"] > 0
    for name in "time_to_first_token_seconds", "request_queue_time_seconds", "e2e_request_latency_seconds":
        assert page[f"vllm:{name}_count"] == 6
    assert page["vllm:request_generation_tokens_sum"] == 24
    assert page["vllm:num_requests_running"] == page["vllm:num_requests_waiting"] == 0
    assert page["swiftk:kv_cache_resident_bytes"] > 0 == page["vllm:kv_cache_usage_perc"]
    assert page['http_requests_total{handler="/v1/completions",method="POST",status="200"}'] == 3
    assert page['http_requests_total{handler="/v1/completions",method="POST",status="400"}'] == 1
    assert page['http_requests_total{handler="none",method="GET",status="404"}'] == 2
    assert page['http_requests_total{handler="/v1/models",method="HEAD",status="200"}'] == 1
    assert page['http_requests_total{handler="/v1/models/{name:path}",method="GET",status="200"}'] == 1
    assert page['http_request_duration_seconds_count{handler="/v1/completions",method="POST"}'] == 4


def test_weights_from_disk_are_counted(tmp_path):
    """With each text that ends, as its figures have them, which an answer has, too."""
    with streamed.load(streamed.make(tmp_path)) as lm, app_of(lm) as app:
        before = page_of(app)
        answers = [ask(app, "POST", "/v1/completions", json={**ASKED, "seed": seed}).json() for seed in range(2)]
        page = page_of(app)
        size = lm.model.memory["streamed"]
    assert before.get("swiftk:disk_bytes_total", 0) == 0
    passes = page["swiftk:disk_bytes_total"] / size
    assert 2 * 2 <= passes < 2 * 6  # two texts, of four tokens each
    took = [answer["metrics"]["seconds"] for answer in answers]
    assert 0 < page["swiftk:disk_seconds_total"] == pytest.approx(sum(one["disk"] for one in took))
    assert all(one.keys() == {"draft", "verify", "disk"} for one in took)


def test_texts_whose_clients_leave_are_aborted(lm, monkeypatch):
    gate = Gate(monkeypatch, lm, "step")

    async def run(app):
        async with client_of(app) as client:
            answers = [post(client, max_tokens=200)]
            await gate.reached()
            answers.append(post(client))
            await until(lambda: len(app.state.server.texts) == 2)
            assert (await client.get("/metrics")).text.count('vllm:num_requests_running{model_name="tiny"} 2.0') == 1
            answers[0].cancel()
            await asyncio.gather(*answers[:1], return_exceptions=True)
            gate.open()
            assert (await answers[1]).status_code == 200
            await until(lambda: len(app.state.server.texts) == 0)

    with app_of(lm) as app:
        asyncio.run(run(app))
        page = page_of(app)
    assert page['vllm:request_success_total{finished_reason="abort"}'] == 1
    assert page['vllm:request_success_total{finished_reason="length"}'] == 1


def queries(board):
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in board["templating"]["list"]:
        yield from [variable["definition"]] if "definition" in variable else []


def test_the_dashboard_asks_for_what_there_is(lm):
    """Each name of a query is exported, with the labels that it is selected and grouped by."""
    with app_of(lm) as app:
        assert ask(app, "POST", "/v1/completions", json=ASKED).status_code == 200
        samples = ask(app, "GET", "/metrics").text.splitlines()
    labels = {}
    for name, found in re.findall(r"^([\w:]+)\{(.*?)\} ", "\n".join(samples), re.M):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', found))
    asked = set()
    for query in queries(BOARD):
        names = re.findall(r"\b(?:vllm:|swiftk:|http_)\w+", query)
        assert names, query
        for name in names:
            used = re.findall(r"(\w+)=~", query) + [
                one for group in re.findall(r"by \(([\w, ]+)\)", query) for one in group.split(", ")
            ]
            assert name in labels and set(used) <= labels[name], query
        asked |= set(names)
    assert len(asked) > 15
    assert {f"swiftk:disk_{what}_total" for what in ("bytes", "seconds")} <= asked
    on_disk = {name for name in labels if re.fullmatch(r"swiftk:prefix_files(_bytes|\w*_total)?", name)}
    assert len(on_disk) == 5 and on_disk <= asked


def test_the_dashboard_is_one_that_grafana_imports():
    assert BOARD["schemaVersion"] >= 36 and BOARD["title"] and BOARD["uid"] and "id" not in BOARD
    assert {one["name"] for one in BOARD["templating"]["list"]} == {"datasource", "model_name"}
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == len({panel["title"] for panel in panels})
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) and all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)
    for panel in panels:
        assert panel["type"] == "timeseries" and panel["fieldConfig"]["defaults"]["unit"]
        refs = [target["refId"] for target in panel["targets"]]
        assert refs and len(set(refs)) == len(refs)
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
