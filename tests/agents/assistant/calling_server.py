"""An OpenAI-compatible server on the loopback that calls tools, or refuses to be offered any."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class CallingServer:
    """Answers each request with the next of `replies`: a text, or calls as (name, arguments).

    Args:
        replies: What is said, in turn; the last one again and again.
        refusal: Where given, a request with tools is refused in these words.
    """

    def __init__(self, *replies: object, refusal: str = "") -> None:
        self.replies = list(replies)
        self.refusal = refusal
        self.requests: list[dict[str, object]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Quiet."""

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.requests.append(request)
                if owner.refusal and "tools" in request:
                    body = json.dumps({"error": {"message": owner.refusal}}).encode()
                    self.send_response(400)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                    return
                said = owner.replies.pop(0) if len(owner.replies) > 1 else owner.replies[0]
                self._stream(said) if request.get("stream") else self._whole(said)

            def _stream(self, said: object) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for delta in _deltas(said):
                    self._send({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
                self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                self.wfile.write(b"data: [DONE]\n\n")

            def _send(self, body: dict[str, object]) -> None:
                known = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
                self.wfile.write(f"data: {json.dumps({**known, **body})}\n\n".encode())
                self.wfile.flush()

            def _whole(self, said: object) -> None:
                message: dict[str, object] = {"role": "assistant", "content": said}
                if not isinstance(said, str):
                    message = {"role": "assistant", "content": None, "tool_calls": _calls(said)}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                known = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
                body = json.dumps({**known, "choices": [choice]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler


def _calls(said: object) -> list[dict[str, object]]:
    return [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": text}}
        for n, (name, text) in enumerate(said)
    ]


def _deltas(said: object) -> list[dict[str, object]]:
    """Text in small pieces; a call's name first, then its arguments in two halves."""
    if isinstance(said, str):
        return [{"content": said[n : n + 7]} for n in range(0, len(said), 7)]
    found: list[dict[str, object]] = []
    for index, call in enumerate(_calls(said)):
        function = call["function"]
        text = function["arguments"]
        half = len(text) // 2
        first = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        found.append({"tool_calls": [first]})
        for part in (text[:half], text[half:]):
            found.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    return found
