"""Parts of the study of long contexts: each is measured text by text, and its ratios are means over texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from .documents import CODES
from .lanes import GREEDY, PLAIN, Pair, in_turn, plain_summary, summary, write
from .long_texts import CONTEXTS, VIEWS, LongTexts
from .many import Lane, Llama, Many
from .spread import over_texts
from .texts import Text

MODES = {"greedy": GREEDY, "T .7": {"temperature": 0.7}}


def context_bytes(per_token: int, windows: Sequence[int], tokens: float) -> float:
    """Bytes of K and V that a step reads after so many tokens. windows: one for each layer, 0: it sees all."""
    return per_token / len(windows) * sum(min(window or tokens, tokens) for window in windows)


@dataclass
class After:
    """All ways after one context, one text at a time."""

    context: int
    kind: str
    mode: str
    pairs: list[Pair] = field(default_factory=list)
    texts: list[dict[str, dict[str, Any]]] = field(default_factory=list)  # rows of each, by way
    lanes: list[Llama] = field(default_factory=list)
    found: list[int] = field(default_factory=list)  # codes that plain decoding wrote
    rates: list[float] = field(default_factory=list)  # the memory's, in bytes per second
    read: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # tokens of each prompt, seconds

    def measure(self, run: LongTexts, number: int) -> None:
        """Measures one more text."""
        document = run.documents[number]
        prompt = document.tokens[: self.context - run.study.tokens]
        self.rates.append(run.study.lm.model.probe()[0])
        self._computed(run, "plain", prompt, run.prefixes.read(prompt))
        if run.peer:
            theirs = run.peer.ask("begin", prompts=[prompt], reuse=True)["seconds"]
            self._computed(run, run.peer_name, prompt, theirs)
        pairs, lanes = self._written(run, number)
        self.rates.append(run.study.lm.model.probe()[0])
        if not pairs:
            return
        self.pairs += pairs
        self.lanes += lanes
        rows = {"plain": plain_summary(pairs), **{pair.way: summary([pair]) for pair in pairs}}
        if lanes:
            for row in rows.values():
                row["over"] = row["rate"] / lanes[0].rate
            rows[run.peer_name] = {"speedup": lanes[0].rate / rows["plain"]["rate"]}
        self.texts.append(rows)

    def _computed(self, run: LongTexts, name: str, prompt: Sequence[int], seconds: float) -> None:
        self.read.setdefault(name, []).append(run.read(name, len(prompt), seconds))

    def _written(self, run: LongTexts, number: int) -> tuple[list[Pair], list[Llama]]:
        """A prompt under every way in turn: its pairs, and llama.cpp's lane, if it has one."""
        study, size = run.study, self.context - run.study.tokens
        document, name = run.documents[number], list(CODES)[number % len(CODES)]
        prompt = document.goes_on(size) if self.kind == "document" else document.asks(size, name)
        chosen = study.chosen([way.name for way in run.ways(max(CONTEXTS))])
        ways = [PLAIN, *(way for way in run.ways(self.context) if way.name in chosen)]
        lms = list(map(study.models.of, ways))
        if cold := [lm for lm in lms if lm not in run.warm]:
            write(cold, prompt[-64:], [PLAIN] * len(cold), 8)
            run.warm += cold
        for lm in lms:
            lm.forget()
            run.prefixes.give(lm._engine.native, prompt)
        greedy = run.peer and self.mode == "greedy"
        beside = [Llama(run.peer, [prompt], study.tokens - 1, reuse=True)] if greedy else []
        asked = {**MODES[self.mode], "ignore_eos": not study.given.eos}
        results = write(lms, prompt, ways, study.tokens, beside=beside, **asked)
        if len(results[0].tokens) < 2:
            return [], []
        text = Text(self.kind, (tuple(prompt),))
        written = study.lm.decode(results[0].tokens)
        self.found.append(sum(str(code) in written for code in CODES.values()))
        return [Pair(way.name, text, one, results[0]) for way, one in zip(ways[1:], results[1:])], beside

    def rows(self, run: LongTexts, part: str) -> None:
        """Adds them to the study's: counts, times and rates are sums over texts, ratios are means."""
        of, first = {"context": self.context, "kind": self.kind, "sampling": self.mode}, len(run.study.rows)
        run.study.add(part, self.pairs, **of)
        made = run.study.rows[first:]
        if not made:
            return
        plain = made[0]
        plain["share"] = self._share_of_reads(run, plain["rate"])
        if self.kind == "retrieval":
            plain["found"] = f"{sum(self.found)} of {len(CODES) * len(self.found)}"
        if self.lanes:
            rate = sum(lane.tokens for lane in self.lanes) / sum(lane.seconds for lane in self.lanes)
            made.append({"part": part, "way": run.peer_name, "rate": rate, **of})
            run.study.rows.append(made[-1])
        for row in made:
            way = row["way"]
            row.pop("error", None)  # it belongs to a ratio of sums
            row |= over_texts([text[way] for text in self.texts])
            if way in self.read:
                row["prompt"] = sum(n for n, _ in self.read[way]) / sum(seconds for _, seconds in self.read[way])
            copy, _, view = way.partition(", ")
            row |= {"view": way, "copied": copy} if view in VIEWS else {"told": way}

    def _share_of_reads(self, run: LongTexts, rate: float) -> float:
        """How much of the memory's rate plain steps of this context use."""
        model, tokens = run.study.lm.model, self.context - run.study.tokens / 2
        kv = context_bytes(run.prefixes.bytes_of_token, model.config["window"], tokens)
        return (model.weight_bytes + kv) * rate / fmean(self.rates)


