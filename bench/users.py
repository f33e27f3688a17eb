"""Users of a server over HTTP: so many at a time, each of whom asks again as soon as the answer is there; the default,
the same server without drafts, and llama.cpp's.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import httpx
import numpy as np

from swiftk.tokenizer import Tokenizer

from .harness import Study
from .plots import lines
from .process import PYTHON_LLAMA, Missing, gguf
from .server import Server
from .texts import STREAMS

USERS = (1, 2, 4, 8, 16)
PROMPT = 200  # tokens, at most
WAYS: dict[str, dict[str, Any]] = {"default": {}, "plain": {"speculate": False}}
COLUMNS = {"users": "part", "server": "way", "answers": "answers", "tokens/s": "rate:.1f"}
COLUMNS |= {"first, median": "first_50:.2f", "95 %": "first_95:.2f", "next, median": "next_50:.3f"}
COLUMNS |= {"next, 95 %": "next_95:.3f", "right": "right", "lost": "lost"}
NOTES = (
    "greedy; first: seconds from asking to the first piece of text; next: between two pieces; right: answers equal to "
    "the first one that swiftk's plain server gave to the same prompt; lost: requests without a whole answer; "
    "llama.cpp's server (llama-cpp-python's) writes one text after another, and its texts may differ",
)


def asked(client: httpx.Client, url: str, prompt: str, **body: Any) -> tuple[str, list[float]] | None:
    """An answer and when its pieces came, the moment of asking first; None: it is not whole."""
    times, pieces, whole = [perf_counter()], [], False
    body |= {"prompt": prompt, "temperature": 0, "stream": True}
    try:
        with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
            for line in answer.iter_lines():
                whole |= line == "data: [DONE]"
                if line.startswith("data: {") and (choices := json.loads(line[6:])["choices"]):
                    pieces.append(choices[0]["text"])
                    times.append(perf_counter())
    except httpx.TransportError:
        return None
    return ("".join(pieces), times) if whole and answer.status_code == 200 else None


def user(url: str, prompts: list[str], until: float, **body: Any) -> list[Any]:
    with httpx.Client(timeout=600) as client:
        found, each = [], cycle(prompts)
        while not found or perf_counter() < until:
            prompt = next(each)
            found.append((prompt, asked(client, url, prompt, **body)))
    return found


def row(
    study: Study, url: str, users: int, prompts: list[str], seconds: float, right: dict[str, str], **body: Any
) -> dict[str, Any]:
    """What `users` saw in that time, each with prompts of its own."""
    model = httpx.get(f"{url}/v1/models").json()["data"][0]["id"]
    began, body = perf_counter(), {"model": model, "max_tokens": study.tokens, **body}
    with ThreadPoolExecutor(users) as pool:
        own = [list(islice(cycle(prompts), at, at + len(prompts))) for at in range(users)]
        every = [f.result() for f in [pool.submit(user, url, some, began + seconds, **body) for some in own]]
    answers = [(prompt, *found) for some in every for prompt, found in some if found]
    tokenizer, took = Tokenizer(study.folder), max(times[-1] for _, _, times in answers) - began
    for prompt, text, _ in answers if body.get("speculate") is False else ():
        right.setdefault(prompt, text)
    first = [times[1] - times[0] for _, _, times in answers]
    gaps = np.concatenate([np.diff(times[1:]) for _, _, times in answers])
    found = {
        f"{n}_{q}": float(np.percentile(some, q)) for n, some in (("first", first), ("next", gaps)) for q in (50, 95)
    }
    same = sum(right.get(prompt) == text for prompt, text, _ in answers)
    new = sum(len(tokenizer.encode(text, False)) for _, text, _ in answers)
    return {
        **found,
        "rate": new / took,
        "answers": len(answers),
        "right": f"{same} of {len(answers)}",
        "lost": sum(map(len, every)) - len(answers),
    }


def main() -> None:
    study = Study("users", __doc__, tokens=64, streams=STREAMS, options=PYTHON_LLAMA)
    tokenizer, python, notes = Tokenizer(study.folder), study.given.python_llama, [*NOTES]
    prompts = [tokenizer.decode(text.prompt[1:PROMPT]) for name in study.streams for text in study.texts(name)]
    sizes = USERS[:2] if study.quick else USERS
    swiftk = [sys.executable, "-m", "swiftk", "serve", str(study.folder)]
    right: dict[str, str] = {}
    works = {f"{way}, {n}": (way, n) for way in (*reversed(WAYS), "llama.cpp, q4_0") for n in sizes}
    share = (study.given.minutes or 2.0) * 60 / len(works) * 0.8
    with Server([*swiftk, *(["--threads", "1"] if study.quick else [])], "/health") as server:
        for _, (way, n) in study.parts({k: v for k, v in works.items() if v[0] in WAYS}):
            found = row(study, server.url, n, prompts, 0 if study.quick else share, right, ignore_eos=True, **WAYS[way])
            study.rows.append({"part": str(n), "way": way, "size": n, **found})
    try:
        model = gguf(study.folder, "q4_0", python)
        command = [python, "-m", "llama_cpp.server", "--model", model, "--n_ctx", "1024"]
        with Server([*command, "--interrupt_requests", "False"], "/v1/models") as server:
            for _, (way, n) in study.parts({k: v for k, v in works.items() if v[0] not in WAYS}):
                found = row(study, server.url, n, prompts, 0 if study.quick else share, right)
                study.rows.append({"part": str(n), "way": way, "size": n, **found})
    except Missing as error:
        notes.append(f"left out: llama.cpp ({error})")
    by = {"over": "size", "by": "way", "label": "users"}
    panels = [lines("tokens/s", "rate", **by), lines("seconds to the first piece, median", "first_50", **by)]
    study.finish(COLUMNS, *notes, panels=panels)


if __name__ == "__main__":
    main()
