"""Copies of the weights in fewer bits: what is loaded, what a plan reads, and that no token changes."""

import numpy as np
import pytest

import swiftk
from decode import Rule, decode, open_session
from low_bit import FORMS, MIXED, PROMPT, WIDE
from swiftk import DraftSpec, _core
from swiftk.errors import Cancelled, InvalidArgument, OutOfMemory
from swiftk.files.safetensors_io import read_folder
from swiftk.search.sublayers import SublayerPrices

LAYERS = 4
SKIPS = [
    *(DraftSpec(weights=form) for form in FORMS),
    DraftSpec(weights=MIXED),
    DraftSpec(attn=[1], mlp=[2], weights="int4"),
    DraftSpec(exit_layer=2, weights="int3"),
    DraftSpec(mlp=[0], exit_layer=3, weights=("int8", "own", "int4", "own")),
    DraftSpec(exit_layer=0, weights="int4"),
]
UPPER = [
    DraftSpec(weights="upper"),
    DraftSpec(attn=[1], weights=("own", "upper", "int4", "upper")),
    DraftSpec(exit_layer=3, weights="upper"),
]
SAMPLINGS = {"greedy": {}, "sampled": {"temperature": 0.9, "top_k": 40, "seed": 3}}


@pytest.fixture(scope="module")
def folder(tiny_dir):
    return tiny_dir("llama3", layers=LAYERS)


@pytest.fixture(scope="module")
def lm(folder):
    return swiftk.load(folder, device="cpu", draft_weights=FORMS)


@pytest.fixture(scope="module")
def model(lm):
    return lm.model


@pytest.fixture(scope="module")
def halves(folder):
    """Drafts may read the upper bytes of its weights, or a copy."""
    return swiftk.load(folder, device="cpu", dtype="float16", draft_weights=["upper", "int4"])


def opened(model, skip, **sampling):
    session = open_session(model, sampling=sampling)
    session.prefill(np.asarray(PROMPT, np.int32))
    session.set_skip(_core.DraftSpec(**skip.arguments()))
    return session


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("skip", SKIPS, ids=str)
def test_no_token_changes(model, skip, sampling):
    """Nor a bit of any logits row that was verified."""
    plain = decode(open_session(model, sampling=sampling), PROMPT, 40, keep_logits=True)
    rule = Rule(tuple(skip.arguments().values()), **WIDE)
    drafted = decode(open_session(model, sampling=sampling), PROMPT, 40, rule, keep_logits=True)
    assert drafted.tokens == plain.tokens
    assert np.array(drafted.logits).tobytes() == np.array(plain.logits).tobytes()
    assert drafted.accepted > 0 or skip.exit_layer == 0


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("skip", UPPER, ids=str)
def test_upper_bytes_change_no_token(folder, halves, skip, sampling):
    """Nor does the layout that holds them: the bits are those of float16 weights that are packed plainly."""
    whole = _core.Model(str(folder), dtype="float16")
    plain = decode(open_session(whole, sampling=sampling), PROMPT, 40, keep_logits=True)
    rule = Rule(tuple(skip.arguments().values()), **WIDE)
    drafted = decode(open_session(halves.model, sampling=sampling), PROMPT, 40, rule, keep_logits=True)
    assert drafted.tokens == plain.tokens
    assert np.array(drafted.logits).tobytes() == np.array(plain.logits).tobytes()
    assert drafted.accepted > 0


def test_upper_bytes_are_read_and_cost_nothing(halves, folder):
    model = halves.model
    assert model.copies == {"int4": model.copies["int4"], "upper": 0}
    assert model.copy_shares["upper"] == 0.5
    assert model.weight_bytes == _core.Model(str(folder), dtype="float16").weight_bytes
    drafts = [
        opened(model, DraftSpec()).score(_core.DraftSpec(**DraftSpec(weights=form).arguments()), window=8)[0].tobytes()
        for form in ("own", "upper", "int4")
    ]
    assert len(set(drafts)) == 3
    assert swiftk.load(folder, device="cpu", dtype="float16", draft_weights="upper", draft_memory=1).model.copies == {
        "upper": 0
    }


def test_upper_bytes_need_float16(folder):
    with pytest.raises(InvalidArgument, match="'upper' is the upper byte of float16, weights are bfloat16; want dtype"):
        swiftk.load(folder, device="cpu", draft_weights="upper")


