"""Prompts that several texts began with, on disk: found again by later processes, to the same tokens; within a bound;
and whatever happens to the folder, texts are served."""

import errno
import gc
import json
import logging
import os
from collections import Counter

import numpy as np
import pytest

import swiftk
from heads import make_block
from swiftk.errors import DeviceError, InvalidArgument
from swiftk.files.model_files import open_model_files
from swiftk.running import prefix_files
from swiftk.testing import make_tiny

BLOCK, SUFFIX = 64, ".kv"
OPTIONS = {"max_new_tokens": 12, "temperature": 0.8, "seed": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("prefixes") / "tiny", "llama3", layers=2)


def tokens_of(seed, n):
    return np.random.default_rng(seed).integers(0, 256, n).tolist()


def prompts_of(common, *ends):
    """Prompts that have the first tokens in common; 200: three blocks, and some of a fourth one."""
    return [tokens_of(common, 200) + tokens_of(100 + end, 20) for end in ends]


class Counted:
    """A model whose prefix cache's figures are counted."""

    def __init__(self, folder, cache, **options):
        self.lm = swiftk.load(folder, device="cpu", threads=1, prefix_cache=cache, **options)
        self.counts = Counter()
        for name in ("read", "written", "failed"):
            setattr(self.lm.prefix_files, name, lambda n, name=name: self.counts.update({name: n}))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lm.close()

    def tokens(self, prompt, **options):
        return self.lm.generate(prompt, **{**OPTIONS, **options}).tokens

    def cached(self, prompt, **options):
        return self.lm.generate(prompt, **{**OPTIONS, **options}).stats.cached_prompt_tokens

    def settle(self):
        """Everything is written."""
        self.lm.prefix_files.close()


def files_of(cache):
    return sorted(path for path in cache.iterdir() if path.suffix == SUFFIX) if cache.exists() else []


def fill(folder, cache, *commons, **options):
    """Has two texts begin with each prompt."""
    with Counted(folder, cache, **options) as model:
        for common in commons or (1,):
            for prompt in prompts_of(common, 1, 2):
                model.tokens(prompt)
            model.settle()
        return model.counts


@pytest.fixture(scope="module")
def want(folder):
    """What a model without a cache generates."""
    with swiftk.load(folder, device="cpu", threads=1) as lm:
        yield lambda prompt, **options: lm.generate(prompt, **{**OPTIONS, **options}).tokens


def test_a_later_process_finds_the_prompt(folder, tmp_path, want):
    cache = tmp_path / "made" / "for it"
    assert fill(folder, cache) == {"written": 3 * BLOCK} and len(files_of(cache)) == 3
    assert cache.stat().st_mode & 0o777 == 0o700, "files tell what prompts said"
    (prompt,) = prompts_of(1, 3)
    with Counted(folder, cache) as model:
        found = model.lm.generate(prompt, **OPTIONS)
        assert found.stats.cached_prompt_tokens == 3 * BLOCK and model.counts == {"read": 3 * BLOCK}
        assert found.stats.prompt_tokens_from_files == 3 * BLOCK and found.tokens == want(prompt)
        again = model.lm.generate(prompt, **OPTIONS)
        assert again.tokens == want(prompt) and again.stats.prompt_tokens_from_files == 0
        model.settle()
        assert model.counts["read"] == 3 * BLOCK, "memory has it by now"


def test_a_prompt_that_came_once_is_not_written(folder, tmp_path):
    with Counted(folder, tmp_path) as model:
        for seed in range(3):
            model.tokens(tokens_of(seed, 200))
        model.tokens(tokens_of(1, 63) + tokens_of(50, 100))  # has less than a block in common
        model.settle()
        assert model.counts == {} and not files_of(tmp_path)


