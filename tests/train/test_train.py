"""Runs of the trainer: killed and resumed, on a full disk, wrong from the start, and what comes out at the end."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import swiftk
from swiftk.errors import CheckpointError, DeviceError, InvalidArgument, NumericalError
from swiftk.files.safetensors_io import read_file
from swiftk.train import log
from swiftk.train.files import SaveError
from swiftk.train.settings import NEW_MODEL, Settings, flag
from swiftk.train.tokens import read, windows

torch = pytest.importorskip("torch")
from swiftk.train import loop, running, weights  # noqa: E402
from swiftk.train.model import Decoder  # noqa: E402
from swiftk.train.prepare import reopen  # noqa: E402
from swiftk.train.shape import read_shape  # noqa: E402

SMALL = Settings(
    layers=4,
    hidden=32,
    heads=2,
    kv_heads=1,
    ffn=48,
    vocab=300,
    steps=60,
    batch=8,
    context=32,
    device="cpu",
    lr=1e-2,
    warmup=5,
    p_max=0.3,
    e_scale=1.0,
    held_out=0.1,
    threads=1,
    eval_every=20,
    save_every=8,
    export_dtype="float32",
)
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


@pytest.fixture(scope="module", autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Counting on from somewhere: a few layers learn some of it, all of them more."""
    rng, path = random.Random(0), tmp_path_factory.mktemp("data") / "counting.txt"
    starts = [rng.randrange(13) for _ in range(3000)]
    path.write_text("".join(" ".join(WORDS[(s + i) % 13] for i in range(5)) + ".\n" for s in starts))
    return str(path)


def trained(folder, corpus, **changes):
    settings = replace(SMALL, **{"data": (corpus,), **changes})
    assert loop.train(loop.begin(folder, settings))
    return folder


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run that nothing interrupted."""
    return trained(tmp_path_factory.mktemp("run") / "out", corpus)


ENDED = """
import os, runpy
from swiftk.train.log import Log
add, rows = Log.add, [0]

def counted(self, *row):
    add(self, *row)
    rows[0] += self.path.name == "loss.csv"
    if rows[0] == {rows}:
        rows[0] += 1
        os.kill(os.getpid(), {signal})

