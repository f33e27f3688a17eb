"""Options: aliases, did-you-mean, ranges, contradictions, and the model's own defaults."""

import json
import re
from dataclasses import fields

import numpy as np
import pytest

from swiftk.draft.draft_spec import DraftSpec, resolve
from swiftk.draft.tree_rule import TreeRule
from swiftk.errors import CheckpointError, InvalidArgument, InvalidOption, SwiftkError
from swiftk.options.drafting import Draft
from swiftk.options.fields import TextOptions, table
from swiftk.options.generate_options import NEW_TOKENS, GenerateOptions, LoadOptions, resolve_names
from swiftk.options.generation_config import Defaults, read_defaults
from swiftk.remote import frames


def parse(**given):
    return GenerateOptions.parse(given)


@pytest.mark.parametrize(
    ("alias", "value", "name", "want"),
    [
        ("max_tokens", 5, "max_new_tokens", 5),
        ("max_completion_tokens", 5, "max_new_tokens", 5),
        ("num_speculative_tokens", 6, "draft", Draft(max_draft=6)),
        ("num_assistant_tokens", 6, "draft", Draft(max_draft=6)),
        ("stop_strings", ["x"], "stop", ("x",)),
        ("stop", "x", "stop", ("x",)),
        ("eos_token_id", 7, "stop_token_ids", (7,)),
        ("eos_token_id", [7, 8], "stop_token_ids", (7, 8)),
        ("assistant_early_exit", 3, "draft", Draft.early_exit(3)),
        ("top_k", np.int64(4), "top_k", 4),
    ],
)
def test_aliases(alias, value, name, want):
    assert getattr(parse(**{alias: value}), name) == want


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("max_token", "max_tokens"),
        ("temprature", "temperature"),
        ("topp", "top_p"),
        ("num_speculative_token", "num_speculative_tokens"),
        ("stop_string", "stop_strings"),
    ],
)
def test_unknown_option_names_the_nearest(wrong, near):
    with pytest.raises(TypeError, match=f"{wrong!r}; did you mean {near!r}"):
        parse(**{wrong: 1})


@pytest.mark.parametrize(
    ("cls", "name", "says"),
    [
        (LoadOptions, "thread", r"\[load\] unknown option 'thread'; did you mean 'threads'\?"),
        (LoadOptions, "temperature", r"\[load\] 'temperature' is an option of generate\(\)"),
        (LoadOptions, "max_tokens", r"\[load\] 'max_tokens' is an option of generate\(\)"),
        (GenerateOptions, "threads", r"\[generate\] 'threads' is an option of load\(\)"),
    ],
)
def test_unknown_option_names_whose_it_is(cls, name, says):
    with pytest.raises(InvalidOption, match=says):
        resolve_names(cls, {name: 1})


def test_unknown_option_without_a_near_one_lists_all():
    with pytest.raises(TypeError, match=r"max_new_tokens.*stream"):
        parse(quux_zzz=1)


@pytest.mark.parametrize(
    "given",
    [
        {"max_new_tokens": -2},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": 1e39},
        {"repetition_penalty": 1e39},
        {"max_new_tokens": 10**12},
        {"top_p": -0.1},
        {"top_p": 1.1},
        {"top_k": -2},
        {"min_p": 1.5},
        {"typical_p": 1.5},
        {"repetition_penalty": 0.0},
        {"seed": -(2**63) - 1},
        {"frequency_penalty": 2.1},
        {"presence_penalty": -2.1},
        {"logit_bias": {5: 101}},
        {"logit_bias": {-5: 1}},
        {"min_tokens": -1},
        {"seed": 2**64},
        {"logprobs": -1},
        {"logprobs": 65},
        {"stop": ""},
        {"stop": ["a", ""]},
        {"stop_token_ids": [-1]},
        {"max_draft": 0},
        {"max_draft": 64},
        {"gate": 1.2},
        {"gate": "clever"},
        {"gate": None},
        {"skip": 3},
        {"skip": b"card.json"},
        {"gate": [1]},
        {"drafter": ["plan"]},
        {"optimizer": "magic"},
        {"acceptance": "typical"},
        {"speculate": "sometimes"},
    ],
)
def test_out_of_range_is_a_value_error(given):
    name, value = next(iter(given.items()))
    with pytest.raises(InvalidArgument, match=re.escape(f"[generate] {name}={value!r}")) as caught:
        parse(**given)
    assert " want " in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"max_new_tokens": 1.5},
        {"stop": 5},
        {"stop": b"x"},
        {"stop": ["a", b"x"]},
        {"stop": {"a": 1}},
        {"stop_token_ids": 1.5},
        {"stop_token_ids": [True]},
        {"assistant_early_exit": "x"},
        {"recall": 1},
        {"parse_special": None},
        {"max_new_tokens": True},
        {"temperature": "hot"},
        {"stop": [1]},
        {"stop_token_ids": ["a"]},
        {"ignore_eos": 1},
        {"stream": "yes"},
        {"seed": 1.0},
        {"logit_bias": {"a": 1}},
        {"logit_bias": {5: "x"}},
        {"logit_bias": [5]},
        {"skip_special_tokens": None},
    ],
)
def test_wrong_type_is_a_type_error(given):
    name, value = next(iter(given.items()))
    with pytest.raises(TypeError, match=re.escape(f"[generate] {name}={value!r}, want ")) as caught:
        parse(**given)
    assert isinstance(caught.value, SwiftkError)


