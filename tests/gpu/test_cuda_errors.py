"""What can go wrong with a GPU: each is a typed error that says what and where, and the engine goes on."""

import pytest

import stub_cuda
import swiftk
from debug_words import ask
from decode import Rule, decode
from gpu import clean_fixture, copied, gpu_fixture, on_stub_only, replaced  # noqa: F401
from marks import exhaustive
from swiftk import _core
from swiftk.errors import CheckpointError, DeviceError, InvalidArgument, OutOfMemory, SwiftkError, UnsupportedModel
from swiftk.files.model_files import open_model_files
from swiftk.gpu import device
from swiftk.search.used_tokens import UsedTokens, draft_tokens

PROMPT = [5, 9, 2, 7, 7, 1, 30, 12]
RULE = Rule(((1,), (1, 2), -1), 0.0, 5)
N = 16
OUT_OF_MEMORY, ILLEGAL_ADDRESS = 2, 700


@pytest.fixture
def folder(tiny_dir):
    return tiny_dir("llama3", layers=4)


@pytest.fixture(scope="module")
def want(gpu, tiny_dir):
    """The text after PROMPT, decoded plainly."""
    return decode(gpu.session(gpu.open(tiny_dir("llama3", layers=4))), PROMPT, N).tokens


def test_a_model_that_was_converted_for_a_cpu(gpu, folder, tmp_path):
    out = swiftk.convert(folder, tmp_path / "out")
    with pytest.raises(UnsupportedModel, match="was converted for a CPU; on a GPU want the one that it was made of"):
        swiftk.load(out, device="cuda")


def test_no_driver(monkeypatch, folder):
    ask(monkeypatch, "driver=/no/such/libcuda.so", "arch=stub")
    with pytest.raises(DeviceError, match=r"no CUDA driver: /no/such/libcuda\.so.*device='cpu' runs everywhere"):
        swiftk.load(folder, device="cuda")
    assert device.choose("auto") == "cpu"  # and says so in the log


def test_a_driver_that_is_too_old(gpu, monkeypatch, tmp_path):
    on_stub_only(gpu)
    old = stub_cuda.without(gpu.stub.path, "cuGraphInstantiateWithFlags", tmp_path / "libold.so")
    ask(monkeypatch, f"driver={old}")
    with pytest.raises(DeviceError, match="the driver has no cuGraphInstantiateWithFlags, want CUDA 12"):
        _core.gpu_info(0)


def test_no_such_gpu(gpu, folder):
    count = "1 GPU" if gpu.stub else r"\d+ GPU"
    with pytest.raises(DeviceError, match=f"device is cuda:40, this machine has {count}"):
        swiftk.load(folder, device="cuda:40")
    with pytest.raises(InvalidArgument, match="want cpu, cuda or cuda:N"):
        _core.Model(str(folder), device="cuda:x")
    with pytest.raises(InvalidArgument, match="needs a kernel pack"):
        _core.Model(str(folder), device="cuda")


def test_keys_and_values_have_the_weights_dtype_there(gpu, folder):
    for dtype in ("float16", "int8"):
        with pytest.raises(UnsupportedModel, match=f"kv_dtype is {dtype}, on a GPU want bfloat16, the weights' dtype"):
            swiftk.load(folder, device="cuda", kv_dtype=dtype)
    assert swiftk.load(folder, device="cuda", kv_dtype="bfloat16").model.kv_dtype == "bfloat16"


def test_heads_are_trimmed_on_a_cpu_alone(gpu, folder):
    with pytest.raises(UnsupportedModel, match="a trimmed head, draft_vocab, needs the CPU"):
        swiftk.load(folder, device="cuda", draft_vocab=[3, 4, 5])
    used = UsedTokens(open_model_files(folder))
    assert draft_tokens("auto", "cuda", used, None, [2]) == draft_tokens("all", "cpu", used, None, [2]) == []


def test_auto_takes_the_gpu_where_there_is_one(gpu, folder, monkeypatch):
    monkeypatch.delenv("SWIFTK_DEVICE")
    assert device.choose("auto") == "cuda"
    if gpu.stub:
        gpu.stub.set(devices=0)
        assert device.choose("auto") == "cpu"
        gpu.stub.reset()


@pytest.mark.parametrize("word", ["stepwise", "overlap"])
@pytest.mark.usefixtures("clean")
def test_a_switch_is_on_or_off(gpu, folder, monkeypatch, word):
    ask(monkeypatch, f"{word}=maybe")
    with pytest.raises(InvalidArgument, match=f"SWIFTK_DEBUG has '{word}=maybe', want {word}=0 or {word}=1"):
        gpu.session(gpu.open(folder))


def test_auto_says_why_a_gpu_is_not_used(gpu, folder, monkeypatch, caplog):
    monkeypatch.delenv("SWIFTK_DEVICE")
    ask(monkeypatch, "arch=sm_10")
    assert swiftk.load(folder).model.device == "cpu"
    assert "although there is a GPU: [pack] there are no kernels for sm_10" in caplog.text
    with pytest.raises(DeviceError, match="no kernels for sm_10"):
        swiftk.load(folder, device="cuda")


