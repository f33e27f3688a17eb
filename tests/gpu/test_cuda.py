"""The CUDA backend: a row's bits in any company, the CPU's numbers within rounding, recorded passes, no leaks."""

import gc
import threading

import numpy as np
import pytest

from decode import Rule, decode
from gpu import chain, clean_fixture, gpu_fixture, logits_after, on_stub_only, tokens  # noqa: F401
from marks import exhaustive
from swiftk import _core
from swiftk.errors import DeviceError
from swiftk.gpu import device, pack

LAYERS = 4
PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
COUNTS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64]
UNIFORM = Rule(((1,), (1, 2), -1), 0.0, 5)
# Logits against the CPU's, in standard deviations of them: two dtypes' worth of roundings, summed over a few layers.
TOLERANCE = {"float32": 2e-4, "float16": 1e-2, "bfloat16": 8e-2}
FAMILIES = {
    "llama3": {},
    "llama-bias": {"head_dim": 10, "intermediate_size": 75},
    "mistral": {"sliding_window": 7},
    "qwen2-sliding": {},
    "qwen3": {},
}
LONG = {"max_position_embeddings": 8192, "layers": 1}
NARROW = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4}

pytestmark = pytest.mark.usefixtures("clean")


def tree_logits(session, prompt, drawn, nodes, parents):
    """Logits rows of a tree after a prompt, whose next token is taken to be `drawn`."""
    session.reuse([int(prompt[0]) ^ 1, 0])
    session.prefill(prompt)
    assert session.history[-1] == drawn
    session.set_tree(nodes, parents)
    session.verify()
    return session.logits.copy()


@pytest.mark.parametrize("dtype", ["bfloat16", *exhaustive("float32", "float16")])
@pytest.mark.parametrize("length", [3, 130, 600])
def test_a_row_has_the_same_bits_in_any_company(gpu, tiny_dir, dtype, length):
    model = gpu.open(tiny_dir("llama3", **LONG), dtype)
    session = gpu.session(model, context=1024)
    vocab = model.config["vocab_size"]
    prompt, nodes = tokens(length, vocab), tokens(63, vocab, 1)
    drawn = session.prefill(prompt).token
    whole = tree_logits(session, prompt, drawn, nodes, chain(63))
    for n in COUNTS:
        part = tree_logits(session, prompt, drawn, nodes[: n - 1], chain(n - 1))
        assert part.tobytes() == whole[:n].tobytes(), f"{n} rows"
    for i in (0, 1, 20, 62):  # the same tokens as a prompt of their own
        text = [*prompt, drawn, *nodes[:i]]
        assert logits_after(session, text).tobytes() == whole[i].tobytes(), f"row {i}"


def test_branches_have_the_bits_of_their_text(gpu, tiny_dir):
    """Trees whose branches lie in slots far from their positions, across tiles and splits of attention."""
    model = gpu.open(tiny_dir("llama3", **LONG))
    session = gpu.session(model, context=1024)
    vocab, rng = model.config["vocab_size"], np.random.default_rng(3)
    for length in (1, 30, 33, 250):
        prompt = tokens(length, vocab, length)
        drawn = session.prefill(prompt).token
        parents = np.array([rng.integers(max(0, i - 9), i + 1) for i in range(50)], np.int32)
        nodes = tokens(50, vocab, 7)
        rows = tree_logits(session, prompt, drawn, nodes, parents)
        for leaf in (1, 25, 50):
            path, node = [], leaf
            while node > 0:
                path.append(int(nodes[node - 1]))
                node = int(parents[node - 1])
            assert logits_after(session, [*prompt, drawn, *path[::-1]]).tobytes() == rows[leaf].tobytes()


@pytest.mark.parametrize("length", [4400, *exhaustive(8188)])
def test_long_contexts_split_at_the_same_positions(gpu, tiny_dir, length):
    """A chain and a tree, across the boundary of two splits."""
    model = gpu.open(tiny_dir("llama3", max_position_embeddings=9000, layers=1, **NARROW))
    session = gpu.session(model, context=length + 80)
    vocab = model.config["vocab_size"]
    prompt, nodes = tokens(length, vocab), tokens(8, vocab, 1)
    drawn = session.prefill(prompt).token
    rows = tree_logits(session, prompt, drawn, nodes, chain(8))
    forks = tree_logits(session, prompt, drawn, nodes, np.int32([0, 0, 2, 3, 4, 1, 6, 7]))
    assert logits_after(session, [*prompt, drawn, *nodes[:5]]).tobytes() == rows[5].tobytes()
    assert logits_after(session, [*prompt, drawn, *nodes[1:5]]).tobytes() == forks[5].tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", *exhaustive(*(name for name in TOLERANCE if name != "bfloat16"))])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_cpu(gpu, tiny_dir, family, dtype):
    folder = tiny_dir(family, layers=LAYERS, **FAMILIES[family])
    ours, cpu = gpu.open(folder, dtype), _core.Model(str(folder), dtype=dtype)
    text = tokens(70, ours.config["vocab_size"])
    for n in (1, 5, 40, 70):
        got, want = (logits_after(_core.Session(m, poison=True), text[:n]) for m in (ours, cpu))
        assert np.abs(got - want).max() < TOLERANCE[dtype] * want.std()


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0.8, "top_p": 0.9, "seed": 1}, *exhaustive({}, {"temperature": 1.0, "seed": 5})]
)
@pytest.mark.parametrize("family", ["llama3", "qwen3", "mistral"])
def test_drafts_change_no_token(gpu, tiny_dir, family, sampling):
    model = gpu.open(tiny_dir(family, layers=LAYERS))
    plain = decode(gpu.session(model, sampling), PROMPT, 40, keep_logits=True)
    fast = decode(gpu.session(model, sampling), PROMPT, 40, UNIFORM, keep_logits=True)
    assert fast.tokens[:40] == plain.tokens
    assert fast.accepted > 0, "nothing was accepted: the test would say nothing"
    assert np.array(fast.logits[:40]).tobytes() == np.array(plain.logits).tobytes()