@pytest.mark.parametrize(
    "given",
    [
        {"do_sample": True, "temperature": 0},
        {"do_sample": False, "temperature": 0.7},
        {"max_tokens": 3, "max_new_tokens": 4},
        {"stop": "a", "stop_strings": "b"},
        {"assistant_early_exit": 3, "skip": DraftSpec()},
        {"ignore_eos": True, "eos_token_id": 2},
        {"verify": True, "acceptance": "rejection", "temperature": 1.0},
        {"min_tokens": 5, "max_new_tokens": 4},
    ],
)
def test_contradictions(given):
    with pytest.raises(InvalidArgument):
        parse(**given)


def test_the_same_value_twice_is_no_contradiction():
    assert parse(max_tokens=4, max_new_tokens=4).max_new_tokens == 4


def test_errors_list_what_exists():
    with pytest.raises(ValueError, match="'auto', 'swift', 'swift-paper', 'self-sd', None"):
        parse(optimizer="swarm")


@pytest.mark.parametrize(
    ("name", "value", "want"),
    [
        ("temperature", 1e-8, 0.0),
        ("temperature", 1e-5, 1e-5),
        ("top_p", 0, 1e-37),
        ("top_p", 1e-50, 1e-37),
        ("seed", -1, None),
        ("seed", -2, 2**64 - 2),
        ("seed", 2**63, 2**63),
        ("max_new_tokens", 0, 0),
        ("max_new_tokens", -1, -1),
        ("logit_bias", {"7": 1, 5: -2.5}, ((5, -2.5), (7, 1.0))),
        ("logit_bias", [[7, 1]], ((7, 1.0),)),
        ("logit_bias", {}, ()),
        ("min_tokens", 3, 3),
    ],
)
def test_values_are_read_as_peers_read_them(name, value, want):
    assert getattr(parse(**{name: value}), name) == want


def test_every_option_is_declared_with_a_kind_and_a_help_text():
    for cls in (LoadOptions, GenerateOptions):
        assert list(table(cls)) == [field.name for field in fields(cls)]
        assert all(one.help.endswith((".", ":")) and one.help in cls.__doc__ for one in table(cls).values())


def test_which_options_a_sampler_and_a_client_that_drafts_have():
    assert {"temperature", "logit_bias", "min_tokens", "seed"} <= {
        n for n, o in table(TextOptions).items() if o.sampler
    }
    assert set(frames.OPTIONS) == set(table(TextOptions)) < set(table(GenerateOptions))