@pytest.mark.parametrize("form", ["int8", "int4", "upper"])
def test_drafts_are_close_to_the_target(model, halves, form):
    """What a whole copy drafts is mostly what the target says: the weights are the same but for their rounding."""
    model, skip = (halves.model if form == "upper" else model), DraftSpec(weights=form)
    session = opened(model, DraftSpec())
    tokens = 160
    for _ in range(tokens):
        session.draft(_core.TreeRule(max_draft=0))
        session.verify()
        session.commit(1)
    _, rank, _ = session.score(_core.DraftSpec(**skip.arguments()), window=tokens)
    _, cut, _ = session.score(_core.DraftSpec(**DraftSpec(exit_layer=1).arguments()), window=tokens)
    assert np.mean(rank == 0) > {"int8": 0.9, "int4": 0.5, "upper": 0.5}[form]
    assert np.mean(rank == 0) > np.mean(cut == 0)


def test_steps_that_read_other_weights_are_not_shared(model):
    """The KVQ cache keeps what is exact: the leading layers that read the model's own."""
    for skip, shared in ((DraftSpec(weights="int4"), 0), (DraftSpec(weights=MIXED), 4), (DraftSpec(mlp=[1]), 3)):
        session = opened(model, skip)
        session.draft(_core.TreeRule(**WIDE))
        session.verify()
        rows, steps = session.last["verify_rows"], 2 * LAYERS
        assert session.last["reused_share"] == pytest.approx(session.last["reused_rows"] * shared / (rows * steps))


def head_alone(model, forms):
    """How sure drafts without a layer are."""
    return (
        opened(model, DraftSpec())
        .score(_core.DraftSpec(**DraftSpec(exit_layer=0, weights=forms).arguments()), window=8)[0]
        .tobytes()
    )


def test_the_head_is_read_from_the_last_layers_form(model):
    """Without a layer the head alone decides."""
    heads = [
        head_alone(model, forms)
        for forms in ("own", ("int4", "int4", "int4", "own"), "int3", ("own", "own", "own", "int3"))
    ]
    assert heads[0] == heads[1] != heads[2] == heads[3]


def test_a_head_that_is_a_small_part_of_the_weights_is_read_more_exactly(tiny_dir, model):
    """Its errors reach the logits undiluted: int8 in every copy, and whole where upper bytes are read."""
    small = tiny_dir("llama3", layers=16)
    fine = _core.Model(str(small), dtype="float16", draft_weights="upper,int8,int4,int3")
    heads = {form: head_alone(fine, form) for form in ("own", "upper", *FORMS)}
    assert heads["int4"] == heads["int3"] == heads["int8"] != heads["own"] == heads["upper"]
    assert fine.copy_shares["upper"] > 0.5
    assert len({head_alone(model, form) for form in FORMS}) == len(FORMS)  # a quarter of the weights


def test_sizes(model):
    """4.25 bits a weight instead of 16, as far as rows fill their panels of 32 and columns their groups of 32."""
    assert list(model.copies) == FORMS
    shares = [size / model.weight_bytes for size in model.copies.values()]
    for share, bits in zip(shares, (8.25, 4.25, 3.25), strict=True):
        assert bits / 16 * 0.9 < share < bits / 16 * 1.35


def test_progress_counts_every_copy(folder):
    calls = []
    _core.Model(str(folder), draft_weights="int4,int3", progress=lambda *call: calls.append(call))
    done, totals = zip(*calls, strict=True)
    assert list(done) == sorted(done)
    assert set(totals) == {done[-1]}
    tensors = {n: t.bits.nbytes for n, t in read_folder(folder).items() if n != "model.embed_tokens.weight"}
    once = sum(size for name, size in tensors.items() if "norm" in name)
    assert done[-1] == once + 3 * (sum(tensors.values()) - once)


def test_progress_cancels_between_copies(folder):
    calls = []
    with pytest.raises(Cancelled):
        _core.Model(str(folder), draft_weights="int8", progress=lambda *call: calls.append(call) or len(calls) < 12)
    assert len(calls) == 12


def test_auto_takes_what_fits(folder, model):
    sizes = model.copies
    for memory, found in ((sizes["int4"], ["int4"]), (sizes["int4"] - 1, ["int3"]), (sizes["int3"] - 1, [])):
        assert list(_core.Model(str(folder), draft_weights="auto", draft_memory=memory).copies) == found


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"draft_weights": "int5"}, InvalidArgument, "draft_weights='int5', want 'auto', 'own', or each"),
        ({"draft_weights": ["int4", "int4"]}, InvalidArgument, "want 'auto', 'own', or each at most once"),
        ({"draft_weights": ["own", "int4"]}, InvalidArgument, "want 'auto', 'own', or each at most once"),
        ({"draft_memory": 0}, InvalidArgument, "draft_memory=0, want an integer in 1"),
        ({"draft_weights": "int8", "draft_memory": 1000}, OutOfMemory, "copies for drafting need .* GB of memory"),
    ],
)
def test_bad_options(folder, options, error, message):
    with pytest.raises(error, match=message):
        swiftk.load(folder, device="cpu", **options)


