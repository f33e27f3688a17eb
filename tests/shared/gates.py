"""Requests that meet where a test wants them to: calls of a method wait until they are let through."""

import asyncio
import threading

import patience

ASKED = {"prompt": [5, 6], "max_tokens": 3, "temperature": 0, "ignore_eos": True}


class Gate:
    """Holds calls of a method until it is opened."""

    def __init__(self, monkeypatch, owner, name):
        self._call, self._open, self.inside = getattr(owner, name), threading.Event(), 0
        monkeypatch.setattr(owner, name, self)

    def __call__(self, *asked):
        self.inside += 1
        assert self._open.wait(patience.PATIENCE)
        return self._call(*asked)

    async def reached(self, calls=1):
        await until(lambda: self.inside >= calls)

    def open(self):
        self._open.set()


def post(client, **more):
    return asyncio.create_task(client.post("/v1/completions", json={**ASKED, **more}))


async def until(holds):
    await asyncio.to_thread(patience.until, holds)