def test_texts_of_one_request_are_one_text(folder, tmp_path):
    """They share the prompt's pass, and nobody else has begun with it."""
    (prompt,) = prompts_of(1, 1)
    with Counted(folder, tmp_path) as model:
        texts = model.lm.generate(prompt, n=3, **OPTIONS)
        assert max(one.stats.cached_prompt_tokens for one in texts) >= 3 * BLOCK
        model.settle()
        assert model.counts == {} and not files_of(tmp_path)
        model.lm.generate(prompt, n=2, **OPTIONS)
        model.settle()
        assert model.counts == {"written": 3 * BLOCK} and len(files_of(tmp_path)) == 3
        model.lm.generate_many(prompts_of(2, 1, 2), **OPTIONS)
        model.settle()
        assert model.counts == {"written": 6 * BLOCK}, "prompts that go on otherwise are two texts"


def test_memory_that_was_wanted_for_others(folder, tmp_path, want):
    first, second, third = prompts_of(1, 1, 2, 3)
    with Counted(folder, tmp_path) as model:
        for prompt in first, second:
            model.tokens(prompt)
        model.settle()
        model.lm.give_back()
        assert model.tokens(third) == want(third) and model.counts["read"] == 3 * BLOCK


def test_the_beginning_that_memory_has_is_not_read(folder, tmp_path):
    fill(folder, tmp_path)
    with Counted(folder, tmp_path) as model:
        model.tokens(tokens_of(1, 2 * BLOCK + 5))
        assert model.counts == {"read": 2 * BLOCK}
        assert model.cached(prompts_of(1, 7)[0]) >= 3 * BLOCK and model.counts == {"read": 3 * BLOCK}


