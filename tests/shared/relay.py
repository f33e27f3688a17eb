"""Between a client and a server: cuts every line after so many bytes of the server's, and all when it closes."""

import contextlib
import socket
import threading


class Relay:
    def __init__(self, url, cuts):
        self.target, self.cuts = ("127.0.0.1", int(url.rpartition(":")[2])), list(cuts)
        self.lines = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listening.accept()
                most = self.cuts.pop(0) if self.cuts else 1 << 40
                far = socket.create_connection(self.target)
                ends = near, far
                self.lines.append(ends)
                threading.Thread(target=self.pump, args=(near, far, 1 << 40, ends), daemon=True).start()
                threading.Thread(target=self.pump, args=(far, near, most, ends), daemon=True).start()

    def pump(self, source, sink, most, ends):
        with contextlib.suppress(OSError):
            while most > 0 and (data := source.recv(min(most, 65536))):
                sink.sendall(data)
                most -= len(data)
        self.cut(ends)

    def cut(self, ends):
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for ends in self.lines:
            self.cut(ends)


def cut(relay, line, prompt, **options):
    """A text whose server is gone for good after the first piece, and its pieces."""
    text, pieces = line.stream(prompt, **options), []
    for piece in text:
        if not pieces:
            relay.close()
            line._patience = 0  # nobody will answer
        pieces.append(piece)
    return text.result, pieces
