"""Text that users read: plain sentences, in READMEs and in --help."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from swiftk.cli import COMMANDS, _app
from swiftk.options.fields import table
from swiftk.options.generate_options import GenerateOptions
from swiftk.options.load_options import LoadOptions
from swiftk.serve.metrics import Metrics
from swiftk.train import drafter_settings, settings

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("swiftk", "csrc", "kernels", "bench", "tests")
READMES = ["README.md", *sorted(str(p.relative_to(ROOT)) for name in FOLDERS for p in (ROOT / name).rglob("README.md"))]
COLUMNS = 120
LINES = 110  # of the first README: two screens

# A sentence begins with its subject. Questions may ask.
OPENINGS = re.compile(r"(?:What|Of|That|Whose|Which|Where|Who)\b(?!.*\?$)|\.\.\.|…")
BEHIND = re.compile(r"\bbehind (?:a|an|the|its|it|them|that|each)\b")


def paragraphs(text: str) -> Iterator[str]:
    """Prose of a Markdown text, a paragraph or a list item at a time: no code, no tables, no headings."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    lines = []
    for line in [*text.splitlines(), ""]:
        code = line.startswith("    ") and not lines
        item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if lines and (item or not line.strip() or line.startswith(("|", "#"))):
            yield " ".join(lines)
            lines = []
        if line.strip() and not code and not line.startswith(("|", "#")):
            lines.append(line[item.end() if item else 0 :].strip())


def sentences(prose: str) -> list[str]:
    words = re.sub(r"\*|\]\([^)]*\)|\[", "", re.sub(r"`[^`]*`", "Code", prose))
    return [one for one in re.split(r"(?<=[.!?:])\s+(?=[A-Z…\"]|\.\.\. )", words) if one]


def faults(prose: str) -> list[str]:
    found = []
    for one in sentences(prose):
        found += [f"opens with {m[0]!r}: {one}" for m in [OPENINGS.match(one)] if m]
        found += [f"says {m[0]!r} of a place in time or text: {one}" for m in [BEHIND.search(one)] if m]
        found += [f"is three sentences: {one}"] if one.count(";") > 1 else []
    return found


def helps() -> Iterator[tuple[str, str]]:
    """(where, text) of every help text."""
    for name in COMMANDS:
        command = get_command(_app([name]))
        command = getattr(command, "commands", {}).get(name, command)
        yield f"{name} --help", command.help or ""
        for one in command.params:
            yield f"{name} {one.opts[0]}", getattr(one, "help", None) or ""
    for one in (settings.Settings, drafter_settings.DrafterSettings):
        for field in fields(one):
            yield f"train --{field.name}", field.metadata["help"]
    for one in (LoadOptions, GenerateOptions):
        for name, about in table(one).items():
            yield f"{one.function}({name})", about.help
    for name, text in re.findall(r"^# HELP (\S+) (.*)$", Metrics("a model").page().decode(), re.M):
        yield name, text


@pytest.mark.parametrize("path", READMES)
def test_readme(path):
    text = (ROOT / path).read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).splitlines()
    long = [line for line in prose if len(line) > COLUMNS and not line.startswith(("|", "    "))]
    assert not long, "\n".join(long)
    found = [fault for paragraph in paragraphs(text) for fault in faults(paragraph)]
    assert not found, "\n".join(["", *found])


def test_first_readme_fits_two_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= LINES


def test_help():
    texts = dict(helps())
    assert len(texts) > 100
    found = [f"{where}: {fault}" for where, text in texts.items() for fault in faults(text)]
    assert not found, "\n".join(["", *found])


def test_no_option_is_without_help():
    silent = [where for where, text in helps() if not text.strip()]
    assert not silent


@pytest.mark.parametrize("options", [LoadOptions, GenerateOptions])
def test_the_package_s_readme_has_every_option(options):
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "swiftk" / "README.md").read_text(), re.M)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    missing = set(table(options)) - named
    assert not missing


@pytest.mark.parametrize(
    "text, said",
    [
        ("It reads. What it reads is a row.", ["opens with 'What'"]),
        ("...and goes on.", ["opens with '...'"]),
        ("Which layers does it skip?", []),
        ("Layers behind the first are skipped.", ["says 'behind the'"]),
        ("One; two; three.", ["is three sentences"]),
        ("- An item: one;\n  two.\n- Another; it ends.\n", []),
        ("```\nWhat; is; code\n```\n\n    What; is; code\n\n| What; is; a table |\n", []),
        ("The `a; b; ... ` of **c**. [Where](x.md) it stands.", ["opens with 'Where'"]),
    ],
)
def test_faults_are_found(text, said):
    found = [fault for paragraph in paragraphs(text) for fault in faults(paragraph)]
    assert [one[: len(start)] for one, start in zip(found, said)] == said and len(found) == len(said)
