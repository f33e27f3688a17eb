"""Replicas on a Ray cluster of two nodes, one of which is killed under its streams."""

import json
import socket
import threading

import pytest

import swiftk

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")
ray = pytest.importorskip("ray")
from ray import serve  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from patience import PATIENCE, until  # noqa: E402
from swiftk.serve import ServeSettings, ray_app  # noqa: E402

pytestmark = pytest.mark.exhaustive
PROMPTS = [f"def f{i}(x):\n" for i in range(10)]
ASKED = {"max_tokens": 400, "temperature": 1.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def lm():
    with swiftk.load(swiftk.demo_model(), draft_weights="own") as found:
        yield found


@pytest.fixture(scope="module")
def cluster():
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    other = found.add_node(num_cpus=1)
    ray.init(address=found.address, log_to_driver=False)
    app = ray_app(
        swiftk.demo_model(), replicas=2, resources={"num_cpus": 1}, draft_weights="own", threads=1,
        settings=ServeSettings(names=("demo",)),
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve.start(proxy_location="HeadOnly", http_options={"port": port, "host": "127.0.0.1"})
    serve.run(app)
    yield f"http://127.0.0.1:{port}", found, other
    serve.shutdown()
    ray.shutdown()
    found.shutdown()


def streamed(url, prompt, seed, pieces):
    """Whether the text ended; `pieces` are its so far."""
    try:
        asked = {"prompt": prompt, "seed": seed, "stream": True, **ASKED}
        with httpx.stream("POST", f"{url}/v1/completions", json=asked, timeout=PATIENCE) as answer:
            if answer.status_code != 200:
                return False
            for line in answer.iter_lines():
                if line == "data: [DONE]":
                    return True
                if line.startswith("data: "):
                    pieces += [choice["text"] for choice in json.loads(line[6:])["choices"]]
    except httpx.HTTPError:
        pass
    return False


def test_a_node_is_killed(cluster, lm):
    url, found, other = cluster
    wanted = [
        lm.generate(p, max_new_tokens=400, temperature=1.0, ignore_eos=True, seed=i, speculate=False).text
        for i, p in enumerate(PROMPTS)
    ]
    assert httpx.get(f"{url}/health", timeout=PATIENCE).text == "ok"
    asked = {"prompt": PROMPTS[0], "seed": 0, **ASKED}
    first = httpx.post(f"{url}/v1/completions", json=asked, timeout=PATIENCE).json()
    assert first["choices"][0]["text"] == wanted[0] and first["model"] == "demo"
    got, broke = [[] for _ in PROMPTS], []

    def one(i):
        if streamed(url, PROMPTS[i], i, got[i]):
            return
        broke.append(i)
        assert wanted[i].startswith("".join(got[i]))
        until(lambda: got[i].clear() or streamed(url, PROMPTS[i], i, got[i]))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    until(lambda: sum(map(bool, got)) >= len(got) // 2)
    found.remove_node(other, allow_graceful=False)
    for thread in threads:
        thread.join()
    assert list(map("".join, got)) == wanted
    assert broke, "no stream was on the node that was killed"
    assert httpx.get(f"{url}/v1/models", timeout=PATIENCE).json()["data"][0]["id"] == "demo"
    assert httpx.post(f"{url}/v1/completions", json={"prompt": 3}, timeout=PATIENCE).status_code == 400


def test_requests_that_begin_alike_meet(cluster):
    """What one of them cached the next one takes over."""
    prompt = "Here is a text that is long enough for a block of keys and values. " * 12
    counts = []
    for i in range(4):
        body = {"prompt": prompt + f"{i}", "max_tokens": 2, "seed": 1}
        reported = httpx.post(f"{cluster[0]}/v1/completions", json=body, timeout=PATIENCE).json()
        counts.append(reported["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert all(counts[1:])


def test_bad_replicas():
    with pytest.raises(swiftk.InvalidArgument, match="replicas"):
        ray_app(swiftk.demo_model(), replicas=(3, 2))
