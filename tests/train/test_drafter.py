"""Training a drafter: it learns, it goes on after a stop to the same bits, and what it writes drafts."""

import csv
import json
import random
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import typer

import swiftk
from gguf_files import of_folder
from marks import exhaustive
from swiftk.errors import InvalidArgument
from swiftk.testing import make_tiny

torch = pytest.importorskip("torch")
from swiftk.train import answers, drafter, loop  # noqa: E402
from swiftk.train.__main__ import main  # noqa: E402
from swiftk.train.drafter_settings import DrafterSettings  # noqa: E402
from swiftk.train.frozen import Frozen  # noqa: E402
from swiftk.train.settings import Settings  # noqa: E402
from swiftk.train.shape import target_shape  # noqa: E402
from swiftk.train.tokens import Batch  # noqa: E402

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TARGET = Settings(
    layers=3,
    hidden=48,
    heads=2,
    kv_heads=1,
    ffn=64,
    vocab=300,
    steps=120,
    batch=8,
    context=64,
    device="cpu",
    lr=1e-2,
    warmup=5,
    p_max=0.0,
    e_scale=0.0,
    threads=1,
    eval_every=200,
    save_every=200,
)
SMALL = DrafterSettings(
    layers=1,
    block=4,
    taps=2,
    rank=8,
    steps=60,
    context=48,
    anchors=12,
    lr=1e-2,
    warmup=4,
    held_out=0.2,
    device="cpu",
    threads=1,
    log_every=1,
    eval_every=30,
    save_every=8,
)
KINDS = {
    "block": SMALL,
    "block-200": replace(SMALL, draft_vocab=200),
    "eagle": replace(SMALL, kind="eagle3", steps_ahead=3, draft_vocab=200, taps=3),
    "eagle2": replace(SMALL, kind="eagle2", steps_ahead=3),
    "moa": replace(SMALL, kind="moa", ahead=4),
    "model": replace(SMALL, kind="model", layers=2, hidden=24, steps_ahead=3),
    "moa-1": replace(SMALL, kind="moa", ahead=4, target_layers=1),
}


@pytest.fixture(scope="module", autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    rng, path = random.Random(0), tmp_path_factory.mktemp("data") / "counting.txt"
    starts = [rng.randrange(10) for _ in range(2000)]
    path.write_text("".join(" ".join(WORDS[(s + i) % 10] for i in range(6)) + ".\n" for s in starts))
    return str(path)


@pytest.fixture(scope="module")
def target(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("target") / "model"
    assert loop.train(loop.begin(folder, replace(TARGET, data=(corpus,))))
    return folder


@pytest.fixture(scope="module", params=["block", *exhaustive(*(k for k in KINDS if k != "block"))])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def trained(tmp_path_factory, corpus, target, kind):
    folder = tmp_path_factory.mktemp("drafter") / "out"
    assert drafter.train(*drafter.start(folder, replace(KINDS[kind], data=(corpus,), target=str(target))))
    return folder


def test_it_learns_and_drafts(trained, target, kind):
    with (trained / "training" / "valid.csv").open() as file:
        lengths = [float(row["mean_length"]) for row in csv.DictReader(file)]
    assert len(lengths) == 2 and lengths[-1] > 1.5
    told = (trained / "README.md").read_text()
    assert f"base_model: {target.name}" in told and f" {lengths[-1]:.2f} |" in told
    assert f" --target {target.name} " in told and "drafter counting.txt --" in told
    lm = swiftk.load(target, device="cpu", drafter=trained, draft_weights="own")
    options = {"max_new_tokens": 60, "ignore_eos": True, "temperature": 0.0}
    plain = lm.generate("one two three", speculate=False, **options)
    chain = swiftk.TreeRule(confidence=0.0, max_draft=3, width=(1, 1, 1, 1))
    way = {"skip": "drafter", "drafter": "plan", "gate": chain, "speculate": "always"}
    drafted = lm.generate("one two three", **way, **options)
    assert drafted.tokens == plain.tokens
    assert drafted.stats.mean_generated_length > 1.5


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, trained, corpus, target, kind):
    folder = tmp_path / "out"
    run, settings = drafter.start(folder, replace(KINDS[kind], data=(corpus,), target=str(target)))
    with drafter.Display(settings.steps, 1) as display:
        trainer = drafter.DrafterTrainer(run, settings, display, drafter.KINDS[settings.kind])
        for _ in range(21):  # five after the last checkpoint
            trainer.advance()
        trainer.close()
    assert drafter.train(*drafter.reopen(folder, {}))
    for name in ("training/loss.csv", "training/valid.csv", "training/state.safetensors", "model.safetensors"):
        assert (folder / name).read_bytes() == (trained / name).read_bytes(), name


def test_bfloat16_learns_as_float32_does(tmp_path, trained, corpus, target, kind):
    settings = replace(KINDS[kind], data=(corpus,), target=str(target), precision="bfloat16")
    folder = tmp_path / "half"
    assert drafter.train(*drafter.start(folder, settings))
    losses, lengths = [], []
    for run in trained, folder:
        with (run / "training" / "loss.csv").open() as file:
            losses.append(np.array([float(row["loss"]) for row in csv.DictReader(file)]))
        with (run / "training" / "valid.csv").open() as file:
            lengths.append([float(row["mean_length"]) for row in csv.DictReader(file)][-1])
    means = [np.convolve(run, np.full(10, 0.1), "valid") for run in losses]  # one step's loss leaps, in either
    # One run may be some steps ahead while the loss falls fastest.
    assert not np.array_equal(*losses) and np.allclose(*means, rtol=0.3)
    assert lengths[1] > 0.8 * lengths[0]


@pytest.mark.parametrize("kind", ["eagle2", "moa-1"])
def test_a_gguf_file_teaches_what_its_folder_does(tmp_path, corpus, target, kind):
    """Weights in the order of a folder: also of a layer that runs in training."""
    file = of_folder(target, {"": "F32"}).write(tmp_path / "x.gguf")
    ids = np.random.default_rng(0).integers(3, 300, (3, 40))
    batch, losses = Batch(ids, np.ones_like(ids, bool)), []
    for path in (target, file):
        settings = replace(KINDS[kind], target=str(path), precision="float32")
        shape, frozen = target_shape(path, 48), Frozen(path, torch.device("cpu"))
        module = drafter.KINDS[settings.kind](settings, shape, frozen, np.arange(300))
        module.initialize(0)
        losses.append(module.loss(batch, np.random.default_rng(1), 1.0).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("gemma3", "eagle2"), ("granite", "moa"), ("ernie4.5", "block"), ("olmo2", "moa-1"), ("hunyuan", "moa-1")],
)
def test_heads_of_families_with_layers_of_their_own(tmp_path, corpus, family, kind):
    """A head's layers are LLaMA's; it reads states, cached rows and logits as the family has them."""
    target = make_tiny(tmp_path / "target", family, dtype="float32")
    settings = replace(KINDS[kind], data=(corpus,), target=str(target), steps=12, eval_every=12)
    folder = tmp_path / "out"
    assert drafter.train(*drafter.start(folder, settings))
    lm = swiftk.load(target, device="cpu", drafter=folder, draft_weights="own")
    options = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 0.7, "seed": 3}
    plain = lm.generate("one two three", speculate=False, **options)
    drafted = lm.generate("one two three", skip="drafter", speculate="always", **options)
    assert drafted.tokens == plain.tokens and drafted.stats.num_spec_steps > 0


