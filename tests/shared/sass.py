"""What a kernel's machine code may do before it waits for the kernel before it, from a disassembly of cuobjdump; and
what functions an image has and wants."""

import re
import struct

WAIT, TRIGGER = "ACQBULK", "PREEXIT"
# Loads, stores and reductions of memory that other kernels see, and copies from it.
GLOBAL = re.compile(r"(LD|ST|LDG|STG|LDGSTS|ATOM|ATOMG|RED|REDG|UBLKCP|UBLKRED|UTMALDG|UTMASTG)\b")
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
_TARGETED = ("BRA", "BSSY", "WARPSYNC.COLLECTIVE", "CALL")
_UNKNOWN = ("BRX", "JMX", "JMP", "BRXU")


def instructions(text):
    """{address: (address of the next, whether a condition guards it, opcode, operands)} of a disassembly's kernel."""
    found = [(int(at, 16), bool(guard), opcode, rest) for at, guard, opcode, rest in _LINE.findall(text)]
    assert found and len(dict.fromkeys(f[0] for f in found)) == len(found), "not the code of one kernel"
    following = [f[0] for f in found[1:]] + [None]
    return {at: (after, *rest) for (at, *rest), after in zip(found, following)}


def successors(code, at):
    after, guarded, opcode, operands = code[at]
    assert opcode.split(".")[0] not in _UNKNOWN, f"{opcode}: where it goes is not in the code"
    targets = [int(t, 16) for t in re.findall(r"\b0x[0-9a-f]+\b", operands)] if opcode.startswith(_TARGETED) else []
    ends = opcode.split(".")[0] in ("EXIT", "RET", "KILL") or (opcode == "BRA" and re.fullmatch(r"0x\w+\s*", operands))
    return [t for t in targets if t in code] + ([after] if after is not None and (guarded or not ends) else [])


def before_waiting(text):
    """Opcodes that some thread may run without having waited: all on ways from the start that pass no wait."""
    code = instructions(text)
    seen, todo = set(), [min(code)]
    while todo:
        at = todo.pop()
        if at in seen or code[at][2] == WAIT:
            continue
        seen.add(at)
        todo += successors(code, at)
    return [code[at][2] for at in sorted(seen)]


def memory_before_waiting(text):
    return {opcode for opcode in before_waiting(text) if GLOBAL.match(opcode)}


def functions(image):
    """(name, whether it is there) of each function that an image (ELF, 64 bits) has or wants."""
    begin, size, count = *struct.unpack_from("<Q", image, 40), *struct.unpack_from("<2H", image, 58)
    sections = [struct.unpack_from("<2I4Q2I2Q", image, begin + i * size) for i in range(count)]
    for _, kind, _, _, at, length, link, _, _, each in sections:
        if kind == 2:  # symbols
            for symbol in range(at, at + length, each):
                name, info, _, section = struct.unpack_from("<IBBH", image, symbol)
                if info & 15 == 2:
                    first = sections[link][4] + name
                    yield image[first : image.index(b"\0", first)].decode(), section != 0
