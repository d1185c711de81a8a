"""A Redfish service with sessions, on 127.0.0.1: what a BMC does, and the trouble that it makes."""

from __future__ import annotations

import base64
import json
import threading
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

__all__ = ["PASSWORD", "USER", "Answer", "RedfishServer"]

USER, PASSWORD = "operator-Zq7", "s3cr3t-Kx9-würze"
SESSIONS = "/redfish/v1/SessionService/Sessions"


@dataclass
class Answer:
    """One answer that stands in for the usual one; ``stall`` holds it back until the server ends.

    ``drop`` closes the connection in its place; ``trickle`` sends the body byte by byte, 0.05 s apart.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    stall: bool = False
    drop: bool = False
    trickle: bool = False


class RedfishServer:
    """Serves ``tree`` (path to resource) to those with a session; a context manager.

    ``instead`` holds answers to come, by method and path: ``server.instead["GET /redfish/v1/Chassis"]``.
    """

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree = tree
        self.instead: dict[str, deque[Answer]] = defaultdict(deque)
        self.sessions: dict[str, str] = {}
        self.log: list[str] = []
        self.connections = 0
        self.made = 0
        self.password = PASSWORD
        self.location = "{path}"
        self._ended = threading.Event()
        owner = self

        class Handler(_Handler):
            server_of = owner

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def count(self, request: str) -> int:
        return self.log.count(request)

    def expire(self) -> None:
        """Forget all sessions."""
        self.sessions.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._http.shutdown()
        self._thread.join(10)
        self._http.server_close()

    def hold(self, seconds: float = 20) -> None:
        self._ended.wait(seconds)

    def log_in(self, asked: dict[str, str]) -> Answer:
        if (asked["UserName"], asked["Password"]) != (USER, self.password):
            # Some services quote the request: a message that quoted the answer would tell the password.
            return Answer(401, body=json.dumps({"error": asked}).encode())
        self.made += 1
        token, path = f"token-{self.made}-8f1c", f"{SESSIONS}/{self.made}"
        self.sessions[token] = path
        made = {"@odata.id": path, "Id": str(self.made)}
        location = self.location.format(path=path)
        return Answer(201, {"X-Auth-Token": token, "Location": location}, json.dumps(made).encode())


class _Handler(BaseHTTPRequestHandler):
    server_of: RedfishServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        self.server_of.connections += 1
        super().setup()

    def log_message(self, *_: Any) -> None:
        """Silence."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = f"{method} {self.path}"
        self.server_of.log.append(request)
        coming = self.server_of.instead[request]
        answer = coming.popleft() if coming else self._usual(method, body)
        if answer.stall:
            self.server_of.hold()
        if answer.stall or answer.drop:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        pieces = [answer.body[place : place + 1] for place in range(len(answer.body))]
        with suppress(OSError):
            for piece in pieces if answer.trickle else [answer.body]:
                self.wfile.write(piece)
                if answer.trickle:
                    self.server_of.hold(0.05)

    def _usual(self, method: str, body: bytes) -> Answer:
        server, path = self.server_of, self.path.rstrip("/")
        if method == "POST" and path == SESSIONS:
            return server.log_in(json.loads(body))
        if path != "/redfish/v1" and not self._known():
            return Answer(401)
        if method == "DELETE":
            token = self.headers["X-Auth-Token"]
            if server.sessions.get(token) != path:
                return Answer(404)
            del server.sessions[token]
            return Answer(204, body=b"")
        found = server.tree.get(path)
        return Answer(404) if found is None else Answer(body=json.dumps(found).encode())

    def _known(self) -> bool:
        basic = base64.b64encode(f"{USER}:{self.server_of.password}".encode()).decode()
        if self.headers.get("Authorization") == f"Basic {basic}":
            return True
        return self.headers.get("X-Auth-Token") in self.server_of.sessions
