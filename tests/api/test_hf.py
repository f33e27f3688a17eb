"""model.generate(custom_generate=swiftk.hf.generate) beside transformers' own generate(), on the same weights."""

import json

import pytest

import swiftk
from marks import exhaustive
from swiftk.errors import InvalidArgument
from swiftk.testing import FAMILIES, make_tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIX = ["llama2", "llama3.1", "mistral", "qwen2", "qwen3", "llama3.2"]
OTHERS = [name for name in FAMILIES if name not in SIX]
PROMPTS = [[5, 9, 17, 33, 2, 8], [7, 7, 12], [40, 3, 11, 11]]


def opened(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("hf") / "tiny", "llama3", "float32", layers=3)


@pytest.fixture(scope="module")
def model(folder):
    return opened(folder)


def padded(prompts, pad=0):
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    return {"input_ids": ids, "attention_mask": mask}


def both(model, **options):
    """(transformers' own, ours)."""
    own = model.generate(**options)
    return own, model.generate(**options, custom_generate=swiftk.hf.generate)


@pytest.mark.parametrize("family", SIX + exhaustive(*OTHERS))
def test_greedy_is_the_models_own(tmp_path, family):
    model = opened(make_tiny(tmp_path / "tiny", family, "float32", layers=3))
    options = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    for prompts in PROMPTS[:1], PROMPTS:
        own, ours = both(model, **padded(prompts), **options)
        assert ours.dtype == own.dtype and torch.equal(own, ours)


def test_texts_that_end_are_padded(model):
    own = model.generate(**padded(PROMPTS), max_new_tokens=20, do_sample=False, pad_token_id=0)
    end = own[1, len(PROMPTS[0]) + 4].item()  # which the second text says early
    options = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0, "eos_token_id": [end, 300]}
    own, ours = both(model, **padded(PROMPTS), **options)
    assert torch.equal(own, ours) and (ours[1, -1] == 0 or ours[1, -1] == end)


def test_penalties_and_returned_objects(model):
    options = {"max_new_tokens": 24, "repetition_penalty": 1.3, "return_dict_in_generate": True, "do_sample": False}
    own, ours = both(model, input_ids=torch.tensor(PROMPTS[:1]), **options)
    assert torch.equal(own.sequences, ours.sequences)


def test_texts_that_may_not_end_yet(model):
    own = model.generate(**padded(PROMPTS), max_new_tokens=20, do_sample=False, pad_token_id=0)
    end = own[1, len(PROMPTS[0]) + 4].item()  # which the second text says early
    options = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0, "eos_token_id": [end, 300]}
    own, ours = both(model, **padded(PROMPTS), **options, min_new_tokens=12)
    assert torch.equal(own, ours) and end not in own[1, len(PROMPTS[0]) :][:12]


def test_sampling_is_the_engines_and_repeats_by_torchs_seed(model):
    sampler = {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "typical_p": 0.8}
    options = {"do_sample": True, "max_new_tokens": 16, **sampler}
    options |= {"custom_generate": swiftk.hf.generate, "num_return_sequences": 3}
    ids = torch.tensor(PROMPTS[:1])
    torch.manual_seed(3)
    found = model.generate(ids, **options)
    torch.manual_seed(3)
    assert torch.equal(found, model.generate(ids, **options))
    assert found.shape[0] == 3 and not torch.equal(found[0], found[1])
    torch.manual_seed(3)
    seeds = torch.randint(2**62, (3,)).tolist()
    want = swiftk.hf.attach(model).generate(PROMPTS[0], **sampler, seed=seeds[0], max_new_tokens=16, ignore_eos=True)
    assert found[0, len(PROMPTS[0]) :].tolist()[: len(want.tokens)] == want.tokens


class Given:
    """A streamer."""

    def __init__(self):
        self.received, self.ended = [], False

    def put(self, value):
        self.received += value.flatten().tolist()

    def end(self):
        self.ended = True


def test_streamers_receive_every_token(model):
    own, ours = Given(), Given()
    ids, options = torch.tensor(PROMPTS[:1]), {"max_new_tokens": 12, "do_sample": False}
    model.generate(ids, streamer=own, **options)
    model.generate(ids, streamer=ours, custom_generate=swiftk.hf.generate, **options)
    assert ours.received == own.received and ours.ended
    three = padded(PROMPTS)["input_ids"]
    with pytest.raises(InvalidArgument, match="one text, got 3"):
        swiftk.hf.generate(model, three, generation_config=model.generation_config, streamer=Given())


