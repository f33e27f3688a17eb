"""swiftk convert: what it writes, says and refuses."""

import json

from swiftk.cli import main
from swiftk.testing import make_tiny


def test_it_writes_what_it_says(tmp_path, capsys):
    folder, out = make_tiny(tmp_path / "in", "llama3", layers=2), tmp_path / "out"
    assert main(["convert", str(folder), str(out), "--dtype", "float16", "--draft-weights", "int3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["path"] == str(out) and said["dtype"] == "float16" and said["draft_weights"] == ["int3"]
    assert said["bytes"] == sum(file.stat().st_size for file in out.iterdir())
    assert main(["convert", str(folder), str(out)]) == 2
    assert "is there already; force replaces it" in capsys.readouterr().err
    assert main(["convert", str(folder), str(out), "--force", "--draft-weights", "own"]) == 0
    assert capsys.readouterr().out.strip().endswith(" MB, bfloat16 weights")


def test_texts_are_those_of_the_model(tmp_path, capsys):
    folder, out = make_tiny(tmp_path / "in", "llama3", layers=2), tmp_path / "out"
    assert main(["convert", str(folder), str(out)]) == 0
    capsys.readouterr()
    texts = []
    for model in (folder, out):
        assert main(["run", str(model), "abc", "-n", "12", "--raw", "--json"]) == 0
        texts.append(json.loads(capsys.readouterr().out)["text"])
    assert texts[0] == texts[1]
    assert main(["check", str(out), "--quick"]) == 0
