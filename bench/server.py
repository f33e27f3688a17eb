"""A server in a process of its own, on a free port, once it answers."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from time import sleep
from urllib.error import HTTPError
from urllib.request import urlopen

from .as_gguf import Missing


class Server:
    """command: without its port; health: a path that answers 200 once it is ready; cores: that it may use."""

    def __init__(self, command: Sequence[str], health: str, cores: set[int] | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, cores) if cores else None,
        )
        while not self._ready(health):
            if self.process.poll() is not None:
                raise Missing(f"{command[0]} ended with status {self.process.returncode}")
            sleep(0.2)

    def _ready(self, health: str) -> bool:
        try:
            with urlopen(self.url + health) as answer:
                return answer.status == 200
        except (HTTPError, OSError):
            return False

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