Log.add = counted
runpy.run_module("swiftk.train", run_name="__main__")
"""


def ended_by(signum, rows, *arguments):
    """A run that sends itself a signal once it has added so many rows: (exit status, standard error)."""
    command = [sys.executable, "-c", ENDED.format(rows=rows, signal=int(signum)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def options(settings):
    """The settings as a command line."""
    given = {name: value for name, value in settings.to_dict().items() if value not in (None, False) and name != "data"}
    flags = {f.name: flag(f) for f in Settings.__dataclass_fields__.values()}
    return [*settings.data, *(str(word) for name, value in given.items() for word in (flags[name], value))]


def same_runs(one, other):
    for name in ("training/loss.csv", "training/valid.csv", "training/state.safetensors", "model.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def losses(folder):
    """[steps] the loss of each."""
    return np.array([float(row.split(",")[2]) for row in (folder / "training" / "loss.csv").read_text().split()[1:]])


def test_bfloat16_learns_as_float32_does(corpus, finished, tmp_path):
    """And which it was is the run's, not the machine's."""
    folder = trained(tmp_path / "half", corpus, precision="bfloat16")
    assert json.loads((finished / "training" / "run.json").read_text())["precision"] == "float32"
    exact, rounded = losses(finished), losses(folder)
    assert not np.array_equal(exact, rounded)
    np.testing.assert_allclose(rounded[:5], exact[:5], rtol=0.01)
    np.testing.assert_allclose(rounded[-10:].mean(), exact[-10:].mean(), rtol=0.1)


@pytest.mark.exhaustive
def test_a_compiled_run_is_the_same_run(corpus, finished, tmp_path):
    """Up to the order of summation; samples that drop layers make batches of every size."""
    folder = trained(tmp_path / "compiled", corpus, compile=True, steps=12)
    again = trained(tmp_path / "plain", corpus, steps=12)
    np.testing.assert_allclose(losses(folder), losses(again), rtol=2e-4)


# Killed and resumed.
@pytest.mark.exhaustive
def test_a_killed_run_goes_on_bit_for_bit(corpus, finished, tmp_path):
    """Killed at some step, then stopped by SIGTERM at a later one, then left in peace."""
    out, rng = tmp_path / "out", random.Random()
    rows = out / "training" / "loss.csv"
    done = rng.randint(9, 25)
    status, _ = ended_by(signal.SIGKILL, done, "--out", out, *options(replace(SMALL, data=(corpus,))))
    assert status == -signal.SIGKILL and len(log.read(rows)) == done
    (out / "training" / "state.safetensors.partial").write_bytes(b"cut short")

    status, said = ended_by(signal.SIGTERM, rng.randint(1, 10), "--resume", out)
    assert status == 130
    assert f"--resume {out}" in said
    assert swiftk.load(out, device="cpu").generate("one two", max_new_tokens=2).tokens  # the model so far

    assert loop.train(reopen(out, {}))
    same_runs(out, finished)
    assert [int(row[0]) for row in log.read(rows)] == list(range(1, SMALL.steps + 1))


def test_a_finished_run_is_left_as_it_is(finished):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file() and path.suffix != ".png"}
    assert loop.train(reopen(finished, {}))
    assert {path: path.read_bytes() for path in before} == before


def test_a_full_disk_leaves_the_last_checkpoint(corpus, finished, tmp_path, monkeypatch):
    real, calls = weights.write_file, []

    def full(path, tensors):
        calls.append(path)
        written = real(path, tensors)
        yield next(written)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield from written

    monkeypatch.setattr(weights, "write_file", full)
    run = loop.begin(tmp_path / "out", replace(SMALL, data=(corpus,)))
    with pytest.raises(SaveError, match=r"state\.safetensors cannot be written: No space left.*before is intact"):
        loop.train(run)
    monkeypatch.undo()
    assert read_file(run.state)["step"].bits.tolist() == [16.0]
    assert not list(run.training.glob("*.partial"))
    assert loop.train(reopen(run.folder, {}))
    same_runs(run.folder, finished)


def test_two_processes_do_not_share_a_run(finished):
    run = reopen(finished, {})
    other = pytest.raises(InvalidArgument, match="another process is training in")
    with running.alone(run.folder, run.training), other:
        loop.train(run)


# The trained model.
def test_the_runtime_decodes_what_was_trained(finished):
    """Greedy tokens of the runtime are the trainer's own best tokens; the config says how to end a text."""
    model = Decoder(read_shape(finished, SMALL.context))
    weights.load(model, finished)
    lm = swiftk.load(finished, device="cpu")
    prompt = lm.tokenizer.encode("three four five")
    tokens = lm.generate(prompt, max_new_tokens=12, ignore_eos=True).tokens
    with torch.no_grad():
        (x,) = model.exits(torch.tensor([[*prompt, *tokens]]), [False, False, False, True])
        best = model.head(x)[0].argmax(-1).tolist()
    assert best[len(prompt) - 1 : -1] == list(tokens)
    config = json.loads((finished / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)


@pytest.mark.parametrize("family", ["gemma2", "gemma3", "olmo3", "phi3", "ernie4.5", "hunyuan", "granite", "smollm3"])
def test_models_of_other_families_go_on(corpus, tiny_dir, tmp_path, family):
    """What was trained is other weights of the same model, which the runtime decodes as the trainer does."""
    before = tiny_dir(family, dtype="float32")
    changes = {name: getattr(Settings(), name) for name in NEW_MODEL}
    folder = trained(tmp_path / "out", corpus, **changes, model=str(before), steps=6, context=16, batch=4)
    model = Decoder(read_shape(folder, 16))
    weights.load(model, folder)
    first = Decoder(read_shape(before, 16))
    weights.load(first, before)
    assert not any(torch.equal(a, b) for a, b in zip(model.parameters(), first.parameters(), strict=True))
    lm, prompt = swiftk.load(folder, device="cpu", dtype="float32"), [5, 9, 2, 7]
    tokens = lm.generate(prompt, max_new_tokens=12, ignore_eos=True).tokens
    with torch.no_grad():
        (x,) = model.exits(torch.tensor([[*prompt, *tokens]]), [False] * (model.shape.L - 1) + [True])
        best = model.head(x)[0].argmax(-1).tolist()
    assert best[len(prompt) - 1 : -1] == list(tokens)


def test_transformers_load_it(finished):
    transformers = pytest.importorskip("transformers")
    ids = torch.tensor(np.random.default_rng(1).integers(3, 290, (2, 20)))
    with torch.no_grad():
        theirs = transformers.AutoModelForCausalLM.from_pretrained(finished, dtype=torch.float32).eval()(ids).logits
        model = Decoder(read_shape(finished, SMALL.context))
        weights.load(model, finished)
        (x,) = model.exits(ids, [False, False, False, True])
        assert (model.head(x) - theirs).abs().max() < 1e-4 * theirs.std()
    tokenizer = transformers.AutoTokenizer.from_pretrained(finished)
    assert tokenizer("one two").input_ids == swiftk.load(finished, device="cpu").tokenizer.encode("one two")


@torch.no_grad()
def agreement(folder):
    """Share of held-out tokens at which exit 2 and the model say the same next."""
    model = Decoder(read_shape(folder, SMALL.context))
    weights.load(model, folder)
    held_out = read(folder / "training" / "tokens", SMALL.context, SMALL.held_out).valid
    batch = torch.from_numpy(windows(held_out, 31, range(0, 32 * 31, 31)).tokens)
    exits = [model.head(x).argmax(-1) for x in model.exits(batch, [False, True, False, True])]
    return (exits[0] == exits[1]).double().mean().item()


def test_the_recipe_makes_early_exits_agree(corpus, finished, tmp_path):
    """Against the same model by plain training, exit 2 is close to the last; and as a draft it is taken."""
    plain = trained(tmp_path / "plain", corpus, p_max=0.0, e_scale=0.0)
    losses = [[float(x) for x in log.read(folder / "training" / "valid.csv")[-1][1:]] for folder in (finished, plain)]
    (near, last), (far, best) = ((x[1], x[3]) for x in losses)
    assert near - last < (far - best) / 3
    assert last < np.log(300) / 3  # it has learned
    assert agreement(finished) > agreement(plain) + 0.1
    lm = swiftk.load(finished, device="cpu")
    how = {"max_new_tokens": 60, "ignore_eos": True}
    drafted = lm.generate("three four", skip=swiftk.DraftSpec.early_exit(2), optimizer=None, speculate="always", **how)
    assert drafted.tokens == lm.generate("three four", speculate=False, **how).tokens
    assert drafted.stats.draft_acceptance_rate > 0.5


def test_tables_have_the_exits_of_each_step(finished):
    """Rotation by R = 3 over 4 layers: exit l has a loss at every third step but the first exit, whose weight is 0."""
    rows = log.read(finished / "training" / "loss.csv")
    for t, row in enumerate(rows):
        on = [bool(cell) for cell in row[3:]]
        assert on == [False, t % 3 == 1, t % 3 == 2, True]
    weights_of = {1: 1 / 7, 2: 3 / 9}  # e = 0, 1, 3, 3 + 3
    for t in (1, 2):
        share, early, last = weights_of[t], float(rows[t][3 + t]), float(rows[t][6])
        assert float(rows[t][2]) == pytest.approx(share * early + (1 - share) * last, rel=1e-5)


@pytest.mark.parametrize("family", ["llama3.2", "qwen3"])
def test_a_checkpoint_is_continued(family, corpus, tiny_dir, tmp_path):
    """Its config, dtype and tokenizer stay; with no learning rate, so does every bit of it."""
    source = tiny_dir(family)
    changes = {"model": str(source), "steps": 2, "export_dtype": None}
    changes |= {name: getattr(Settings(), name) for name in NEW_MODEL}
    same = trained(tmp_path / "same", corpus, **changes, lr=0.0, weight_decay=0.0)
    before, after = read_file(source / "model.safetensors"), read_file(same / "model.safetensors")
    assert set(before) == set(after)
    assert all((before[name].bits == after[name].bits).all() for name in before)
    assert (same / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    settings = reopen(same, {}).settings
    assert (settings.rotation, settings.dropout_schedule, settings.layers) == (2, "constant", 3)
    other = trained(tmp_path / "other", corpus, **changes)
    after = read_file(other / "model.safetensors")
    assert all((before[name].bits != after[name].bits).any() for name in before)
    assert swiftk.load(other, device="cpu").generate("one two", max_new_tokens=3).tokens


# Wrong from the start.
def test_losses_that_are_no_numbers(corpus, tmp_path):
    with pytest.raises(NumericalError, match=r"the loss of step \d+ is (nan|inf), want a lower --lr"):
        trained(tmp_path / "out", corpus, lr=1e30, clip=0.0)


def test_a_damaged_checkpoint(corpus, tmp_path):
    run = loop.begin(tmp_path / "out", replace(SMALL, data=(corpus,), steps=2))
    assert loop.train(run)
    whole = run.state.read_bytes()
    run.state.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"state\.safetensors cannot be read"):
        loop.train(reopen(run.folder, {}))
    run.state.write_bytes(whole)
    assert loop.train(reopen(run.folder, {}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "want --out DIR for a new run, or --resume DIR"),
        (("--out", "new"), "no file was given"),
        (("/no/file.txt", "--out", "new"), "/no/file.txt does not exist"),
        (("{corpus}", "--out", "{finished}"), "holds a run already, want --resume"),
        (("{corpus}", "--out", "{full}"), "is there and not empty, want a new folder"),
        (("{corpus}", "--out", "new", "--model", "/no/model"), "/no/model is not a directory"),
        (("{corpus}", "--out", "new", "--model", "{finished}", "--layers", "3"), "--layers is for a new model"),
        (("{corpus}", "--out", "new", "--tokenizer", "{full}"), "has no tokenizer.json"),
        (("{corpus}", "--out", "new", "--heads", "5"), "want a multiple of num_attention_heads=5"),
        (("{corpus}", "--out", "new", "--context", "4096"), "--context is 4096, want at most 2048"),
        (("{corpus}", "--out", "new", "--device", "tpu"), "--device is 'tpu', want auto, cpu, cuda or cuda:N"),
        (("{corpus}", "--out", "new", "--p-max", "2"), "--p-max is 2.0, want 0 to 1"),
        (("--resume", "{full}"), "holds no run"),
        (("--resume", "{finished}", "--lr", "1"), "--lr is fixed when a run begins"),
        (("--resume", "{finished}", "{corpus}"), "data is fixed when a run begins"),
    ],
)
def test_mistakes(arguments, message, corpus, finished, tmp_path, monkeypatch, capsys):
    from swiftk.train.__main__ import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    places = {"corpus": corpus, "finished": finished, "full": tmp_path / "full"}
    assert main([argument.format(**places) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.strip().splitlines()[-1].startswith("swiftk.train: [")
    assert not (tmp_path / "new").exists()


def test_a_gpu_that_is_not_there(corpus, tmp_path):
    with pytest.raises(DeviceError, match=r"--device is cuda:99, and torch sees \d+ GPUs"):
        trained(tmp_path / "out", corpus, device="cuda:99")


def test_help_names_every_setting():
    command = [sys.executable, "-m", "swiftk.train", "--help"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in ("--p-max", "--e-scale", "--curriculum", "--R", "--dropout-schedule", "--resume", "--template"):
        assert name in out
    for group in ("recipe", "optimization", "data"):
        assert f"{group}:" in out
