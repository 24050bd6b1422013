"""An OpenAI-compatible server on this machine that misbehaves on purpose, one kind a request.

What a good answer would be is for its owner to say; the server spoils it as its schedule wants.
`python benchmarks/models/misbehaving_server.py --fault stalled` serves one kind by hand. Not
covered: TLS, the Responses API, and anything but chat completions and the list of models.
"""

import argparse
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "tiny-model"


class Fault(StrEnum):
    """What goes wrong with one answer."""

    NONE = "none"
    FENCED = "code fences and words around the answer"
    THINKING = "<think> before the answer"
    TRUNCATED = "the answer breaks off"
    LENGTH = "finish_reason length"
    NO_CHOICES = "empty choices"
    NULL_CHOICES = "no choices at all"
    EMPTY = "empty content"
    RATE_LIMITED = "429"
    RATE_LIMITED_WITH_TIME = "429 with Retry-After"
    SERVER_ERROR = "500"
    BAD_GATEWAY = "502 with a page"
    STALLED = "a stream that stops without ending"
    SLOW = "a stream of single characters"
    RESET = "connection reset in mid-stream"
    CLOSED = "connection closed before any answer"
    TOOL_CALL_TEXT = "a tool call written as text"
    TOOL_CALL = "a tool call that nobody asked for"
    NONSENSE = "plain nonsense"
    INVALID_JSON = "a body that is no JSON"
    NO_USAGE = "no token counts"
    NO_FINISH = "a stream without an end mark"


# Those that leave a request without an answer that could be used.
UNANSWERED = frozenset({
    Fault.NO_CHOICES, Fault.NULL_CHOICES, Fault.EMPTY, Fault.RATE_LIMITED,
    Fault.RATE_LIMITED_WITH_TIME, Fault.SERVER_ERROR, Fault.BAD_GATEWAY, Fault.STALLED,
    Fault.RESET, Fault.CLOSED, Fault.NONSENSE, Fault.INVALID_JSON,
})  # fmt: skip
NONSENSE = "Kernels! The moon is a fine place; 42 of them {sing} [loudly] ```and"

# The answer to a request: its messages in, the text out.
Answer = Callable[[list[dict[str, str]]], str]


