"""The loop: prefill, then rounds of draft, verify and commit, cut where the text ends. Takes objects, makes none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from .cost import Pacer, Round
from .optimizer import Optimizer, Way
from .result import Event
from .stats import Recorder
from .stops import Stopper
from .trace import TracedRound


@dataclass(slots=True)
class Parts:
    """What one generation is made of."""

    stopper: Stopper
    optimizer: Optimizer
    pacer: Pacer
    recorder: Recorder
    logprobs: bool = False  # events tell them
    way: Way | None = None  # that the session drafts by


def decode(session: Any, prompt: Sequence[int], parts: Parts) -> Iterator[Event]:
    """Yields committed tokens.

    An interrupt between any two native calls leaves the session usable: the next text starts with reuse(), which
    forgets whatever was under way.
    """
    yield _prefill(session, prompt, parts)
    parts.pacer.start()
    while parts.stopper.finish is None:
        yield from _round(session, parts)


def _prefill(session: Any, prompt: Sequence[int], parts: Parts) -> Event:
    began = perf_counter()
    cached = session.reuse(prompt)
    for at in range(cached, len(prompt), session.max_chunk):
        session.extend(prompt[at : at + session.max_chunk])
    event = _event(session.sample(), parts)
    r = parts.recorder
    r.prompt_tokens, r.cached, r.generated = len(prompt), cached, 1
    r.prefill = r.first_token = perf_counter() - began
    return event


def _round(session: Any, parts: Parts) -> list[Event]:
    began, ran = perf_counter(), session.run_seconds
    spine = _draft(session, parts)
    tree, confidence = session.tree_tokens.tolist(), session.draft_confidence  # commit() forgets them
    events = []
    for one in session.verify():
        events.append(_event(one, parts))
        if parts.stopper.finish is not None:
            break
    session.commit(len(events))
    seconds = perf_counter() - began

    phases = session.last
    accepted = sum(event.drafted for event in events)
    parts.recorder.round(phases, spine, len(tree), accepted, len(events))
    r = Round(seconds, phases["draft"], spine, phases["verify"], len(tree), len(events), accepted)
    if parts.stopper.finish is None:  # a cut block says nothing about what pays
        if spine:
            held = _held(tree[1 : spine + 1], events)
            parts.way.gate.observe(confidence, held, accepted > held)
        _learn(r, parts)
    parts.recorder.decode += perf_counter() - began
    parts.recorder.run += session.run_seconds - ran
    parts.recorder.rounds.append(TracedRound(r, parts.way.skip if spine else None, parts.recorder.decode))
    return events


def _learn(r: Round, parts: Parts) -> None:
    began = perf_counter()
    pacer, optimizer = parts.pacer, parts.optimizer
    if pacer.observe(r):
        pacer.settle(another=optimizer.give_up(), untried=optimizer.untried)
    if r.draft_steps and pacer.costs.plain.count:
        optimizer.observe(r.tokens, r.seconds / pacer.costs.plain.value)
    parts.recorder.optimizer += perf_counter() - began


def _draft(session: Any, parts: Parts) -> int:
    """Grows the tree; returns its spine's length, 0 for a plain round. A round emits at most one token more."""
    if parts.stopper.remaining > 1 and parts.pacer.draft_next():
        way = parts.optimizer.next()
        if way is not parts.way:
            session.set_skip(list(way.skip.attn), list(way.skip.mlp), _exit(way))
            parts.way = way
            parts.pacer.switch(way.costs)
        costs = way.costs
        rule = way.gate.choose(costs.draft_cost, costs.row_cost).clipped(parts.stopper.remaining - 1)
        session.draft(stop_ids=sorted(parts.stopper.stop_ids), **rule.arguments())
        return int(session.spine_length)
    session.draft(max_draft=0)
    return 0


def _exit(way: Way) -> int:
    return -1 if way.skip.exit_layer is None else way.skip.exit_layer


def _held(spine: Sequence[int], events: Sequence[Event]) -> int:
    """Spine tokens that were accepted."""
    held = 0
    for token, event in zip(spine, events, strict=False):
        if not event.drafted or event.token != token:
            break
        held += 1
    return held


def _event(emitted: Any, parts: Parts) -> Event:
    token = int(emitted.token)
    text = parts.stopper.push(token)
    if not parts.logprobs:
        return Event(text, token, emitted.drafted)
    return Event(text, token, emitted.drafted, emitted.logprob, tuple(emitted.top))
