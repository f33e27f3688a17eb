"""Users of a server over HTTP: so many at a time, each of whom asks again as soon as the answer is there; the default
with the bundled drafter, the same server without drafts, and llama.cpp's.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from time import perf_counter
from typing import Any

import httpx
import numpy as np

from swiftk import demo_drafter
from swiftk.text.tokenizer import Tokenizer

from .as_gguf import Missing, gguf
from .harness import Study
from .plots import lines
from .process import PYTHON_LLAMA
from .server import Server
from .texts import STREAMS, Prompts, grown

USERS = (1, 2, 4, 8, 16)
PROMPT = 200  # tokens, at most
WAYS: dict[str, dict[str, Any]] = {"default": {}, "no drafts": {"speculate": False}}
COLUMNS = {"users": "part", "server": "way", "answers": "answers", "tokens/s": "rate:.1f"}
COLUMNS |= {"first, median": "first_50:.2f", "95 %": "first_95:.2f", "next, median": "next_50:.3f"}
COLUMNS |= {"next, 95 %": "next_95:.3f", "right": "right", "lost": "lost"}
NOTES = (
    "Greedy; each part has a server of its own. first: seconds from the request to the first piece of text. next: "
    "seconds between two pieces. right: answers equal to those of swiftk's server without drafting, which got the same "
    f"prompts before, {USERS[-1]} at a time. lost: requests without a whole answer. llama.cpp's server (of "
    "llama-cpp-python) runs one request after another, and its texts may differ.",
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


def model_at(url: str) -> str:
    return httpx.get(f"{url}/v1/models").json()["data"][0]["id"]


def answered(url: str, prompts: list[str], **body: Any) -> dict[str, str]:
    """What the server says to each, many at a time."""
    body |= {"model": model_at(url)}
    with httpx.Client(timeout=600) as client, ThreadPoolExecutor(USERS[-1]) as pool:
        found = pool.map(lambda prompt: asked(client, url, prompt, **body), prompts)
        return {prompt: answer[0] for prompt, answer in zip(prompts, found) if answer}


def row(
    study: Study, url: str, users: int, prompts: list[str], seconds: float, right: dict[str, str], **body: Any
) -> dict[str, Any]:
    """What `users` saw in that time, each of whom begins at another prompt."""
    body = {"model": model_at(url), "max_tokens": study.tokens, **body}
    starts = [at * len(prompts) // users for at in range(users)]
    began = perf_counter()
    with ThreadPoolExecutor(users) as pool:
        under_way = [pool.submit(user, url, prompts[at:] + prompts[:at], began + seconds, **body) for at in starts]
        every = [text.result() for text in under_way]
    answers = [(prompt, *found) for some in every for prompt, found in some if found]
    tokenizer, took = Tokenizer(study.folder), max(times[-1] for _, _, times in answers) - began
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
    study = Study("users", __doc__, texts=20, tokens=64, streams=STREAMS, options=PYTHON_LLAMA)
    tokenizer, python, notes = Tokenizer(study.folder), study.given.python_llama, [*NOTES]
    raw = Prompts(study.folder, chat=False)  # the server gets texts, and makes no chats of them
    mixed = zip(*(raw.stream(name, study.count, PROMPT) for name in study.streams))
    prompts = [tokenizer.decode(text.prompt) for texts in mixed for text in texts]
    sizes = USERS[:2] if study.quick else USERS
    head = ["--drafter", str(grown(study.grow, demo_drafter()))] if study.grow else []
    threads = ["--threads", "1"] if study.quick else []
    loading = [word for name, value in study.asked.items() for word in (f"--{name}", value)]
    swiftk = [sys.executable, "-m", "swiftk", "serve", str(study.folder), *loading, *head, *threads], "/health"
    servers: dict[str, Any] = dict.fromkeys(reversed(WAYS), swiftk)
    try:
        command = [python, "-m", "llama_cpp.server", "--model", gguf(study.folder, "q4_0", python), "--n_ctx", "1024"]
        peer = [*command, "--interrupt_requests", "False"], "/v1/models"
        with Server(*peer):
            servers["llama.cpp, q4_0"] = peer
    except Missing as error:
        notes.append(f"left out: llama.cpp ({error})")
    works = {f"{way}, {n}": (way, n) for way in servers for n in sizes}
    seconds = 0 if study.quick else (study.given.minutes or 2.0) * 60 / len(works) * 0.8
    with Server(*swiftk) as server:
        asking = {"max_tokens": study.tokens, "ignore_eos": True, **WAYS["no drafts"]}
        right = answered(server.url, prompts, **asking)
    for _, (way, n) in study.parts(works):
        body = {"ignore_eos": True, **WAYS[way]} if way in WAYS else {}
        with Server(*servers[way]) as server:
            found = row(study, server.url, n, prompts, seconds, right, **body)
        study.rows.append({"part": str(n), "way": way, "size": n, **found})
    by = {"over": "size", "by": "way", "label": "users"}
    panels = [lines("tokens/s", "rate", **by), lines("seconds to the first piece, median", "first_50", **by)]
    study.finish(COLUMNS, *notes, panels=panels)


if __name__ == "__main__":
    main()