class MisbehavingServer:
    """Serves on a free port of the loopback until closed.

    Args:
        answer: The good answer to a request.
        faults: What goes wrong, request after request; nothing once they are used up.
        stall_s: How long a stalled stream keeps its connection.
        pause_s: Between the characters of a slow stream.
        wait_s: What a 429 with Retry-After asks for.
    """

    def __init__(
        self,
        answer: Answer,
        faults: Iterable[Fault] = (),
        *,
        stall_s: float = 30.0,
        pause_s: float = 0.002,
        wait_s: float = 0.05,
    ) -> None:
        self.answer = answer
        self.stall_s = stall_s
        self.pause_s = pause_s
        self.wait_s = wait_s
        self.requests: list[dict[str, object]] = []
        self.headers: list[dict[str, str]] = []
        self.served: list[Fault] = []
        self.closing = threading.Event()
        self._faults: Iterator[Fault] = itertools.chain(faults, itertools.repeat(Fault.NONE))
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        """What a client is given."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def next(self, request: dict[str, object], headers: dict[str, str]) -> Fault:
        """What goes wrong with this request."""
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            self.served.append(next(self._faults))
            return self.served[-1]

    def close(self) -> None:
        """End it; streams that stall end too."""
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> "MisbehavingServer":
        """Serve for as long as the block lasts."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    owner: MisbehavingServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what half of the faults are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def do_GET(self) -> None:
        """The list of models."""
        self._json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        """A chat completion, spoilt."""
        owner = self.server.owner
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = owner.next(request, dict(self.headers.items()))
        if self._refused(fault):
            return
        text = owner.answer(request["messages"])
        if request.get("stream"):
            self._stream(fault, text)
        else:
            self._whole(fault, text)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: tests read what is printed."""

    def _refused(self, fault: Fault) -> bool:
        """The faults that come before any answer."""
        error = {"error": {"message": f"on purpose: {fault}", "type": "on_purpose"}}
        if fault is Fault.RATE_LIMITED:
            self._json(429, error)
        elif fault is Fault.RATE_LIMITED_WITH_TIME:
            self._json(429, error, {"Retry-After": str(self.server.owner.wait_s)})
        elif fault is Fault.SERVER_ERROR:
            self._json(500, error)
        elif fault is Fault.BAD_GATEWAY:
            self._send(502, b"<html><h1>Bad gateway</h1></html>", "text/html")
        elif fault is Fault.CLOSED:
            self.close_connection = True
        elif fault is Fault.INVALID_JSON:
            self._send(200, b'{"id": "x", "choices": [{"mess', "application/json")
        elif fault is Fault.NULL_CHOICES:
            self._send(200, b'{"id": "x", "object": "chat.completion"}', "application/json")
        else:
            return False
        return True

    def _whole(self, fault: Fault, text: str) -> None:
        content, finish = _spoilt(fault, text)
        message: dict[str, object] = {"role": "assistant", "content": content}
        if fault is Fault.TOOL_CALL:
            message = {"role": "assistant", "content": None, "tool_calls": [_call(text)]}
        if fault in (Fault.STALLED, Fault.RESET):
            self._head(200, "application/json", length=10_000)
            self.wfile.write(b'{"id": "x", ')
            self._break(fault)
            return
        choices = [{"index": 0, "message": message, "finish_reason": finish}]
        body: dict[str, object] = {"id": "x", "object": "chat.completion", "model": MODEL}
        body["choices"] = [] if fault is Fault.NO_CHOICES else choices
        if fault is not Fault.NO_USAGE:
            body["usage"] = _usage(content)
        self._json(200, body)

    def _stream(self, fault: Fault, text: str) -> None:
        content, finish = _spoilt(fault, text)
        self._head(200, "text/event-stream")
        broken = fault in (Fault.STALLED, Fault.RESET, Fault.NO_FINISH)
        if fault is Fault.TOOL_CALL:
            self._event({"tool_calls": [{"index": 0, **_call(text)}]})
        elif fault is not Fault.NO_CHOICES:
            width = 1 if fault is Fault.SLOW else 40
            pieces = [content[n : n + width] for n in range(0, len(content), width)]
            for piece in pieces[: len(pieces) // 2] if broken else pieces:
                self._event({"role": "assistant", "content": piece})
                if fault is Fault.SLOW:
                    time.sleep(self.server.owner.pause_s)
        if broken:
            self._break(fault)
            return
        if fault is not Fault.NO_CHOICES:
            self._event({}, finish)
        if fault is not Fault.NO_USAGE:
            self._chunk({"choices": [], "usage": _usage(content)})
        self._write(b"data: [DONE]\n\n")

    def _event(self, delta: dict[str, object], finish: str | None = None) -> None:
        self._chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _chunk(self, body: dict[str, object]) -> None:
        known = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
        self._write(f"data: {json.dumps({**known, **body})}\n\n".encode())

    def _write(self, text: bytes) -> None:
        self.wfile.write(text)
        self.wfile.flush()

    def _break(self, fault: Fault) -> None:
        """Stop in the middle: silently for a while, rudely, or as if that were all."""
        self.close_connection = True  # else it waits here for the next request
        self.wfile.flush()
        if fault is Fault.STALLED:
            self.server.owner.closing.wait(self.server.owner.stall_s)
        if fault is Fault.RESET:  # a close that lingers for no time is a reset
            time.sleep(0.05)  # else what was sent may be lost too
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()

    def _json(
        self, status: int, body: Mapping[str, object], headers: dict[str, str] | None = None
    ) -> None:
        self._send(status, json.dumps(body).encode(), "application/json", headers)

    def _send(
        self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        self._head(status, kind, length=len(body), headers=headers)
        self.wfile.write(body)

    def _head(
        self, status: int, kind: str, length: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if length is None:  # a stream ends with its connection
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()


def _spoilt(fault: Fault, text: str) -> tuple[str, str]:
    """What is said instead of the good answer, and why it stopped."""
    said = {
        Fault.FENCED: f"Sure, here it is:\n\n```json\n{text}\n```\n\nI hope that helps!",
        Fault.THINKING: f"<think>Let me see, {{maybe}} ```not this```.</think>\n\n{text}",
        Fault.TRUNCATED: text[: max(1, 3 * len(text) // 4)],
        Fault.LENGTH: text[: max(1, len(text) // 2)],
        Fault.EMPTY: "",
        Fault.NONSENSE: NONSENSE,
        Fault.TOOL_CALL_TEXT: f"<tool_call>\n{json.dumps(_named(text))}\n</tool_call>",
    }
    return said.get(fault, text), "length" if fault is Fault.LENGTH else "stop"


def _named(text: str) -> dict[str, object]:
    return {"name": "answer", "arguments": text}


def _call(text: str) -> dict[str, object]:
    return {"id": "call_1", "type": "function", "function": _named(text)}


def _usage(content: str) -> dict[str, int]:
    said = len(content) // 4
    return {"prompt_tokens": 100, "completion_tokens": said, "total_tokens": 100 + said}


def main() -> None:
    """Serve one kind of fault until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", default="none", choices=[f.name.lower() for f in Fault])
    chosen = Fault[parser.parse_args().fault.upper()]
    with MisbehavingServer(lambda messages: '{"text": "hello"}', itertools.repeat(chosen)) as it:
        print(it.base_url)
        threading.Event().wait()


if __name__ == "__main__":
    main()