def test_native_names(folder):
    with pytest.raises(InvalidArgument, match="draft_weights has 'float16', want auto, own, or some of int8"):
        _core.Model(str(folder), draft_weights="int4,float16")


def test_absent_weights_are_named(folder, lm):
    plain = swiftk.load(folder, device="cpu", draft_weights="own")
    with pytest.raises(InvalidArgument, match=r"weights='int4', the model has own; load\(..., draft_weights='int4'\)"):
        plain.generate(PROMPT, max_new_tokens=4, skip="int4")
    with pytest.raises(InvalidArgument, match="weights are int4, the model has its own"):
        plain.session.set_skip(_core.DraftSpec(**DraftSpec(weights="int4").arguments()))
    with pytest.raises(InvalidArgument, match="weights names 3 forms, want one or 4"):
        lm.generate(PROMPT, max_new_tokens=4, skip=DraftSpec(weights=("own", "int4", "int4")))
    with pytest.raises(InvalidArgument, match="weights='int2', want one of own, int8, int4, int3, upper"):
        DraftSpec(weights="int2")


@pytest.mark.parametrize("options", [{}, {"temperature": 0.9, "seed": 5}], ids=["greedy", "sampled"])
@pytest.mark.parametrize("skip", ["auto", "int4", "upper", DraftSpec(mlp=[1], weights=MIXED)], ids=str)
def test_generate(lm, halves, skip, options):
    lm = halves if skip == "upper" else lm
    plain = lm.generate(PROMPT, max_new_tokens=60, ignore_eos=True, speculate=False, **options)
    drafted = lm.generate(PROMPT, max_new_tokens=60, ignore_eos=True, speculate="always", skip=skip, **options)
    assert drafted.tokens == plain.tokens
    assert drafted.stats.num_draft_tokens > 0
    assert drafted.stats.draft_weight_bytes == sum(lm.model.copies.values())


def test_cards_keep_the_weights(tmp_path):
    for skip in SKIPS + UPPER:
        skip.save(tmp_path / "card.json")
        assert DraftSpec.load(tmp_path / "card.json") == skip


def test_prices_of_copies_are_learned_on_their_own():
    """The prior is bytes; what the clock says of a copy says nothing of the model's own weights."""
    config = {"num_layers": 8, "hidden_size": 64, "vocab_size": 500, "head_dim": 16, "num_heads": 4, "ffn": 160}
    prices = SublayerPrices({**config, "num_kv_heads": 4}, {"int4": 0.27})
    whole, low = DraftSpec(), DraftSpec(weights="int4")
    half = DraftSpec(attn=range(4), mlp=range(4), weights="int4")
    mixed = DraftSpec(weights=("own",) * 4 + ("int4",) * 4)
    assert prices.price(low) == pytest.approx(0.27)
    assert prices.price(low) < prices.price(mixed) < prices.price(whole) == pytest.approx(1)
    for _ in range(40):
        prices.observe(low, 0.4)
    assert prices.price(low) == pytest.approx(0.4, abs=0.02)
    assert prices.price(half) == pytest.approx(0.4 * 0.5, abs=0.06)
    assert prices.price(whole) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16", "float16", "int8"])
def test_keys_and_values_have_a_dtype_of_their_own(folder, kv_dtype):
    """Their bytes are its own, texts drafted are texts undrafted, and another dtype gives another text."""
    lm = swiftk.load(folder, device="cpu", dtype="bfloat16", kv_dtype=kv_dtype, draft_weights=FORMS)
    assert (lm.model.dtype, lm.model.kv_dtype) == ("bfloat16", kv_dtype)
    survey = _core.survey(str(folder), dtype="bfloat16", kv_dtype=kv_dtype)
    config = lm.model.config
    d = config["head_dim"]
    head = {"float32": 4 * d, "int8": d + 4}.get(kv_dtype, 2 * d)  # bytes of a key
    assert survey["kv_bytes_per_token"] == config["num_layers"] * 2 * config["num_kv_heads"] * head
    for options in SAMPLINGS.values():
        plain = lm.generate(PROMPT, max_new_tokens=60, ignore_eos=True, speculate=False, **options)
        assert lm.generate(PROMPT, max_new_tokens=60, ignore_eos=True, **options).tokens == plain.tokens
    of = lambda model: decode(open_session(model), PROMPT, 8, keep_logits=True).logits  # noqa: E731
    own = of(swiftk.load(folder, device="cpu", dtype="bfloat16").model)
    assert np.array_equal(of(lm.model), own) == (kv_dtype == "bfloat16")
