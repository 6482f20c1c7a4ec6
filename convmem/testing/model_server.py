"""A scripted model server on loopback: real HTTP, real bytes, no model.

::

    with ModelServer() as server:
        server.script(chat_reply("Hello!"), Reply(status=429))
        service = HttpChatService("custom", "any", base_url=server.url)
        ...
        assert server.requests[0].json["messages"][-1]["content"] == "Hi"

Each connection is served by a thread. A reply is written by the test, down to how a
stream is cut into writes, where it pauses and where the connection drops.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from convmem.dialects.assembly import deltas_of
from convmem.dialects.openai import encode_message, encode_usage
from convmem.messages import Message, ToolCall

#: Where a connection breaks: `DROP` resets it, `HANG_UP` closes it without an end.
DROP = "drop"
HANG_UP = "hang up"
#: A step of a body: bytes to write, seconds to wait, or one of the two above.
Step: TypeAlias = bytes | float | str


@dataclass(frozen=True)
class Received:
    """One request as it came. ``headers`` have lower-case names."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """One scripted answer.

    ``body`` is bytes, a text, or a value to send as JSON. ``steps`` instead of it
    makes a chunked body. ``delay`` is the wait in seconds before the status line.
    ``drop`` closes the connection in place of any answer.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[Step] | None = None
    delay: float = 0.0
    drop: bool = False

    @property
    def content(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        if isinstance(self.body, str):
            return self.body.encode()
        return json.dumps(self.body, ensure_ascii=False).encode()


Script: TypeAlias = Reply | Callable[[Received], Reply]


class ModelServer:
    """An HTTP/1.1 server for a ``with`` block; replies come in the order scripted.

    ``url`` is the base URL. ``requests`` records what came. ``gone`` is set when a
    client has closed its connection before the answer's end. With ``default`` set, it
    answers once the script is empty; otherwise such a call gets a 500.
    """

    def __init__(self, *, default: Script | None = None) -> None:
        self.default = default
        self.requests: list[Received] = []
        self.gone = threading.Event()
        self.connections = 0
        self._script: list[Script] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def script(self, *replies: Script) -> None:
        """Append replies."""
        with self._lock:
            self._script.extend(replies)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._thread.join()
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.02)

    def answer(self, request: Received) -> Reply:
        """Record ``request`` and return its scripted reply."""
        with self._lock:
            self.requests.append(request)
            script = self._script.pop(0) if self._script else self.default
        if script is None:
            return error_reply(500, "The script of this server is empty.")
        return script(request) if callable(script) else script

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def wait(self, seconds: float, connection: socket.socket) -> bool:
        """Wait; return False when the client has left or the server stops."""
        end = time.monotonic() + seconds
        while not self._stopping.is_set():
            left = end - time.monotonic()
            if _has_left(connection, max(min(left, 0.02), 0)):
                self.gone.set()
                return False
            if left <= 0:
                return True
        return False


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 256

    def __init__(self, owner: ModelServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is part of the play, not worth a traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.owner.opened(self.connection)

    def finish(self) -> None:
        self.server.owner.closed(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        owner = self.server.owner
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = owner.answer(Received(self.command, self.path, headers, body))
        try:
            if not owner.wait(reply.delay, self.connection):
                self.close_connection = True
            elif reply.drop:
                self._break(DROP)
            elif reply.steps is None:
                self._write(reply)
            else:
                self._play(reply, reply.steps)
        except OSError:
            owner.gone.set()
            self.close_connection = True

    def _write(self, reply: Reply) -> None:
        """Send head and body in one write, so that no acknowledgement is awaited."""
        head = _head(reply, "application/json", f"content-length: {len(reply.content)}")
        self.wfile.write(head + reply.content)

    def _play(self, reply: Reply, steps: Iterable[Step]) -> None:
        pending = _head(reply, "text/event-stream", "transfer-encoding: chunked")
        for step in steps:
            if isinstance(step, bytes):
                pending += b"%x\r\n%b\r\n" % (len(step), step) if step else b""
                self.wfile.write(pending)
                pending = b""
                continue
            if pending:
                self.wfile.write(pending)
                pending = b""
            if isinstance(step, str):
                self._break(step)
                return
            if not self.server.owner.wait(step, self.connection):
                self.close_connection = True
                return
        self.wfile.write(pending + b"0\r\n\r\n")

    def _break(self, how: str) -> None:
        self.close_connection = True
        if how == DROP:
            # A linger time of zero makes the close a reset.
            now = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
            os.close(self.connection.detach())
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: tests read ``requests``."""


def _head(reply: Reply, content_type: str, framing: str) -> bytes:
    headers = {"content-type": content_type, **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} {responses.get(reply.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, framing, "", ""]).encode("latin-1")


def _has_left(connection: socket.socket, timeout: float) -> bool:
    readable, _, _ = select.select([connection], [], [], timeout)
    try:
        return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


# --- what to script ---


def chat_reply(message: Message | str, **fields: Any) -> Reply:
    """Return a whole chat completion; ``fields`` go into its top level."""
    message = Message.assistant(message) if isinstance(message, str) else message
    choice = {
        "index": 0,
        "message": encode_message(message),
        "finish_reason": "tool_calls" if message.tool_calls else "stop",
    }
    body = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1,
        "model": message.model or "scripted",
        "choices": [choice],
    }
    if message.usage is not None:
        body["usage"] = encode_usage(message.usage)
    return Reply(body={**body, **fields})


def stream_reply(
    message: Message | str,
    *,
    size: int = 4,
    pause: float = 0.0,
    done: bool = True,
    **fields: Any,
) -> Reply:
    """Return a streamed chat completion, one write an event.

    Texts come in pieces of ``size`` characters with ``pause`` seconds between events;
    without ``done`` the closing ``[DONE]`` is missing. ``fields`` are the `Reply`'s.
    """
    steps: list[Step] = []
    for event in stream_events(message, size=size):
        steps += [sse(event), pause] if pause else [sse(event)]
    if done:
        steps.append(sse("[DONE]"))
    return Reply(steps=steps, **fields)


def stream_events(message: Message | str, *, size: int = 4) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a streamed chat completion."""
    message = Message.assistant(message) if isinstance(message, str) else message
    yield chunk({"role": "assistant", "content": ""}, model=message.model)
    for delta in deltas_of(message, size=size):
        yield chunk(_wire_delta(delta), model=message.model)
    finish = "tool_calls" if message.tool_calls else "stop"
    yield chunk({}, finish_reason=finish, model=message.model)
    if message.usage is not None:
        usage = encode_usage(message.usage)
        yield chunk(None, usage=usage, model=message.model)


def _wire_delta(delta: Any) -> dict[str, Any]:
    kind = type(delta).__struct_config__.tag
    if kind != "tool_call":
        names = {"text": "content", "reasoning": "reasoning_content"}
        return {names.get(kind, kind): delta.text}
    function = {"name": delta.name, "arguments": delta.arguments}
    call: dict[str, Any] = {"index": delta.index, "function": function}
    if delta.id:
        call |= {"id": delta.id, "type": "function"}
    else:
        del function["name"]
    return {"tool_calls": [call]}


def chunk(
    delta: Mapping[str, Any] | None,
    *,
    finish_reason: str | None = None,
    usage: Mapping[str, Any] | None = None,
    model: str | None = None,
) -> dict[str, Any]:
    """Return one stream chunk; ``delta`` None makes one without choices."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model or "scripted",
        "choices": [] if delta is None else [choice],
        "usage": usage,
    }


def sse(data: Any, *, event: str = "", end: str = "\n") -> bytes:
    """Return one server-sent event; ``end`` is the line ending to use."""
    if not isinstance(data, str):
        data = json.dumps(data, ensure_ascii=False)
    name = f"event: {event}{end}" if event else ""
    return f"{name}data: {data}{end}{end}".encode()


def error_reply(status: int, message: str, **fields: Any) -> Reply:
    """Return an error in OpenAI's shape; ``fields`` go into its error object."""
    error = {"message": message, "type": None, "param": None, "code": None, **fields}
    return Reply(status=status, body={"error": error})


def tool_call(name: str, arguments: str = "{}", call_id: str = "call_1") -> Message:
    """Return an assistant message that calls one tool."""
    call = ToolCall(id=call_id, name=name, arguments=arguments)
    return Message.assistant(tool_calls=(call,))
