"""The loop: prefill, then rounds of draft, verify and commit, cut where the text ends. Takes objects, makes none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from .cost import Round
from .gate import DraftRule, SourceGate
from .optimizers.base import Optimizer, Progress, Score
from .pacing import Pacer
from .result import Event
from .skip import SkipSet
from .trace import TracedRound
from .transcript import Transcript
from .way import Way

_PLAN = "plan"


@dataclass(frozen=True, slots=True)
class SessionScorer:
    """optimizers.base.Scorer on a session."""

    session: Any

    def __call__(self, skip: SkipSet, window: int, end: int | None = None) -> Score:
        last = -1 if end is None else end
        return Score(*self.session.score(**skip.arguments(), window=window, end=last))

    def exits(self, layers: Sequence[int], window: int, end: int | None = None) -> list[Score]:
        confidence, rank, seconds = self.session.score_exits(list(layers), window, -1 if end is None else end)
        return [Score(*outcomes, seconds / len(layers)) for outcomes in zip(confidence, rank, strict=True)]

    def propose(self, most: int) -> list[SkipSet]:
        return [SkipSet(attn, mlp) for attn, mlp in self.session.propose_skips(most)]


@dataclass(slots=True)
class Parts:
    """What one generation is made of."""

    text: Transcript
    optimizer: Optimizer
    pacer: Pacer
    scorer: SessionScorer
    way: Way | None = None  # that the session drafts by
    guesser: SourceGate | None = None  # where sources are asked: the rule of rounds without a draft


def decode(session: Any, prompt: Sequence[int], parts: Parts) -> Iterator[Event]:
    """Yields committed tokens.

    An interrupt between any two native calls leaves the session usable: the next text starts with reuse(), which
    forgets whatever was under way.
    """
    yield _prefill(session, prompt, parts)
    parts.pacer.start()
    parts.optimizer.start(prompt)
    if parts.guesser:
        parts.guesser.sources.start()
    while parts.text.stopper.finish is None:
        yield from _round(session, parts)
    parts.optimizer.finish()


def _prefill(session: Any, prompt: Sequence[int], parts: Parts) -> Event:
    began = perf_counter()
    cached = session.reuse(prompt)
    for at in range(cached, len(prompt), session.max_chunk):
        session.extend(prompt[at : at + session.max_chunk])
    event = parts.text.add(session.sample())
    r = parts.text.recorder
    r.prompt_tokens, r.cached, r.generated = len(prompt), cached, 1
    r.prefill = r.first_token = perf_counter() - began
    return event


def _round(session: Any, parts: Parts) -> list[Event]:
    began, ran = perf_counter(), session.run_seconds
    nodes = _draft(session, parts)
    events, emitted = [], session.verify()
    for one in emitted:
        events.append(parts.text.add(one))
        if parts.text.stopper.finish is not None:
            break
    session.commit(len(events))
    seconds = perf_counter() - began

    phases = session.last
    steps = phases["draft_steps"]
    by = [event.source for event in events if event.drafted]
    parts.text.recorder.round(phases, nodes, by, len(events), cut=len(events) < len(emitted))
    guessed = sum(source != _PLAN for source in by)
    r = Round(seconds, phases["draft"], steps, phases["verify"], nodes, len(events), len(by), guessed)
    if parts.text.stopper.finish is None:  # a cut block says nothing about what pays
        _learn(session, r, parts)
    parts.text.recorder.decode += perf_counter() - began
    parts.text.recorder.run += session.run_seconds - ran
    parts.text.recorder.rounds.append(TracedRound(r, parts.way.skip if steps else None, parts.text.recorder.decode))
    return events


def _learn(session: Any, r: Round, parts: Parts) -> None:
    began = perf_counter()
    pacer, optimizer = parts.pacer, parts.optimizer
    if parts.guesser:
        parts.guesser.sources.add(session.guessed)
        parts.guesser.sources.observe(r, pacer.costs.plain.value)
    outcomes = session.outcomes if r.draft_steps else ()
    if outcomes:
        optimizer.current.gate.observe(outcomes, r.draft_steps)
    if pacer.observe(r):
        pacer.settle(another=optimizer.give_up(pacer.rate), untried=optimizer.untried)
    if r.draft_steps and pacer.costs.plain.count:
        optimizer.observe(replace(r, tokens=r.tokens - r.guessed))  # a way gets no credit for what others gave
    if pacer.mode:
        recorder = parts.text.recorder
        progress = Progress(
            recorder.prompt_tokens,
            recorder.generated,
            recorder.decode,
            pacer.costs.plain.value,
            pacer.resting,
            r.tokens,
            [rank == 0 for _, rank in outcomes],
        )
        if optimizer.step(parts.scorer, progress):
            pacer.wake()
        pacer.charge(optimizer.unpaid)
    parts.text.recorder.optimizer += perf_counter() - began


def _draft(session: Any, parts: Parts) -> int:
    """Grows the tree; returns its nodes, 1 for a plain round. A round emits at most one token more."""
    most = parts.text.stopper.remaining - 1
    rule: DraftRule | None = None
    if most > 0 and parts.pacer.draft_next():
        way = parts.optimizer.next()
        if way is not parts.way:
            session.set_skip(**way.skip.arguments())
            parts.way = way
            parts.pacer.switch(way.costs)
        rule = way.gate.choose(way.costs)
    elif most > 0 and parts.guesser and parts.pacer.guess_next():
        rule = parts.guesser.choose(parts.pacer.costs)
    if rule is None:
        return int(session.draft(max_draft=0))
    rule = rule.clipped(most, parts.pacer.most_nodes())
    return int(session.draft(stop_ids=sorted(parts.text.stopper.stop_ids), **rule.arguments()))