def test_criteria_of_the_callers_stop_it(model):
    class Seventh(transformers.StoppingCriteria):
        def __call__(self, input_ids, scores, **kwargs):
            return torch.full((len(input_ids),), input_ids.shape[1] >= len(PROMPTS[0]) + 7)

    criteria = transformers.StoppingCriteriaList([Seventh()])
    options = {"max_new_tokens": 20, "do_sample": False, "stopping_criteria": criteria}
    own, ours = both(model, input_ids=torch.tensor(PROMPTS[:1]), **options)
    assert torch.equal(own, ours) and ours.shape[1] == len(PROMPTS[0]) + 7


def test_weights_are_read_where_they_lie_and_again_when_they_changed(folder):
    model = opened(folder)
    lm = swiftk.hf.attach(model)
    assert swiftk.hf.attach(model) is lm and lm.model.dtype == "float32"
    ids, options = torch.tensor(PROMPTS[:1]), {"max_new_tokens": 8, "do_sample": False}
    before = model.generate(ids, custom_generate=swiftk.hf.generate, **options)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.down_proj.weight.mul_(-2)
    own, ours = both(model, input_ids=ids, **options)
    assert torch.equal(own, ours) and not torch.equal(ours, before)
    assert swiftk.hf.attach(model) is not lm
    eight = swiftk.hf.attach(model, draft_weights="int8", threads=1)
    assert list(eight.model.copies) == ["int8"] and swiftk.hf.attach(model) is eight


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_beams": 2}, "num_beams=2"),
        ({"no_repeat_ngram_size": 2}, "NoRepeatNGramLogitsProcessor is not supported"),
        ({"output_scores": True, "return_dict_in_generate": True}, "output_scores=True"),
        ({"bad_words_ids": [[5]]}, "NoBadWordsLogitsProcessor is not supported"),
    ],
)
def test_what_is_not_honoured_is_named(model, options, words):
    ids = torch.tensor(PROMPTS[:1])
    with pytest.raises(InvalidArgument, match=words):
        model.generate(ids, max_new_tokens=8, do_sample=False, custom_generate=swiftk.hf.generate, **options)


@pytest.fixture
def asked(model, monkeypatch):
    """Options and figures of each text that the engine makes for transformers."""
    lm, found = swiftk.hf.attach(model, threads=1), []
    submit = lm.submit_many

    def submit_many(prompts, each):
        streams = submit(prompts, each)
        found.extend(zip(each, streams, strict=True))
        return streams

    monkeypatch.setattr(lm, "submit_many", submit_many)
    return found


@pytest.mark.parametrize("exit_layer", [1, 2])
def test_early_exits_draft_and_change_nothing(model, asked, exit_layer):
    """LayerSkip's own line: model.generate(**inputs, assistant_early_exit=k)."""
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    early = {"assistant_early_exit": exit_layer, "num_assistant_tokens": 3}
    own = model.generate(**padded(PROMPTS), **options)
    ours = model.generate(**padded(PROMPTS), **options, **early, custom_generate=swiftk.hf.generate)
    assert torch.equal(own, ours) and len(asked) == len(PROMPTS)
    for given, stream in asked:
        assert {name: given[name] for name in early} == early
        assert stream.result.stats.skip == f"exit before layer {exit_layer}"


def test_what_drafts_is_the_clocks_unless_it_was_asked_for(model, asked):
    options = {"max_new_tokens": 4, "do_sample": False, "custom_generate": swiftk.hf.generate}
    ids = torch.tensor(PROMPTS[:1])
    model.generate(ids, **options)
    model.generate(ids, **options, assistant_confidence_threshold=0.7)
    drafting = [{name: given[name] for name in swiftk.hf._DRAFTING if name in given} for given, _ in asked]
    assert drafting == [{}, {"assistant_confidence_threshold": 0.7}]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"assistant_early_exit": 9}, "9"), ({"assistant_early_exit": 1, "num_assistant_tokens": 64}, "64")],
)
def test_an_exit_that_is_not_there_is_named(model, options, words):
    with pytest.raises(InvalidArgument, match=words):
        model.generate(torch.tensor(PROMPTS[:1]), max_new_tokens=8, custom_generate=swiftk.hf.generate, **options)


def test_other_dtypes_and_families_are_refused(folder, tmp_path):
    with pytest.raises(swiftk.UnsupportedModel, match=r"torch\.float64"):
        swiftk.hf.attach(opened(folder).double())
    config = json.loads((folder / "config.json").read_text())
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50))
    assert config["model_type"] == "llama"
    with pytest.raises(swiftk.SwiftkError, match="gpt2"):
        swiftk.hf.attach(gpt)
