"""A real S3-speaking server on loopback (moto's) behind a small proxy that answers 503, is slow and breaks off."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator

HOP_HEADERS = ("connection", "transfer-encoding", "content-length", "keep-alive")


class Faults(ThreadingHTTPServer):
    """A proxy in front of the server at `port`; its fields say what goes wrong, `seen` counts requests by method."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Relay)
        self.behind = port
        self.refuse_first = 0
        """How many requests for each path and method are answered with 503 before one passes."""
        self.break_first = 0
        """How many bodies of GETs end half-way."""
        self.delay_s = 0.0
        self.seen: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Relay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Faults

    def relay(self) -> None:
        faults = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(faults.delay_s)
        with faults.lock:
            where = f"{self.command} {self.path}"
            faults.seen["list" if "list-type" in self.path else self.command] += 1
            is_refused = faults.refused[where] < faults.refuse_first
            faults.refused[where] += is_refused
        if is_refused:
            self.answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        onward = http.client.HTTPConnection("127.0.0.1", faults.behind, timeout=30)
        onward.request(self.command, self.path, body, dict(self.headers.items()))
        answer = onward.getresponse()
        data = answer.read()
        onward.close()
        with faults.lock:
            is_broken = self.command == "GET" and "list-type" not in self.path and faults.break_first > 0
            faults.break_first -= is_broken
        self.answer(answer.status, dict(answer.getheaders()), data, is_broken=is_broken)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = relay  # noqa: N815

    def answer(self, status: int, headers: dict[str, str], data: bytes, *, is_broken: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if is_broken else data)
        if is_broken:
            self.wfile.flush()
            self.connection.shutdown(2)

    def log_message(self, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def s3_server() -> Iterator[Faults]:
    """The proxy, in front of a server that has nothing yet."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    proxy = Faults(server.get_host_and_port()[1])
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.stop()
