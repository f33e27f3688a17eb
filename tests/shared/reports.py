"""Results made by hand for the page about a text, and the page as its reader gets it."""

import re
from html.parser import HTMLParser

from swiftk.draft.cost import Round
from swiftk.draft.draft_spec import DraftSpec
from swiftk.draft.sources import NAMES
from swiftk.pages.charts import KINDS
from swiftk.running.result import Result, TokenLogprobs
from swiftk.running.stats import Recorder
from swiftk.running.trace import Trace, TracedRound
from turns import turn

LAYERS = 6
UNIFORM = DraftSpec.uniform(LAYERS)


class Page(HTMLParser):
    """What a reader of the page gets: tokens, figures, the table, cells of the layers' grid."""

    def __init__(self, text):
        super().__init__()
        self.tokens, self.table, self.tiles, self.columns, self.blocks, self.titles = [], {}, {}, [], [], []
        self.tags, self.open, self.words, self.cells = [], [], "", []
        self.why, self.left_out = {}, []
        self.source = text
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        css = (attributes.get("class") or "").split()
        if tag != "meta":
            self.open.append((tag, css))
        if tag == "span" and attributes.get("title", "").startswith("token "):
            self.tokens.append([css[0], "", attributes["title"]])
        if tag == "tr":
            self.cells = []
        if tag in ("td", "b", "h1", "small", "li"):
            self.words = ""
        if tag == "g" and css == ["set"]:
            self.columns.append({"skip": [], "exit": []})
        if tag == "rect" and css == ["runs"]:
            self.blocks.append((float(attributes["y"]), float(attributes["height"])))
        if tag == "path" and css[0] in ("skip", "exit"):
            found = re.findall(r"M([\d.]+) ([\d.]+)h", attributes["d"])
            self.columns[-1][css[0]] = [(float(x), float(y)) for x, y in found]

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_data(self, data):
        self.words += data
        if self.open and self.open[-1][0] == "span" and self.open[-1][1][:1] in [[kind] for kind in KINDS]:
            self.tokens[-1][1] += data
        if self.open and self.open[-1][0] == "title":
            self.titles.append(data)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag
        if tag == "td":
            self.cells.append(self.words)
        elif tag == "tr" and len(self.cells) == 2:
            self.table[self.cells[0]] = self.cells[1]
        elif tag == "b":
            self.value, self.words = self.words, ""
        elif tag == "span" and any(css == ["tiles"] for _, css in self.open):
            self.tiles[self.words] = self.value
            self.tile = self.words
        elif tag == "small" and any(css == ["tiles"] for _, css in self.open):
            self.why[self.tile] = self.words
        elif tag == "li":
            self.left_out.append(self.words)

    @property
    def text(self):
        return "".join(shown for _, shown, _ in self.tokens)


def made(texts, rounds, logprobs=False, reason_off=None, plain=0.01, disk=(0.0, 0), **trace):
    """A Result of (spine, tokens, accepted, skip) rounds after a first token. disk: (seconds, bytes) of each pass."""
    recorder = Recorder(prompt_tokens=3, generated=1, prefill=0.5, first_token=0.5)
    read = {"disk": disk[0], "disk_bytes": disk[1]}
    recorder.read(turn(**read))
    turns, drafted = [], [False]
    for spine, tokens, accepted, skip in rounds:
        seconds = {"draft": 0.004 * spine, "verify": 0.012, "commit": 0.0001}
        counts = {"steps": spine, "drafted": spine, "nodes": spine + 3 if spine else 1, "reused_rows": spine}
        reported = turn(**seconds, **counts, saved_weight_bytes=0, proposed=[1, spine, *[0] * (len(NAMES) - 2)], **read)
        recorder.round(reported, ["plan"] * accepted, tokens, tokens <= accepted)
        recorder.decode += 0.0125 + 0.004 * spine
        clocked = Round(
            0.0125 + 0.004 * spine,
            0.004 * spine,
            spine,
            0.012,
            spine + 1,
            tokens,
            accepted,
            0,
            spine,
            tokens <= accepted,
            *disk,
        )
        turns.append(TracedRound(clocked, skip, recorder.decode))
        drafted += [i < accepted for i in range(tokens)]
    assert len(texts) == len(drafted)
    ids = [1000 + i for i in range(len(texts))]
    stats = recorder.finish(plain, reason_off=reason_off, skip=str(UNIFORM))
    reported = [TokenLogprobs(t, -0.25 * i) for i, t in enumerate(ids)] if logprobs else None
    kept = Trace("some <model>", LAYERS, tuple(texts), tuple(turns), **trace)
    by = ["plan" if d else None for d in drafted]
    return Result("".join(texts), ids, "length", reported, stats, 7, [1, 2, 3], drafted, kept, by)


ROUNDS = [(0, 1, 0, None), (3, 3, 2, UNIFORM), (2, 1, 0, UNIFORM), (4, 2, 2, DraftSpec.early_exit(2))]
TEXTS = ["<b>", "", "</script>", "&amp;", " \n\n  x", "\r\t", "\U0001f600", "\0"]