@dataclass
class AtOnce:
    """An engine that has so many texts, greedy: of a document each, or of one with several questions."""

    size: int
    shared: bool
    texts: list[dict[str, dict[str, Any]]] = field(default_factory=list)  # rows of each round, by way

    def measure(self, run: LongTexts, number: int) -> None:
        """Measures texts of the documents from this one on, or of this one alone."""
        study, length = run.study, run.at_once - run.study.tokens
        study.models.forget()
        those = [run.documents[(number + i * (not self.shared)) % len(run.documents)] for i in range(self.size)]
        prompts = [one.asks(length, list(CODES)[i % len(CODES)]) for i, one in enumerate(those)]
        for document in those:
            run.prefixes.read(document.tokens[:length])
        with ExitStack() as stack:
            lanes = self._lanes(run, stack, prompts)
            in_turn(lanes.values())
        self.texts.append(self._compared(lanes, lanes.get(run.peer_name)))

    def _lanes(self, run: LongTexts, stack: ExitStack, prompts: Sequence[Sequence[int]]) -> dict[str, Lane]:
        study, most = run.study, run.study.tokens - 1

        def many(drafting: str, count: int) -> Many:
            def begin(engine: Any) -> None:
                for prompt in prompts[:count]:
                    run.prefixes.give(engine, prompt)

            context = run.at_once + 2 * study.tokens
            memory = 2 * count * context * run.prefixes.bytes_of_token  # half of it at most is for prefixes
            return Many(study.lm.model, drafting, prompts[:count], most, context, memory, begin, **GREEDY)

        lanes: dict[str, Lane] = {"plain": many("off", self.size), "default": many("planned", self.size)}
        lanes |= {"one": many("off", 1)} if self.size > 1 else {}
        if run.peer:
            peer = run.llama(stack, context=run.at_once + study.tokens, texts=self.size)
            lanes |= {run.peer_name: Llama(peer, prompts, most, reuse=True)} if peer else {}
        return lanes

    def _compared(self, lanes: Mapping[str, Lane], theirs: Lane | None) -> dict[str, dict[str, Any]]:
        plain, rows = lanes["plain"], {}
        one = lanes.get("one", plain)
        for name, lane in lanes.items():
            row = {"tokens": lane.tokens, "seconds": lane.seconds, "rounds": lane.rounds}
            row |= {} if name == "one" else {"over_one": lane.rate / one.rate, "speedup": lane.rate / plain.rate}
            if theirs and lane is not theirs and name != "one":
                row["over"] = lane.rate / theirs.rate
            if lane is not theirs:
                row["same"] = all(a[: len(b)] == b[: len(a)] for a, b in zip(lane.texts, plain.texts))
            rows[name] = row
        return rows

    def rows(self, run: LongTexts, part: str) -> None:
        """Adds them to the study's."""
        for way in dict.fromkeys(name for text in self.texts for name in text):
            some = [text[way] for text in self.texts if way in text]
            tokens, seconds, rounds = (sum(row[key] for row in some) for key in ("tokens", "seconds", "rounds"))
            lanes = 1 if way == "one" else self.size
            row = {"part": part, "way": way, "texts": self.size, "shared": self.shared, "rate": tokens / seconds}
            row |= {"M": tokens / rounds / lanes, **over_texts(some)}
            same = [one["same"] for one in some if "same" in one]
            run.study.rows.append({**row, **({"same": all(same)} if same else {})})