@pytest.mark.parametrize(
    "old, new, words",
    [
        (b'"version": 1', b'"version": 2', "version is 2, want 1"),
        (b"swiftk-kernels", b"swiftk-nothing", "not a kernel pack"),
        (b'"F": 88', b'"F": 89', "built for F = 89, the model has 88"),
        (b'"dtype": "bfloat16"', b'"dtype": "float16"', "built for float16, the weights are bfloat16"),
        (b'"dtype": "bfloat16"', b'"dtype": "int7"', "dtype is 'int7', want float32, bfloat16 or float16"),
        (b'"qk_norm": false', b'"qk_norm": true', "built for qk_norm = 1, the model has 0"),
        (b'"topk_merge"', b'"topk_purge"', "kernel topk_merge is missing"),
        (b'"begin": 0', b'"begin": -1', "lies outside the file"),
        (b'"warps": ', b'"warps": 99', "lacks launch facts"),
        (b'"shape"', b'"shale"', "arch, shape or kernels is missing"),
        (b'"eps"', b'"epz"', "the shape has no usable eps"),
        (b"{", b"[", "not valid JSON"),
    ],
)
def test_packs_that_do_not_fit(gpu, folder, tmp_path, old, new, words):
    with pytest.raises(CheckpointError, match=words):
        gpu.open(folder, pack=replaced(copied(folder, tmp_path / "a.pack"), old, new))


def test_a_truncated_pack(gpu, folder, tmp_path):
    whole = copied(folder, tmp_path / "a.pack")
    data = whole.read_bytes()
    for size in (0, 7, 8, 100, len(data) - 100):
        whole.write_bytes(data[:size])
        with pytest.raises(CheckpointError, match=r"a\.pack"):
            gpu.open(folder, pack=whole)


def test_layers_without_kernels(gpu, tiny_dir):
    with pytest.raises(
        UnsupportedModel, match="a GPU has no kernels for layers of a gemma3_text; device 'cpu' runs it"
    ):
        gpu.open(tiny_dir("gemma3"))


def test_kernels_for_another_gpu(gpu, folder, tmp_path):
    on_stub_only(gpu)
    path = copied(folder, tmp_path / "a.pack")
    data = path.read_bytes()
    images = 8 + int.from_bytes(data[:8], "little")
    path.write_bytes(data[:images] + data[images:].replace(b'{"kernel"', b'?"kernel"'))
    with pytest.raises(DeviceError, match="of a pack for stub does not load on this GPU, which is sm_90"):
        gpu.open(folder, pack=path)


@pytest.mark.parametrize("after", [2, *exhaustive(1, 40)])
@pytest.mark.parametrize(
    "function, error",
    [
        ("cuCtxGetCurrent", 1),
        ("cuMemsetD8_v2", 1),
        ("cuMemAlloc_v2", OUT_OF_MEMORY),
        ("cuMemHostAlloc", OUT_OF_MEMORY),
        ("cuMemcpyHtoDAsync_v2", 1),
        ("cuModuleLoadData", 1),
        ("cuStreamCreate", 1),
        ("cuEventCreate", 1),
        ("cuLaunchKernel", 1),
        ("cuLaunchKernelEx", 1),
        ("cuFuncSetAttribute", 1),
        ("cuStreamBeginCapture_v2", 1),
        ("cuStreamEndCapture", 1),
        ("cuGraphInstantiateWithFlags", OUT_OF_MEMORY),
        ("cuGraphCreate", OUT_OF_MEMORY),
        ("cuGraphConditionalHandleCreate", 1),
        ("cuGraphAddNode_v2", 1),
        ("cuStreamBeginCaptureToGraph", 1),
        ("cuGraphLaunch", 1),
        ("cuMemcpyDtoHAsync_v2", 1),
        ("cuStreamSynchronize", 1),
    ],
)
@pytest.mark.usefixtures("clean")
def test_any_call_may_fail(gpu, folder, want, function, error, after):
    """A typed error or none (the call was not reached); then the same model and session go on to the right text."""
    on_stub_only(gpu)
    expected = OutOfMemory if error == OUT_OF_MEMORY else DeviceError
    gpu.stub.fail(function, error, after)
    session = raised = None
    try:
        session = gpu.session(gpu.open(folder))
        decode(session, PROMPT, N, RULE)
    except SwiftkError as error:
        raised = error
    assert raised is None or (isinstance(raised, expected) and str(raised).startswith("[cuda] "))
    gpu.stub.reset()
    session = session or gpu.session(gpu.open(folder))
    session.reuse([PROMPT[0] ^ 1, 0])
    assert decode(session, PROMPT, N, RULE).tokens[:N] == want


def test_a_model_that_does_not_fit(gpu, folder):
    on_stub_only(gpu)
    gpu.stub.set(memory=gpu.stub.count("bytes") + 200_000)  # beside what other tests hold
    with pytest.raises(OutOfMemory, match="MB asked of a GPU with"):
        gpu.open(folder)
    gpu.stub.reset()


def test_the_context_that_fits(gpu, tiny_dir):
    """Without a wish, the cache takes at most half of what is free."""
    on_stub_only(gpu)
    model = gpu.open(tiny_dir("llama3", max_position_embeddings=1 << 17))
    token = 2 * 3 * model.config["num_kv_heads"] * model.config["head_dim"] * 2  # bytes
    free = 20_000_000
    gpu.stub.set(memory=gpu.stub.count("bytes") + free)
    assert _core.Session(model).context == free // 2 // (64 * token) * 64 - 64  # in blocks, one of them a tree's
    gpu.stub.reset()
    gpu.stub.set(memory=gpu.stub.count("bytes") + 20 * free)
    engine = _core.Engine(model, sequences=2)
    assert free < engine.context * token < 10 * free
    gpu.stub.reset()
