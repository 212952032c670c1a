"""A client that sends raw bytes piece by piece to a server on this machine."""

import contextlib
import socket
import time

__all__ = ["RawClient", "head_of", "status_of"]


def head_of(path="/livez", method="GET", *lines):
    """Return the head of a request, without its last empty line."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, ""]).encode("latin-1")


def status_of(answer):
    """Return the status of an answer, or None for an empty one."""
    return int(answer.split(b" ", 2)[1]) if answer else None


class RawClient:
    """A connection to a server."""

    def __init__(self, process, seconds=20.0):
        host, _, port = process.address.removeprefix("http://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), seconds)

    def send(self, *pieces, pause=0.0):
        """Send pieces; a connection that the server has closed is no error here."""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self.socket.sendall(piece)
                if pause:
                    time.sleep(pause)

    def receive(self, wanted=b""):
        """Receive until the server closes, or until these bytes have arrived."""
        parts = b""
        with contextlib.suppress(ConnectionError):
            while piece := self.socket.recv(65_536):
                parts += piece
                if wanted and wanted in parts:
                    break
        return parts

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