def test_answers_are_the_models(tmp_path, target):
    """A line each; a run that was stopped goes on to the same lines; a head learns from them."""
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{word} {next}"}) + "\n" for word, next in pairwise(WORDS)))
    words = ["--target", str(target), str(prompts), "--out", str(out), "--tokens", "24", "--temperature", "0.5"]
    command(words)
    lines = out.read_text().splitlines()
    lm = swiftk.load(target, device="cpu", draft_weights="own")
    for i, line in enumerate(map(json.loads, lines)):
        options = {"temperature": 0.5 * (i % 2), "seed": i, "max_new_tokens": 24}
        assert line["completion"] == lm.generate(line["prompt"], **options).text
    assert len(lines) == len(WORDS) - 1
    out.write_text("\n".join(lines[:4]) + "\n")
    command(words)
    assert out.read_text().splitlines() == lines
    settings = replace(SMALL, data=(str(out),), target=str(target), held_out=0.0, steps=2, context=32, block=3)
    assert drafter.train(*drafter.start(tmp_path / "out", settings))


def test_questions_are_invented_once(tmp_path, target, monkeypatch):
    """Each from its seed, those that end; a run that was stopped goes on to the same lines."""
    folder, out = tmp_path / "chats", tmp_path / "answers.jsonl"
    shutil.copytree(target, folder)
    told = json.loads((folder / "tokenizer_config.json").read_text())
    template = "{% for m in messages %}<s>{{ m.role }} {{ m.content }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({**told, "chat_template": template}))
    ends = [2, *swiftk.load(folder).tokenizer.encode(" nine", special=False)]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    monkeypatch.setattr(answers, "_LONGEST", 12)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    words = ["--target", str(folder), str(prompts), "--out", str(out), "--tokens", "8", "--invent", "40"]
    command(words)
    lines = out.read_text().splitlines()
    seeds = [json.loads(line).get("invented") for line in lines]
    assert seeds[:2] == [None, None] and 2 < len(seeds) < 42 and seeds[2:] == sorted(set(seeds[2:]))
    lm = swiftk.load(folder, device="cpu", draft_weights="own")
    begin = lm.tokenizer.encode("<s>user ", special=False, parse_special=True)
    drawn = lm.generate(begin, seed=seeds[-1], temperature=1.0, max_new_tokens=12)
    assert json.loads(lines[-1])["messages"][0]["content"] == drawn.text.strip()
    for kept in (1, 2, len(lines) - 1):
        out.write_text("\n".join(lines[:kept]) + "\n")
        command(words)
        assert out.read_text().splitlines() == lines


def command(words):
    app = typer.Typer()
    app.command()(answers.main)
    app(words, standalone_mode=False)


