"""A chat endpoint of OpenAI's shape on loopback, for a demo that needs no key.

It speaks real HTTP: JSON and server-sent events, tool calls, usage, error objects,
``GET /v1/models``. What it says is decided by `project.offline_rules`; the shapes of
requests and answers are those of `project.offline_wire`.

    with OfflineModel() as model:
        print(model.base_url)  # http://127.0.0.1:49321/v1
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

from project.offline_wire import MODEL, Answer, Refusal

MAX_BODY_BYTES = 32 * 1024 * 1024


class OfflineModel:
    """The server and its thread.

    ``port`` 0 takes a free one. ``delay`` is the pause in seconds between the pieces
    of a stream, to make streaming visible.
    """

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 0, delay: float = 0.0
    ) -> None:
        self._server = _Server((host, port), _Handler)
        self._server.delay = delay
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """The address to give to a client, ending in ``/v1``."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/v1"

    def start(self) -> Self:
        """Serve from a daemon thread and return at once."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()
        return self

    def serve_forever(self) -> None:
        """Serve from this thread until interrupted."""
        self._server.serve_forever()

    def stop(self) -> None:
        """Stop serving and free the port."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client may keep its connection open
    delay = 0.0


class _Handler(BaseHTTPRequestHandler):
    """Answers are buffered and flushed once: headers and body in two writes would wait
    for the peer's delayed acknowledgement."""

    protocol_version = "HTTP/1.1"
    server_version = "convmem-offline"
    sys_version = ""
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server
    timeout: ClassVar[float] = 120.0  # an idle connection ends

    def do_GET(self) -> None:
        if self._path() != "/v1/models":
            return self._refuse(_not_found(self._path()))
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "convmem"}
        self._json(HTTPStatus.OK, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        try:
            body = self._body()
            if self._path() != "/v1/chat/completions":
                raise _not_found(self._path())
            request = _parsed(body)
            answer = _answered(request)
        except Refusal as refusal:
            self._refuse(refusal)
            return self._discard() if self.close_connection else None
        if request.get("stream"):
            self._stream(answer)
        else:
            self._json(HTTPStatus.OK, answer.whole())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - inherited
        """Say nothing: the demo's output is for its reader."""

    def _path(self) -> str:
        return self.path.split("?", 1)[0]

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self.close_connection = True
            raise Refusal("Content-Length is required.", status=411)
        if int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            raise Refusal(f"At most {MAX_BODY_BYTES} bytes are read.", status=413)
        return self.rfile.read(int(length))

    def _discard(self) -> None:
        """Take in what the peer is still sending: to close on unread bytes would reset
        the connection, and the answer with it."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(1.0)
            for _ in range(1024):
                if not self.connection.recv(65536):
                    return

    def _refuse(self, refusal: Refusal) -> None:
        self._json(refusal.status, refusal.body)

    def _json(self, status: int, value: Mapping[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _stream(self, answer: Answer) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for piece in answer.pieces():
                self._event(json.dumps(piece))
                time.sleep(self.server.delay)
            self._event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the reader has left

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()


def _not_found(path: str) -> Refusal:
    return Refusal(f"Unknown path: {path}.", status=404, code="unknown_url")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(f"The body is not JSON: {error}.") from error


def _answered(request: Any) -> Answer:
    try:
        return Answer(request)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # What `check_request` does not look at, deep in tools or options.
        raise Refusal(f"A parameter has a wrong type or no value: {error}.") from error