@pytest.mark.parametrize("matmuls", ["cuda", "triton"])
def test_both_kinds_of_matmuls(gpu, tiny_dir, matmuls):
    """Those in CUDA C++ read W in an order of their own; on the stub, as its kernels do then."""
    families = {"llama3": {"tie_word_embeddings": True}, "qwen3": {}, "llama-bias": {"intermediate_size": 72}}
    for family, extra in families.items():
        folder = tiny_dir(family, layers=2, **extra)
        try:
            path = pack.ensure(pack.shape_of(folder), device.architecture("cuda"), matmuls=matmuls)
        except DeviceError as error:
            pytest.skip(str(error))
        model = gpu.open(folder, pack=path)
        session = gpu.session(model)
        text = tokens(70, model.config["vocab_size"])
        want = logits_after(_core.Session(_core.Model(str(folder))), text)
        assert np.abs(logits_after(session, text) - want).max() < TOLERANCE["bfloat16"] * want.std()
        drawn = session.prefill(text).token
        whole = tree_logits(session, text, drawn, text[:63], chain(63))
        for n in (1, 9, 17, 33):
            assert tree_logits(session, text, drawn, text[: n - 1], chain(n - 1)).tobytes() == whole[:n].tobytes()


def test_sessions_run_side_by_side(gpu, tiny_dir):
    model = gpu.open(tiny_dir("llama3", layers=LAYERS))
    want = decode(gpu.session(model), PROMPT, 30).tokens
    got = [None] * 3

    def work(i):
        got[i] = decode(gpu.session(model), PROMPT, 30, UNIFORM if i else None).tokens[:30]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(got))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [want] * len(got)


def test_a_step_is_one_recorded_launch(gpu, tiny_dir):
    on_stub_only(gpu)
    session = gpu.session(gpu.open(tiny_dir("llama3", layers=LAYERS)))
    decode(session, PROMPT, 8)  # records
    gpu.stub.reset()
    decode(session, [*PROMPT, 3], 21)
    counted = gpu.stub.counters()
    assert counted["graph_launches"] >= 20
    assert counted.get("instantiations", 0) == 0
    launched = {name: n for name, n in counted.items() if name.startswith("launches.")}
    # Kernel by kernel only: the prompt (recorded passes count, too), and the draw.
    assert launched["launches.topk_partial"] == launched["launches.topk_merge"] == 21


@pytest.mark.parametrize("sampling", [
    {"temperature": 0.6, "top_k": 20, "top_p": 0.9},
    {"temperature": 0.2, "top_p": 0.9},
    {"temperature": 0.6, "repetition_penalty": 1.1},
    {"repetition_penalty": 1.1},
    {"frequency_penalty": 1.0, "logit_bias": {5: -3.0}, "min_tokens": 9, "stop_ids": [1, 2]},
], ids=str)  # fmt: skip
def test_a_filtered_tree_is_drawn_without_its_rows(gpu, tiny_dir, sampling):
    """One list of the nodes' best tokens comes to the host, and not one row of logits."""
    on_stub_only(gpu)
    session = gpu.session(gpu.open(tiny_dir("llama3", layers=1, vocab=4000)), {**sampling, "seed": 3})
    session.prefill(PROMPT)
    session.set_tree(tokens(20, 4000), [0] * 10 + [1] * 10)
    gpu.stub.reset()
    session.verify()
    counted = gpu.stub.counters()
    assert counted["launches.topk_partial"] == counted["d2h"] == 1
    assert counted["d2h_bytes"] < 4000 * 4 * 3
    assert counted["h2d_bytes"] < 5000  # a row has 16000


def test_a_new_skip_set_records_no_target_pass(gpu, tiny_dir):
    on_stub_only(gpu)
    session = gpu.session(gpu.open(tiny_dir("llama3", layers=LAYERS)))
    chains = {"confidence": 0.0, "max_draft": 5, "width": (1, 1, 1, 1)}
    for skip in 2 * (((1,), (1, 2), -1), ((2,), (), -1)):
        decode(session, PROMPT, 30, Rule(skip, **chains))
    gpu.stub.reset()
    decode(session, PROMPT, 30, Rule(((), (0, 3), -1), **chains))
    assert gpu.stub.count("instantiations") == 1  # of the new draft plan


def test_memory_comes_back(gpu, tiny_dir):
    on_stub_only(gpu)
    folder = tiny_dir("llama3", layers=LAYERS)
    gc.collect()
    before = gpu.stub.count("bytes")
    session = gpu.session(gpu.open(folder))
    decode(session, PROMPT, 20, UNIFORM)
    assert gpu.stub.count("bytes") > before
    del session
    gc.collect()
    assert gpu.stub.count("bytes") == before
