"""One name for SWIFT as its paper has it; its settings, each told of."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import swiftk
from swiftk.errors import InvalidArgument
from swiftk.options.fields import table
from swiftk.options.generate_options import GenerateOptions
from swiftk.options.swift_settings import SwiftSettings

SPELT = {
    "optimizer": "swift",
    "swift": {"opt_interval": 1},
    "gate": "swift",
    "drafter": "plan",
    "speculate": "always",
}


def test_the_name_stands_for_five_options():
    assert GenerateOptions.parse({"optimizer": "swift-paper"}) == GenerateOptions.parse(SPELT)
    paper = GenerateOptions.parse({"optimizer": "swift-paper", "swift": {"window": 16}, "speculate": "always"})
    assert (paper.draft.search.window, paper.draft.search.opt_interval, paper.draft.search.waits) == (16, 1, True)
    own = SwiftSettings(opt_interval=3)
    assert GenerateOptions.parse({"optimizer": "swift-paper", "swift": own}).draft.search == own


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("speculate", False),
            ("drafter", "auto"),
            ("drafter", "suffix"),
            ("gate", 0.5),
            ("gate", swiftk.TreeRule()),
        ),
        *(("skip", [1, 2]), ("assistant_early_exit", 2), ("swift", SwiftSettings()), ("swift", {"opt_interval": None})),
    ],
)
def test_contradictions_name_both(name, value):
    with pytest.raises(InvalidArgument, match=rf"(?s){name}.*") as found:
        GenerateOptions.parse({"optimizer": "swift-paper", name: value})
    assert "swift" in str(found.value)


def test_it_drafts_with_sets_of_full_precision_whatever_was_loaded():
    """The model has a copy in few bits, which the default would read."""
    with swiftk.load(swiftk.demo_model(), device="cpu", threads=1) as lm:
        assert lm.model.copies
        asked = {"max_new_tokens": 60, "temperature": 0.0, "ignore_eos": True}
        lm.forget()
        paper = lm.generate("Question: how", optimizer="swift-paper", **asked)
        lm.forget()
        spelt = lm.generate("Question: how", **SPELT, **asked)
        plain = lm.generate("Question: how", speculate=False, **asked)
    assert paper.tokens == spelt.tokens == plain.tokens
    told = [(c.kind, c.skip, c.matchness, c.kept) for c in paper.trace.candidates]
    assert told == [(c.kind, c.skip, c.matchness, c.kept) for c in spelt.trace.candidates]
    rounds = [one for one in paper.trace.rounds if one.round.draft_steps]
    assert len(told) > 5 and {c.skip.weights for c in paper.trace.candidates} == {"own"}
    assert all(one.skip.weights == "own" and one.skip.thinned for one in rounds) and set(paper.stats.accepted_by) <= {
        "plan"
    }
    assert len(rounds) >= len(paper.trace.rounds) - 1  # always; the last token has nothing to draft


def test_help_explains_each_setting():
    text = inspect.getdoc(SwiftSettings)
    for field in fields(SwiftSettings):
        (said,) = re.findall(rf"(?m)^ *{field.name} = {re.escape(repr(field.default))}: (.+)$", text)
        assert said == table(SwiftSettings)[field.name].help
        assert re.search(r"[Ss]ection|[Tt]able|[Aa]ppendix|[Ee]quation|paper", said), field.name


def test_the_readme_shows_where_sets_and_matchness_are(capsys):
    """Its example runs, and prints a line for each set that was kept."""
    readme = (Path(__file__).resolve().parents[2] / "swiftk" / "README.md").read_text(encoding="utf-8")
    (example,) = [code for code in re.findall(r"```python\n(.*?)```", readme, re.S) if "trace.candidates" in code]
    assert len(example.strip().splitlines()) <= 6
    exec(compile(example, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(re.search(r"matchness 0\.\d+|matchness 1\.0+", line) and "attention" in line for line in lines)