MODEL = Defaults(
    do_sample=True,
    sampling={"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1},
    max_new_tokens=33,
)
WARM, COLD = Defaults(sampling={"temperature": 0.6}), {"temperature": 0.0}


@pytest.mark.parametrize(
    ("given", "defaults", "want"),
    [
        ({}, Defaults(), (0.0, 0, 1.0)),
        ({}, MODEL, (0.6, 20, 0.9)),
        ({"temperature": 0}, MODEL, (0.0, 0, 1.0)),
        ({"do_sample": False}, MODEL, (0.0, 0, 1.0)),
        ({"top_k": -1}, MODEL, (0.6, 0, 0.9)),
        ({"temperature": 0.8}, Defaults(), (0.8, 0, 1.0)),
        ({"do_sample": True}, Defaults(), (1.0, 0, 1.0)),
        ({"do_sample": True}, WARM, (0.6, 0, 1.0)),
        ({"top_p": 0.5}, MODEL, (0.6, 20, 0.5)),
        ({}, WARM, (0.0, 0, 1.0)),
        ({}, Defaults(do_sample=True, sampling=COLD), (0.0, 0, 1.0)),
        ({"do_sample": True}, Defaults(sampling=COLD), (1.0, 0, 1.0)),
    ],
)
def test_explicit_options_win_over_the_files(given, defaults, want):
    o = parse(**given).filled(defaults, 5)
    assert (o.temperature, o.top_k, o.top_p) == want
    assert o.do_sample == (want[0] > 0)


def test_length_and_penalty_defaults():
    o = parse().filled(MODEL, 5)
    assert (o.max_new_tokens, o.repetition_penalty, o.min_p) == (33, 1.1, 0.1)


@pytest.mark.parametrize(
    ("given", "defaults", "want"),
    [
        ({}, Defaults(), NEW_TOKENS),
        ({}, Defaults(max_new_tokens=33), 33),
        ({}, Defaults(max_length=40), 35),
        ({}, Defaults(max_new_tokens=33, max_length=40), 33),
        ({"max_tokens": 2}, Defaults(max_new_tokens=33, max_length=4), 2),
        ({"max_new_tokens": 10_000}, Defaults(), 10_000),
    ],
)
def test_how_many_tokens_follow_a_prompt_of_five(given, defaults, want):
    assert parse(**given).filled(defaults, 5).max_new_tokens == want


def test_a_prompt_longer_than_the_models_max_length():
    with pytest.raises(InvalidArgument, match=r"prompt has 5 tokens, max_length .* is 5; give max_new_tokens"):
        parse().filled(Defaults(max_length=5), 5)


def write(folder, **files):
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_generation_config_files(tmp_path):
    assert read_defaults(tmp_path) == Defaults()
    write(tmp_path, config={"eos_token_id": 2})
    assert read_defaults(tmp_path).eos_token_ids == (2,)
    write(tmp_path, generation_config={"eos_token_id": [5, 6], "do_sample": True, "temperature": 0.6, "top_p": None})
    found = read_defaults(tmp_path)
    assert (found.eos_token_ids, found.do_sample, found.sampling) == ((5, 6), True, {"temperature": 0.6})
    write(tmp_path, config={"bos_token_id": 7}, generation_config={"max_length": 40, "bos_token_id": None})
    assert (found := read_defaults(tmp_path)).max_length == 40 and found.bos_token_id == 7


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", '{"temperature": "warm"}', '{"temperature": -1e-7}', '{"top_p": 7}', '{"eos_token_id": "x"}'),
        *('{"max_new_tokens": 0}', '{"max_length": "x"}', '{"bos_token_id": -1}'),
    ],
)
def test_broken_generation_config_names_the_file(tmp_path, content):
    write(tmp_path, generation_config=content)
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        read_defaults(tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        *({"device": device} for device in ("cuda:x", "cuda:1234", "tpu")),
        *({"dtype": "int3"}, {"threads": 0}, {"threads": 5000}, {"context": 1}, {"context": "x"}),
        *({"draft_weights": 5}, {"draft_weights": b"int4"}, {"isa": 5}, {"pack": 5}, {"max_sequences": None}),
    ],
)
def test_load_options_are_checked(given):
    name, value = next(iter(given.items()))
    with pytest.raises(InvalidArgument, match=re.escape(f"[load] {name}={value!r}, want ")):
        LoadOptions(**given)


def test_device_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("SWIFTK_DEVICE", "cuda:1")
    assert LoadOptions().device == "cuda:1"
    assert LoadOptions(device="cpu", dtype="bf16") == LoadOptions(device="cpu", dtype="bfloat16")
    monkeypatch.setenv("SWIFTK_DEVICE", "gpu")
    with pytest.raises(InvalidArgument, match="'gpu', want 'auto', 'cpu', 'cuda' or 'cuda:N'"):
        LoadOptions()


def test_skip_sets(tmp_path):
    assert resolve("auto", 6) == DraftSpec(attn=(1, 3), mlp=(1, 3))
    assert resolve(None, 6) is None
    assert resolve([4, 2, 2], 6) == DraftSpec(attn=(2, 4), mlp=(2, 4))
    card = DraftSpec(attn=[3, 1], mlp=np.array([2]), exit_layer=5)
    assert card == DraftSpec(attn=(1, 3), mlp=(2,), exit_layer=5)
    card.save(tmp_path / "card.json", task="code")
    assert resolve(tmp_path / "card.json", 6) == resolve(str(tmp_path / "card.json"), 6) == card
    assert card.skipped(6) == 2 + 3
    assert DraftSpec(attn=(5,), exit_layer=5).skipped(6) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: resolve([6], 6),
        lambda: resolve(DraftSpec(exit_layer=7), 6),
        lambda: DraftSpec(attn=[-1]),
        lambda: DraftSpec(attn="12"),
        lambda: DraftSpec(mlp=[1.5]),
        lambda: resolve("/nowhere.json", 6),
    ],
)
def test_bad_skip_sets(make):
    with pytest.raises(InvalidArgument):
        make()


def test_a_file_that_is_no_card(tmp_path):
    write(tmp_path, card={"attn": [1]})
    with pytest.raises(InvalidArgument, match="not a skip set"):
        DraftSpec.load(tmp_path / "card.json")


def test_gate_accepts_rules_and_thresholds():
    assert parse(gate=TreeRule(max_draft=3)).draft.rule.max_draft == 3
    assert parse(gate=1).draft.rule == TreeRule(confidence=1.0)
    assert parse(gate={"beam": 4, "max_nodes": 20}).draft.rule == TreeRule(beam=4, max_nodes=20)