def test_more_of_a_prompt_is_added(folder, tmp_path):
    fill(folder, tmp_path)
    longer = tokens_of(1, 200) + tokens_of(2, 200)
    with Counted(folder, tmp_path) as model:
        model.tokens(longer)
        model.tokens([*longer, 7])
        model.settle()
        assert model.counts == {"read": 3 * BLOCK, "written": (400 // BLOCK - 3) * BLOCK}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("head", [False, True])
def test_texts_are_the_same_in_every_dtype_with_drafts(folder, tmp_path, dtype, head):
    """int4 drafts; and a head, whose features blocks have, too."""
    options = {"dtype": dtype, "draft_weights": "int4"}
    if head:
        options["drafter"] = make_block(tmp_path / "head", folder, layers=1, block=4, taps=(0,))
    drafts = [{"speculate": False}, {"speculate": "always", "drafter": "plan"}, {}]
    drafts += [{"speculate": "always", "drafter": "block"}] if head else []
    prompt, texts = prompts_of(1, 3)[0], set()
    fill(folder, tmp_path / "cache", **options)
    for draft in drafts:
        with swiftk.load(folder, device="cpu", threads=1, **options) as fresh:
            want = fresh.generate(prompt, **OPTIONS, **draft)
        with Counted(folder, tmp_path / "cache", **options) as model:
            found = model.lm.generate(prompt, **OPTIONS, **draft)
        assert model.counts["read"] == 3 * BLOCK and found.tokens == want.tokens
        texts.add(tuple(found.tokens))
        rounds = [
            [(t.round.verify_rows, t.round.draft_steps, t.round.tokens) for t in one.trace.rounds]
            for one in (found, want)
        ]
        assert rounds[0] == rounds[1], "the drafts, too"
        assert draft.get("speculate") != "always" or sum(steps for _, steps, _ in rounds[0]) > 0
    assert len(texts) == 1


def test_a_text_of_another_length_has_other_tables(tmp_path):
    """LongRoPE: texts that may pass the original context find no files of those that do not."""
    folder = make_tiny(tmp_path / "phi", "phi4-mini", layers=2, original_max_position_embeddings=300)
    cache = tmp_path / "cache"
    fill(folder, cache)
    prompt = prompts_of(1, 3)[0]
    with swiftk.load(folder, device="cpu", threads=1) as lm:
        short, long = (lm.generate(prompt, **{**OPTIONS, "max_new_tokens": n}).tokens for n in (12, 200))
    with Counted(folder, cache) as model:
        assert model.tokens(prompt, max_new_tokens=200) == long and model.counts == {}
        assert model.tokens(prompt) == short and model.counts == {"read": 3 * BLOCK}


def test_other_models_find_nothing(folder, tmp_path):
    cache = tmp_path / "cache"
    fill(folder, cache)
    other = make_tiny(tmp_path / "other", "llama3", layers=2, seed=1)
    for where, options in (
        (other, {}),
        (folder, {"dtype": "float16"}),
        (folder, {"kv_dtype": "float32"}),
        (folder, {"kv_dtype": "int8"}),
    ):
        with Counted(where, cache, **options) as model:
            assert model.cached(prompts_of(1, 3)[0]) == 0 and model.counts == {}
    assert len(files_of(cache)) == 3


def places_of(folder):
    """The file of a model's weights, and where each tensor begins in it."""
    path = next(folder.glob("*.safetensors"))
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    return path, {name: end + its["data_offsets"][0] for name, its in header.items() if name != "__metadata__"}


def test_weights_that_were_changed_in_place_find_nothing(tmp_path):
    """By a bit of one weight, which the folder's fingerprint does not sample."""
    folder, cache = make_tiny(tmp_path / "model", "llama3", layers=4), tmp_path / "cache"
    fill(folder, cache)
    before = open_model_files(folder).fingerprint
    weights, places = places_of(folder)
    changed = bytearray(weights.read_bytes())
    changed[min(at for name, at in places.items() if "layers" in name)] ^= 1
    weights.write_bytes(changed)
    assert open_model_files(folder).fingerprint == before
    with Counted(folder, cache) as model:
        assert model.cached(prompts_of(1, 3)[0]) == 0 and model.counts == {}


def test_the_folder_is_bounded(folder, tmp_path):
    """What was used longest ago goes first, the end of a prompt before its beginning."""
    fill(folder, tmp_path / "one")
    size = sum(path.stat().st_size for path in files_of(tmp_path / "one"))
    cache, most = tmp_path / "cache", int(2.6 * size)
    with Counted(folder, cache, prefix_cache_size=most) as model:

        def uses(*commons):
            for common in commons:
                for prompt in prompts_of(common, 1, 2):
                    model.tokens(prompt)
                model.settle()
                sizes, files = [path.stat().st_size for path in files_of(cache)], model.lm.prefix_files
                assert sum(sizes) == files.bytes <= most and len(sizes) == files.count

        def kept(common):
            with Counted(folder, cache, prefix_cache_size=most) as other:
                other.tokens(prompts_of(common, 9)[0])
                return other.counts["read"] // BLOCK

        uses(1, 2, 1, 3)
        assert (kept(1), kept(3), kept(2)) == (3, 3, 1)
        uses(4, 5)
        assert kept(5) == 3 and kept(1) < 3


def test_a_prompt_larger_than_the_bound_keeps_its_beginning(folder, tmp_path):
    fill(folder, tmp_path / "one")
    most = int(2.5 * files_of(tmp_path / "one")[0].stat().st_size)
    counts = fill(folder, tmp_path / "cache", prefix_cache_size=most)
    assert counts["written"] == 2 * BLOCK and len(files_of(tmp_path / "cache")) == 2
    with Counted(folder, tmp_path / "cache") as model:
        assert model.cached(prompts_of(1, 3)[0]) == 2 * BLOCK


def in_order(cache):
    """Files of one prompt from its beginning on: each has a block's tokens more than the one before."""
    return sorted(files_of(cache), key=lambda path: path.stat().st_size)


def cut(data):
    return data[: len(data) // 2]


def flipped(data):
    return data[:5000] + bytes([data[5000] ^ 4]) + data[5001:]


DAMAGES = {
    "cut": cut,
    "empty": lambda data: b"",
    "one byte more": lambda data: data + b"x",
    "flipped": flipped,
    "flipped identity": lambda data: data[:10] + bytes([data[10] ^ 1]) + data[11:],
    "flipped tokens": lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:],
    "noise": lambda data: os.urandom(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", [0, 1])
def test_damaged_files_are_removed(folder, tmp_path, want, caplog, damage, which):
    fill(folder, tmp_path)
    path, prompt = in_order(tmp_path)[which], prompts_of(1, 3)[0]
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with Counted(folder, tmp_path) as model:
        assert model.tokens(prompt) == want(prompt)
        assert model.counts == {"failed": 1} | ({"read": which * BLOCK} if which else {})
        assert not path.exists() and caplog.text.count("a file of the prefix cache is removed") == 1
        model.tokens(prompts_of(1, 4)[0])
    assert path.exists(), "the next text that shares it has it written"


def test_files_of_another_model_or_prompt_under_the_name(folder, tmp_path, want, caplog):
    other = make_tiny(tmp_path / "other", "llama3", layers=2, seed=1)
    for cache, where, common in (("a", folder, 1), ("b", other, 1), ("c", folder, 2)):
        fill(where, tmp_path / cache, common)
    prompt = prompts_of(1, 3)[0]
    for cache, message in (("b", "of another model, build, dtype or kernels"), ("c", "of other tokens")):
        for own, its in zip(in_order(tmp_path / "a"), in_order(tmp_path / cache)):
            own.write_bytes(its.read_bytes())
        with Counted(folder, tmp_path / "a") as model:
            assert model.tokens(prompt) == want(prompt) and model.counts == {"failed": 1}
        assert message in caplog.text
        fill(folder, tmp_path / "a")


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to nowhere"])
def test_what_is_no_file(folder, tmp_path, want, kind):
    fill(folder, tmp_path)
    path, prompt = in_order(tmp_path)[0], prompts_of(1, 3)[0]
    path.unlink()
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "link to nowhere": lambda path: path.symlink_to("nowhere")}
    make[kind](path)
    with Counted(folder, tmp_path) as model:
        assert model.tokens(prompt) == want(prompt) and "read" not in model.counts


def test_a_huge_file_is_not_read(folder, tmp_path, want):
    fill(folder, tmp_path)
    path, prompt = in_order(tmp_path)[0], prompts_of(1, 3)[0]
    os.truncate(path, 1 << 42)
    with Counted(folder, tmp_path) as model:
        assert model.tokens(prompt) == want(prompt) and model.counts == {"failed": 1} and not path.exists()


def test_a_prompt_that_ends_with_a_block(folder, tmp_path, want):
    """Its last token is computed in any case, so that the next one can be drawn."""
    fill(folder, tmp_path)
    prompt = tokens_of(1, 200)[: 2 * BLOCK]
    with Counted(folder, tmp_path) as model:
        assert model.cached(prompt) == 2 * BLOCK - 1 and model.counts == {"read": 2 * BLOCK}
        assert model.tokens(prompt) == want(prompt)


def test_files_that_go_while_they_are_read(folder, tmp_path, want, monkeypatch):
    """Another process made room."""
    fill(folder, tmp_path)
    second, contents = in_order(tmp_path)[1], prefix_files._contents

    def read(path, size):
        second.unlink(missing_ok=True)
        return contents(path, size)

    monkeypatch.setattr(prefix_files, "_contents", read)
    prompt = prompts_of(1, 3)[0]
    with Counted(folder, tmp_path) as model:
        assert model.tokens(prompt) == want(prompt) and model.counts == {"read": BLOCK}


def test_what_is_loaded_between_two_rounds_is_bounded(folder, tmp_path, monkeypatch):
    fill(folder, tmp_path)
    monkeypatch.setattr(prefix_files, "_PIECE", 1)
    prompt, pieces = prompts_of(1, 3)[0], []
    with Counted(folder, tmp_path) as model:
        model.lm.prefix_files.read = pieces.append
        assert model.cached(prompt) == 3 * BLOCK and pieces == [BLOCK] * 3


def broken(tmp_path, monkeypatch):
    def write(path, data):
        error = DeviceError(f"{path} cannot be written")
        raise error from OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(prefix_files, "write_whole", write)


def blocked(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")


@pytest.mark.parametrize(
    ("break_it", "message"), [(broken, "No space left on device"), (blocked, "File exists|Not a directory")]
)
def test_a_folder_that_cannot_be_written(folder, tmp_path, want, monkeypatch, caplog, break_it, message):
    """One warning for any number of prompts, and texts do not notice."""
    with Counted(folder, tmp_path / "cache") as model, caplog.at_level(logging.WARNING):
        break_it(tmp_path, monkeypatch)
        for common in 1, 2:
            for prompt in prompts_of(common, 1, 2):
                assert model.tokens(prompt) == want(prompt)
        model.settle()
        assert model.counts == {"failed": 2}
    lines = [record.getMessage() for record in caplog.records if "prefix cache" in record.getMessage()]
    assert len(lines) == 1 and "cannot be" in lines[0]
    assert any(part in lines[0] for part in message.split("|"))


def test_a_folder_that_cannot_be_listed(folder, tmp_path, want, monkeypatch, caplog):
    fill(folder, tmp_path)
    scandir = os.scandir

    def refuse(path):
        if path == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    prompt = prompts_of(1, 3)[0]
    with Counted(folder, tmp_path) as model:
        assert model.tokens(prompt) == want(prompt) and model.counts == {"read": 3 * BLOCK}
    assert caplog.text.count("cannot be read: [Errno 13] Permission denied") == 1


def test_files_that_cannot_be_removed(folder, tmp_path, want, monkeypatch):
    """The folder is full, and stays so."""
    fill(folder, tmp_path)
    most = sum(path.stat().st_size for path in files_of(tmp_path))

    def refuse(path, missing_ok=False):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(prefix_files.Path, "unlink", refuse)
    with Counted(folder, tmp_path, prefix_cache_size=most) as model:
        for common in 2, 3:
            for prompt in prompts_of(common, 1, 2):
                assert model.tokens(prompt) == want(prompt)
            model.settle()
    assert len(files_of(tmp_path)) <= 3 + 2


def test_a_file_in_the_place_of_the_folder(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match=r"\[load\] prefix_cache='.*file' is a file, want a folder"):
        swiftk.load(folder, device="cpu", prefix_cache=tmp_path / "file")


def test_what_others_left_half_written_goes_once_it_is_old(folder, tmp_path):
    old, new, theirs = (tmp_path / name for name in (f".a{SUFFIX}.1.2", f".b{SUFFIX}.1.2", "notes.txt"))
    for path in old, new, theirs:
        path.write_text("x")
    for path in old, theirs:
        os.utime(path, (1, 1))
    fill(folder, tmp_path)
    assert not old.exists() and new.exists() and theirs.exists()


def test_two_models_share_a_folder(folder, tmp_path, want):
    """Each finds what the other wrote, while both write."""
    with Counted(folder, tmp_path) as one, Counted(folder, tmp_path) as other:
        for common in range(6):
            first, second, third = prompts_of(common, 1, 2, 3)
            for model in one, other:
                streams = [model.lm.submit(prompt, **OPTIONS) for prompt in (first, second)]
                assert [stream.wait().tokens for stream in streams] == [want(first), want(second)]
            one.settle()
            other.settle()
            assert one.tokens(third) == other.tokens(third) == want(third)
        assert one.counts["failed"] == other.counts["failed"] == 0
    assert len(files_of(tmp_path)) == 6 * 3 and not list(tmp_path.glob(".*"))


def test_a_forked_process_reads_and_writes(folder, tmp_path, want):
    first, second, third = prompts_of(1, 1, 2, 3)
    with Counted(folder, tmp_path) as model:
        for prompt in first, second:
            model.tokens(prompt)
        model.settle()
        others = prompts_of(2, 1, 2)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                model.counts.clear()
                found = [model.tokens(prompt) for prompt in (third, *others)] == [want(p) for p in (third, *others)]
                model.settle()
                status = 0 if found and model.counts == {"read": 3 * BLOCK, "written": 3 * BLOCK} else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert model.tokens(others[0]) == want(others[0]) and model.counts["read"] == 3 * BLOCK


def test_a_model_that_is_dropped_writes_before(folder, tmp_path):
    """Without close()."""
    lm = swiftk.load(folder, device="cpu", threads=1, prefix_cache=tmp_path)
    for prompt in prompts_of(1, 1, 2):
        lm.generate(prompt, **OPTIONS)
    del lm
    gc.collect()
    assert len(files_of(tmp_path)) == 3


def test_prompts_whose_logprobs_are_asked_for_are_computed(folder, tmp_path):
    """All their rows are wanted."""
    fill(folder, tmp_path)
    with Counted(folder, tmp_path) as model:
        assert model.cached(prompts_of(1, 3)[0], prompt_logprobs=0) == 0 and model.counts == {}


def test_a_restarted_server(folder, tmp_path, want):
    """Over HTTP, by its metrics."""
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    from serving import app_of, ask, figures

    cache, (first, second, third) = tmp_path / "cache", prompts_of(1, 1, 2, 3)
    asked = {"max_tokens": 12, "temperature": 0.8, "seed": 3, "ignore_eos": True}

    def run(*prompts):
        with swiftk.load(folder, device="cpu", threads=1, prefix_cache=cache) as lm, app_of(lm) as app:
            texts = [ask(app, "POST", "/v1/completions", json={**asked, "prompt": one}).json() for one in prompts]
            lm.prefix_files.close()

            class Client:
                get = staticmethod(lambda path: ask(app, "GET", path))

            found = figures(Client)
            names = ("_hits_total", "_written_total", "_failures_total", "_bytes", "")
            return [one["choices"][0]["text"] for one in texts], [found[f"swiftk:prefix_files{name}"] for name in names]

    with swiftk.load(folder, device="cpu", threads=1) as lm:
        wanted = [lm.generate(prompt, **OPTIONS).text for prompt in (first, second, third)]
    size = 3 * BLOCK
    texts, found = run(first, second)
    bytes = sum(path.stat().st_size for path in files_of(cache))
    assert texts == wanted[:2] and found == [0, size, 0, bytes, 3] and bytes > 0
    texts, found = run(third, first)
    assert texts == [wanted[2], wanted[0]] and found == [size, 0, 0, bytes, 3]


def test_files_of_layers_with_windows(tmp_path):
    """Some prompts have 1,500 tokens in common, others half of these. The first two of each run what they have in
    common. The third one finds it, and a later process does."""
    folder = make_tiny(tmp_path / "tiny", "gemma3", layers=6, sliding_window=48, max_position_embeddings=8192)
    commons, cached = (tokens_of(1, 1500), tokens_of(1, 1500)[:750]), []
    options = {"context": 4096, "max_sequences": 1}
    with swiftk.load(folder, device="cpu", threads=1, context=4096, max_sequences=200) as keeps_all:
        with Counted(folder, tmp_path / "cache", **options) as model:
            for common in commons:
                for seed in range(4):
                    prompt = common + tokens_of(10 + seed, 2000)
                    found = model.lm.generate(prompt, **OPTIONS)
                    assert found.tokens == keeps_all.generate(prompt, **OPTIONS).tokens
                    cached.append(found.stats.cached_prompt_tokens // BLOCK)
                model.settle()
            assert cached == [0, 0, 23, 23, 0, 11, 11, 11] and model.counts["failed"] == 0
        for common in commons:
            with Counted(folder, tmp_path / "cache", **options) as model:
                prompt = common + tokens_of(20, 300)
                found = model.lm.generate(prompt, **OPTIONS)
                assert found.stats.cached_prompt_tokens // BLOCK == len(common) // BLOCK
                assert found.tokens == keeps_all.generate(prompt, **OPTIONS).tokens
