"""Whether the quick tests find bugs: deliberate ones, one at a time, in a copy of the tree that is built and tested.

    python tests/mutations.py [--work FOLDER] [PART OF A NAME ...]

Wants what setup.py builds with (pybind11, CMake). A folder that is kept makes the next run's build short.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_COPIED = shutil.ignore_patterns(".git", "build", "results", "*.so", "__pycache__")
HANGS = 1200  # seconds of a folder's tests

# The folder of tests that ought to find it, a file, what is right there, what is put instead, the bug.
BUGS = [
    ("ops", "kernels/cpu/isa/attention.cc", "std::min(view.prefix_len, last)", "last",
     "a tree's row sees its scratch twice"),
    ("ops", "kernels/cpu/isa/attention.cc", "last - window)", "last - window - 1)", "a window is a key too wide"),
    ("ops", "kernels/cpu/activations.h", "const int first = i > 0 ? part_[i - 1].end : 0;", "const int first = 0;",
     "a segment is read from the matrix's first panel on"),
    ("ops", "kernels/cpu/isa/residual.cc", "x[j] += y[j] * scale", "x[j] += y[j]",
     "what a sublayer adds is not scaled"),
    ("ops", "kernels/cpu/isa/qkv.cc", "size_t(rope) * rows.n", "size_t(0) * rows.n",
     "all layers have one rotary table"),
    ("ops", "kernels/cpu/isa/qkv.cc", "kv_head < 0 ? a.query_rope : a.rope", "a.rope", "q takes the table of k"),
    ("runtime", "csrc/text/prefix.cc", "s.stretched ? KvPool::kStretched : KvPool::kNone", "KvPool::kNone",
     "a text takes over rows whose rotary positions are others"),
    ("runtime", "kernels/encoding.h", "second * turning + pair", "second * half + pair",
     "values that turn and values that stay are mixed up"),
    ("runtime", "csrc/text/sequence.cc", "cached + tree.depth(i), cached + i",
     "cached + i, cached + i", "a tree's row has its slot's position"),
    ("runtime", "csrc/phases/verify.cc", "slot(s.cached + 1 + i)", "slot(s.cached + 2 + i)",
     "a commit moves rows too far"),
    ("runtime", "csrc/phases/verify.cc", "+= static_cast<int>(tokens.size());",
     "+= static_cast<int>(tokens.size()) - 1;", "a commit is a token short"),
    ("runtime", "csrc/run/kv_pool.cc", "b.holders = 1;\n  forget(block);",
     "b.holders = 1;", "a block taken keeps its name"),
    ("runtime", "csrc/run/kv_pool.cc", "if (block != kNone) hold(block);", "", "a block in use counts as free"),
    ("runtime", "csrc/engine/prompt_rows.cc", "text.due() - prompt)", "text.due())",
     "a known prompt misses its last token"),
    ("runtime", "csrc/engine/prompt_rows.cc", "? left / 2 : left", "? left : left",
     "a long prompt takes all rows of a pass"),
    ("runtime", "csrc/engine/prompt_rows.cc", "if (waits(*t, running)) continue;", "",
     "prompts run a prefix once each"),
    ("runtime", "csrc/engine/engine.cc", "s.rejects() ? Recall::Nothing : ", "", "a text depends on those before it"),
    ("runtime", "csrc/run/kv_pool.cc", "if (named(b) && keep-- > 0) continue;", "", "an idle engine keeps no prefix"),
    ("runtime", "csrc/engine/engine.cc", "s.cached < text.due())",
     "s.cached + 1 < text.due())", "a prompt in chunks misses its last token"),
    ("runtime", "csrc/text/prefix.cc", "w.go_back(s, s.named * kKvBlock);",
     "w.go_back(s, s.named * kKvBlock), s.cached += s.cached > 0;",
     "a text counts a row too many of what it took over"),
    ("runtime", "csrc/run/kv_pool.h", "place - window_ + 1)", "place - window_ + 65)",
     "a window's first block is let go of"),
    ("runtime", "csrc/run/kv_pool.cc", "if (i == end) break;", "break;", "a prefix is taken over without its window"),
    ("runtime", "csrc/run/kv_panes.cc", "if (its.block != Recency::kNone) pane_of_[its.block] = kNowhere;", "",
     "a block has a pane that another one took"),
    ("runtime", "csrc/text/sequence.cc", "std::max(its.window, least)", "its.window",
     "a draft sees panes that are gone"),
    ("runtime", "csrc/run/executor.cc", "if (pool.windowed(step.layer)) its.views = panes_.data();", "",
     "layers with windows lie where the others do"),
    ("runtime", "csrc/phases/accept.cc", "d_.tree.child(node, drawn.id[0])",
     "node + 1 < d_.tree.size() ? node + 1 : -1", "the first child is always accepted"),
    ("runtime", "csrc/phases/accept.cc", "    s_.path_tokens.push_back(token);\n", "",
     "penalties miss what a block adds"),
    ("runtime", "csrc/sampling/sampler.cc", "logit > 0 ? logit / s_.rep", "true ? logit / s_.rep",
     "a penalty raises negative logits"),
    ("runtime", "csrc/sampling/sampler.cc", "* static_cast<float>(times)", "", "frequencies are presences"),
    ("runtime", "csrc/sampling/sampler.cc", "logit -= s_.presence_penalty;", "", "presences are skipped"),
    ("runtime", "csrc/sampling/sampler.cc", "logit += bias->second;", "logit = bias->second;", "a bias is the logit"),
    ("runtime", "csrc/sampling/sampler.cc", "if (logit <= kNever) return logit;", "",
     "a bias allows what a grammar excludes"),
    ("runtime", "csrc/sampling/sampler.h", "static_cast<int>(path.size()); }", "0; }",
     "min_tokens miss what a block adds"),
    ("runtime", "csrc/sampling/sampler.h", "static_cast<int>(std::count(path.begin(), path.end(), token))", "0",
     "frequencies miss what a block adds"),
    ("runtime", "csrc/sampling/sampler.h", "holds_ = false; }", "}", "min_tokens win over a grammar that ends"),
    ("runtime", "csrc/sampling/nucleus.cc", "raised = touched && s.raises()", "raised = false",
     "lists miss what is raised"),
    ("runtime", "csrc/engine/text.h", "i < prompt ? sequence", "false ? sequence", "frequencies count the prompt"),
    ("runtime", "csrc/text/draws.cc", "stream == Stream::Target ? s.sampling.seed", "false ? 0",
     "draws go by the round"),
    ("runtime", "csrc/phases/accept.cc", "+ d_.tree.depth(node)", "", "draws of a block have one position"),
    ("runtime", "csrc/sampling/sampler.cc", "return i + 1;", "return std::max<size_t>(1, i);",
     "top-p keeps one too few"),
    ("runtime", "csrc/sampling/rejection.cc", "std::max(0.0, p_[i] - q_[i] / left_)", "p_[i]",
     "rejection leaves no residual"),
    ("runtime", "csrc/engine/text.cc", "finish = Finish::Stop;", "finish = Finish::None;", "a stop id ends nothing"),
    ("api", "csrc/engine/generate.cc", "stats.finish = turn.finish;", ";", "a C host is not told why its text ended"),
    ("api", "swiftk/options/generation_config.py", "tuple(files.token_ids(\"eos_token\"))",
     "()", "EOS is ignored"),
    ("api", "swiftk/text/stops.py", " - max(_overlap(self._held, s) for s in self._strings)", "",
     "half a stop string is shown"),
    ("api", "swiftk/text/grammar.py", "lark.names_plain_tokens(wanted, special)", "False",
     "what was tried is not undone"),
    ("api", "swiftk/api.py", "((asked[0][1].seed or 0) + i)",
     "(asked[0][1].seed or 0)", "texts of one prompt have one seed"),
    ("policy", "csrc/planner/planner.cc", "std::max(0.0, clock_.beyond(texts, n))", "0", "rows cost nothing"),
    ("policy", "csrc/planner/ledger.cc", "+ tokens - steps,", "+ tokens,", "an account is never empty"),
    ("policy", "csrc/planner/acceptance.cc", "rank < 0 ? ranks_", "rank < 0 ? 0", "misses count as hits"),
    ("policy", "swiftk/files/hf_folder.py", " + file.read(_SAMPLE)", "", "another model's file is taken over"),
    ("runtime", "csrc/heads/moa.cc", "layers_ - 1);", "layers_ - 2);", "the last layer's states are not seen"),
    ("runtime", "csrc/heads/moa.cc", "followed(s).unverified - 1)", "followed(s).unverified)",
     "drafted tokens see one that is not verified"),
    ("runtime", "csrc/heads/eagle.cc", "chain ? 0 : tree.ancestors(node)", "0", "side branches see each other"),
    ("runtime", "csrc/heads/block.cc", ".ahead + depth", ".ahead + std::min(depth, 1)",
     "a block's third place says what its second did"),
    ("runtime", "csrc/heads/block.cc", "block_.sure_before[tree.token(node)]", "block_.sure_before[tree.token(0)]",
     "a place is foretold from the text's last token"),
    ("runtime", "csrc/heads/runner.cc", "followed(s) = {};", "followed(s).blocks.clear();",
     "a text that gave way counts as read"),
    ("gpu", "csrc/cuda/stream.cc", "view.blocks[r.slot[i] / kKvBlock]", "r.slot[i] / kKvBlock",
     "a GPU's rows lie in other blocks"),
    ("gpu", "csrc/cuda/stream.cc", "for (int32_t& p : next_) ++p;", "", "a GPU's draft stays at one position"),
]  # fmt: skip


def call(tree, *words, seconds=3600):
    """(output, status) of this Python; what it started ends with it."""
    where = {"cwd": tree, "env": {**os.environ, "PYTHONPATH": str(tree)}, "start_new_session": True}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    child = subprocess.Popen([sys.executable, *words], **where, **pipes)
    try:
        return child.communicate(timeout=seconds)[0], child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()[0], None


def build(tree):
    output, status = call(tree, "setup.py", "-q", "build_ext", "--inplace")
    if status:
        sys.exit(output[-3000:])


def found_by(tree, folder):
    """The first test that fails."""
    output, status = call(tree, "-m", "pytest", "-xq", "-p", "no:cacheprovider", f"tests/{folder}", seconds=HANGS)
    if status is None:
        return "no test came to an end"
    failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", output, re.M)
    failed = failed or re.search(r"crashed while running '(?:tests/)?(\S+?)'", output)
    return failed[1] if failed else "NOT FOUND" if status == 0 else f"NO TESTS RAN: {output[-1000:]}"


def copied(tree):
    for path in ("swiftk", "csrc", "kernels", "tests", "bench"):
        shutil.copytree(ROOT / path, tree / path, ignore=NOT_COPIED, dirs_exist_ok=True)
    for path in ("CMakeLists.txt", "setup.py", "pyproject.toml", "conftest.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy2(ROOT / path, tree / path)
    return tree


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of bugs, or parts of them; without any, all")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "swiftk-mutations")
    given = parser.parse_args()
    tree = copied(given.work)
    build(tree)
    for folder, file, right, wrong, name in BUGS:
        if given.names and not any(part in name for part in given.names):
            continue
        path, text = tree / file, (tree / file).read_text()
        assert text.count(right) == 1, f"{file} has {text.count(right)} times: {right}"
        path.write_text(text.replace(right, wrong))
        if not file.endswith(".py"):
            build(tree)
        print(f"{name:42} {found_by(tree, folder)}", flush=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