def test_only_answers_are_learned(tmp_path, target, kind):
    """Losses and accuracies of answers do not depend on what the model would say within questions."""
    settings = replace(KINDS[kind], target=str(target), precision="float32")
    frozen = Frozen(target, torch.device("cpu"))
    module = drafter.KINDS[settings.kind](settings, target_shape(target, 48), frozen, np.r_[0:300, 100:300])
    module.initialize(0)
    ids = np.random.default_rng(0).integers(3, 300, (3, 40))
    learned = np.zeros((3, 40), bool)
    learned[:, 12:30] = True
    whole, part = Batch(ids, np.ones_like(learned)), Batch(ids, learned)
    said = frozen.logits
    questions = {state.numpy().tobytes() for state in module._read(ids)[-1][~torch.from_numpy(part.counts)]}

    def changed(states):
        within = [state.numpy().tobytes() in questions for state in states.flatten(0, -2)]
        signs = 1.0 - 2 * torch.tensor(within).view(*states.shape[:-1], 1)
        return said(states) * signs

    @torch.no_grad()
    def found(batch, logits):
        frozen.logits, rng = logits, np.random.default_rng(1)
        return module.loss(batch, rng, 1.0).item(), module.right(batch, rng).tolist()

    assert found(part, said) == found(part, changed)
    assert found(whole, said)[0] != found(whole, changed)[0]
    assert found(part, said)[0] != found(whole, said)[0]


def test_the_command(tmp_path, corpus, target, capsys):
    out = tmp_path / "out"
    words = ["drafter", "--target", str(target), corpus, "--out", str(out), "--steps", "2", "--context", "32"]
    assert main([*words, "--block", "3", "--layers", "1", "--rank", "0", "--threads", "1"]) == 0
    assert swiftk.load(target, device="cpu", drafter=out).model.drafters == ["block"]
    assert main(words) == 2 and "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": None}, "--target DIR"),
        ({"taps": 9}, "the model has 3 layers"),
        ({"target_layers": 3, "kind": "moa"}, "the model has 3 layers"),
        ({"mask": 300}, "tokens 0..299"),
        ({"ahead": 25, "kind": "moa"}, "at most half of --context 48"),
        ({"kind": "eagle3", "layers": 2}, "--layers 2, .* drafter has one"),
        ({"kind": "model", "hidden": 25}, "--hidden is 25, want a multiple of the model's head size 24"),
        ({"kind": "eagle2", "layers": 2}, "--layers is 2, an eagle2 drafter has one layer"),
    ],
)
def test_what_cannot_be_trained(tmp_path, corpus, target, changes, words):
    settings = replace(SMALL, **{"data": (corpus,), "target": str(target), **changes})
    with pytest.raises(InvalidArgument, match=words):
        drafter.start(tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()


def test_an_unrolled_step_is_a_chain_of_single_ones():
    """What EAGLE-3 says in step k from place t is what a lone chain from there says: no other row is seen."""
    from swiftk.train.eagle import EagleDrafter
    from swiftk.train.shape import Rope, Shape

    torch.manual_seed(0)
    shape = Shape(L=1, D=24, H=2, n_kv=1, d=12, F=40, V=50, eps=1e-5, tied=True, qkv_bias=False, o_bias=False,
                  mlp_bias=False, qk_norm=False, ropes=(Rope((1.0, 0.7, 0.4, 0.2, 0.1, 0.05)),))  # fmt: skip
    module = EagleDrafter(shape, 2, torch.arange(0, 50, 2))
    features, tokens, embedding = torch.randn(1, 12, 48), torch.randint(0, 50, (1, 12)), torch.randn(50, 24)
    with torch.no_grad():
        together = module(features, tokens, embedding, 4)
        for place in (0, 3, 7):
            behind = torch.full_like(features[:, place + 1 :], 1e4)
            alone = module(torch.cat([features[:, : place + 1], behind], 1), tokens, embedding, 4)
            for k in range(4):
                assert torch.allclose(together[k][0, place], alone[k][0, place], atol=1e-5)
                changed = tokens.clone()
                changed[0, place + 2 + k :] += 1
                later = module(features, changed % 50, embedding, 4)
                assert torch.allclose(together[k][0, place], later[k][0, place], atol=1e-5)
    assert [step.shape for step in together] == [(1, 11 - k, 25) for k in range(4)]
    assert module.ids.tolist() == list(range(0, 50, 2)) and module.t2d.nonzero().ravel().tolist() == module.ids.tolist()


def test_the_draft_vocabulary_is_the_most_frequent_tokens():
    from swiftk.train.draft_vocab import frequent
    from swiftk.train.eagle import taps_of

    assert frequent(np.array([5, 5, 1, 7, 7, 7, 2, 2], np.uint16), 3, 9).tolist() == [2, 5, 7]
    assert frequent(np.array([3], np.uint16), 4, 4).tolist() == [0, 1, 2, 3]
    assert frequent(np.array([3], np.uint16), 9, 4).tolist() == [0, 1, 2, 3]  # at most
    assert taps_of(32, 3) == [1, 15, 28] and taps_of(16, 2) == [7, 15] and taps_of(3, 3) == [0, 1, 2]
