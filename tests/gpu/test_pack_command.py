"""swiftk pack: what it writes and prints, and what it says to mistakes."""

import json

import pytest

import swiftk
from heads import make_block
from swiftk.cli import main
from swiftk.gpu import pack
from swiftk.testing import make_tiny


def test_the_command_builds_and_shows(tmp_path, capsys):
    path = tmp_path / "a.pack"
    assert main(["pack", "--model", str(swiftk.demo_model()), "--arch", "stub", "-o", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == pack.read_header(path)
    assert pack.read_header(path)["shape"] == pack.shape_of(swiftk.demo_model())
    assert main(["pack", "--model", "demo", "--arch", "stub", "-o", str(path), "--dtype", "float16"]) == 0
    shown = capsys.readouterr().out
    assert main(["pack", "--show", str(path)]) == 0
    assert capsys.readouterr().out == shown
    assert "for stub" in shown and "dtype float16" in shown
    assert all(name in shown for name in pack.read_header(path)["kernels"])


def test_copies_that_a_pack_has_kernels_for(tmp_path):
    """int4 unless something else is wanted, and the matmuls of each alone; of int8, in any case, the head's."""
    path, found = tmp_path / "a.pack", {}
    for wanted in ("auto", "own", "int3,int8"):
        assert main(["pack", "--model", "demo", "--arch", "stub", "-o", str(path), "--draft-weights", wanted]) == 0
        found[wanted] = pack.read_header(path)
    plain = set(found["own"]["kernels"])
    for wanted, forms in (("auto", ["int4"]), ("int3,int8", ["int3", "int8"])):
        ops, rows = ("qkv", "o_proj", "gate_up", "down", "lm_head"), (8, 16, 32, 64)
        added = {f"{op}.{form}.{n}" for op in ops for form in forms for n in rows}
        added |= {f"lm_head.int8.{n}" for n in rows}
        assert set(found[wanted]["kernels"]) == plain | added
        for name in added:
            assert found[wanted]["kernels"][name]["constants"]["BITS"] == int(name.split(".")[1][3:])
    assert len({header["hash"] for header in found.values()}) == 3


def test_matmuls_are_in_cuda_unless_something_else_is_wanted(tmp_path):
    path = tmp_path / "a.pack"
    for arguments, own in (([], True), (["--matmuls", "cuda"], True), (["--matmuls", "triton"], False)):
        assert main(["pack", "--model", "demo", "--arch", "stub", "-o", str(path), *arguments]) == 0
        assert ("layouts" in pack.read_header(path)) == own


@pytest.mark.parametrize("copies", ["own", "int8"])
def test_kernels_of_a_drafter(tmp_path, copies):
    """A model's, which reads copies of its own; a head has none."""
    model, path = make_tiny(tmp_path / "model", "llama2", "float32"), tmp_path / "a.pack"
    command = ["pack", "--model", str(model), "--draft-weights", copies, "--arch", "stub", "-o", str(path), "--drafter"]
    assert main([*command, str(model)]) == 0
    header = pack.read_header(path)
    assert header["shape"] == pack.shape_of(model)
    assert any(".int8" in name for name in header["kernels"]) == (copies == "int8")
    assert main([*command, str(make_block(tmp_path / "head", model))]) == 0
    header = pack.read_header(path)
    assert "linears" in header["shape"] and not any(".int" in name for name in header["kernels"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "demo"], "want --model DIR and -o FILE"),
        (["--show", "/no/file"], "/no/file: No such file"),
        (["--model", "/no/dir", "--arch", "stub", "-o", "a.pack"], "/no/dir is not a directory"),
        (["--model", "demo", "--arch", "volta", "-o", "a.pack"], "arch is 'volta', want sm_80"),
        (["--model", "demo", "--arch", "stub", "-o", "a.pack", "--dtype", "int4"], "[dtype] got 'int4', want"),
        (["--model", "demo", "--arch", "stub", "-o", "a.pack", "--matmuls", "blas"], "'blas', want 'triton'"),
        (["--model", "demo", "--arch", "stub", "-o", "a.pack", "--dtype", "float32", "--matmuls", "cuda"], "16-bit"),
        (["--model", "demo", "--arch", "stub", "-o", "a.pack", "--draft-weights", "int5"], "draft_weights=['int5']"),
        (["--model", "demo", "--arch", "stub", "-o", "a.pack", "--draft-weights", "upper"], "has 'upper'"),
        (["--model", "demo", "--arch", "stub", "-o", "/proc/a.pack"], "/proc/a.pack cannot be written"),
    ],
)
def test_mistakes_are_one_line_and_status_2(monkeypatch, tmp_path, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["pack", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and message in said.err
