"""The loops of machine code, from where its branches go: the compiler may lay a loop's parts out in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

_ENDS = re.compile(r"EXIT|RET|KILL")
_WAITING = re.compile(r"SYNCS|BRA|YIELD|NOP|BSYNC|BSSY|SHF|IMAD|LEA")


class Instruction(Protocol):
    at: int
    guarded: bool
    opcode: str
    operands: str


def successors(code: Sequence[Instruction]) -> list[list[int]]:
    """Places that each instruction may go on to, by its own place."""
    places = {instruction.at: place for place, instruction in enumerate(code)}
    found = []
    for place, i in enumerate(code):
        target = re.search(r"\b0x([0-9a-f]+)", i.operands) if i.opcode.startswith("BRA") else None
        always = bool(_ENDS.match(i.opcode)) or bool(target and re.fullmatch(r"0x[0-9a-f]+\s*", i.operands))
        after = [place + 1] if place + 1 < len(code) and (i.guarded or not always or ".U." in i.opcode) else []
        found.append(after + ([places[int(target[1], 16)]] if target and int(target[1], 16) in places else []))
    return found


def _orders(after: list[list[int]]) -> list[int]:
    """Places in reverse postorder: before what follows them, but for loops."""
    seen, order, stack = {0}, [], [(0, iter(after[0]))]
    while stack:
        _, rest = stack[-1]
        following = next((p for p in rest if p not in seen), None)
        if following is None:
            order.append(stack.pop()[0])
        else:
            seen.add(following)
            stack.append((following, iter(after[following])))
    return order[::-1]


def _dominators(after: list[list[int]], order: list[int], before: dict[int, list[int]]) -> dict[int, int]:
    """The place that every way to a place passes last."""
    rank = {place: n for n, place in enumerate(order)}
    closest = {0: 0}

    def meet(a: int, b: int) -> int:
        while a != b:
            a, b = (closest[a], b) if rank[a] > rank[b] else (a, closest[b])
        return a

    changed = True
    while changed:
        changed = False
        for place in order[1:]:
            known = [p for p in before[place] if p in closest]
            new = known[0]
            for other in known[1:]:
                new = meet(new, other)
            changed = changed or closest.get(place) != new
            closest[place] = new
    return closest


def loops(code: Sequence[Instruction]) -> list[list[int]]:
    """Places of each loop, in the code's order, without loops inside that do nothing but wait for a barrier."""
    after = successors(code)
    order = _orders(after)
    before: dict[int, list[int]] = {place: [] for place in order}
    for place in order:
        for following in after[place]:
            before[following].append(place)
    closest = _dominators(after, order, before)

    def passes(place: int, by: int) -> bool:
        while place != by and place != 0:
            place = closest[place]
        return place == by

    bodies: dict[int, set[int]] = {}
    for place in order:
        for head in after[place]:
            if passes(place, head):
                body, todo = bodies.setdefault(head, {head}), [place]
                while todo:
                    inside = todo.pop()
                    if inside not in body:
                        body.add(inside)
                        todo += before[inside]

    def waits(body: set[int]) -> bool:
        opcodes = [code[place].opcode for place in body]
        return any(map(re.compile("SYNCS").match, opcodes)) and all(map(_WAITING.match, opcodes))

    waiting = [body for body in bodies.values() if waits(body)]
    spent = set().union(*waiting)
    return [sorted(body - spent) for body in bodies.values() if body not in waiting]
