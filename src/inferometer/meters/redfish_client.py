"""One Redfish service over one kept connection: requests, the session's life, and what may pass.

A BMC has few sessions and loses its administrators when they leak, so a session is closed on every way out.
Names and passwords stay in `Login`, whose text form does not show them; the token stays in the client.

Source: DMTF DSP0266 (Redfish Specification): sessions, ``X-Auth-Token``, ``@odata.id``, ``Retry-After``.
"""

from __future__ import annotations

import json
import logging
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import responses
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import urllib3
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3 import exceptions as trouble

from inferometer.errors import MeterError, brief

__all__ = [
    "Auth",
    "Client",
    "Document",
    "Endpoint",
    "Login",
    "Passing",
    "Refused",
    "Tls",
    "look",
    "path_of",
    "waiting_time",
]

Document = dict[str, Any]
"""A resource as the service gives it."""

Auth = Literal["session", "basic", "none"]
Tls = Literal["verified", "fingerprint", "not verified", "none (http)"]

_log = logging.getLogger(__name__)

_ROOT = "/redfish/v1/"
_SESSIONS = "/redfish/v1/SessionService/Sessions"
# A resource is some kB, an expanded collection of sensors some hundred kB: more is no Redfish service.
_LARGEST_BYTES = 16 << 20
_LONGEST_WAIT_S = 5.0
# A log-in without an answer may have made a session that nobody can close, so the next one waits.
_AFTER_LOST_LOGIN_S = 30.0
_REDIRECTS = 3
_FAREWELLS = 3


class Passing(MeterError):
    """The service is busy, stalls or dropped the connection: it may answer next time."""


class Refused(MeterError):
    """The service answers, but does not give this resource (403, 404, 500, ...)."""


@dataclass(frozen=True)
class Endpoint:
    """Where a service is, and how it is known to be the right one.

    Attributes:
        scheme: ``https`` or ``http``.
        host: Name or address, IPv6 without brackets.
        port: TCP port.
        tls: What TLS vouches for.
        ca_file: Certificates to trust in place of the system's.
        fingerprint: SHA-256 of the service's certificate, 64 hex digits.
        timeout_s: Longest wait for a connection, and for an answer.
    """

    scheme: Literal["http", "https"]
    host: str
    port: int
    tls: Tls
    ca_file: str | None = None
    fingerprint: str | None = None
    timeout_s: float = 5.0

    def __str__(self) -> str:
        """The address as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return f"{self.scheme}://{host}" + ("" if self.port == usual else f":{self.port}")


@dataclass(frozen=True, repr=False)
class Login:
    """A user and a password; no text form shows either.

    ``told_by`` says where they come from, for messages.
    """

    user: str
    password: str
    told_by: str

    def __repr__(self) -> str:
        """Where they come from, only."""
        return f"Login(from {self.told_by})"


@dataclass(frozen=True, repr=False)
class _Reply:
    status: int
    headers: urllib3.HTTPHeaderDict
    body: bytes


class Client:
    """GETs from one service, logged in as asked. A context manager; used by one thread."""

    def __init__(
        self, endpoint: Endpoint, auth: Auth, login: Login | None, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """Nothing is sent yet.

        Args:
            endpoint: Where.
            auth: ``session`` logs in once and out at the end, ``basic`` sends user and password each time.
            login: None with ``auth`` ``none``.
            pause: Waits for that many seconds.

        Raises:
            MeterError: The file of certificates cannot be used.
        """
        self._endpoint = endpoint
        self._auth = auth
        self._login = login
        self._pause = pause
        self._pool: HTTPConnectionPool | None = None
        self._tls = _tls_context(endpoint) if endpoint.scheme == "https" else None
        self._token: str | None = None
        self._session = ""
        self._root: Document | None = None
        self._quiet_until = 0.0
        self._locked_out = False

    def __repr__(self) -> str:
        """The address only."""
        return f"Client({self._endpoint})"

    def root(self) -> Document:
        """The service's root, which needs no log-in; asked for once.

        Raises:
            MeterError: As for `get`.
        """
        if self._root is None:
            self._root = self._document(self._send("GET", _ROOT, self._basic()), _ROOT)
        return self._root

    def get(self, path: str, tries: int = 1) -> Document:
        """One resource.

        Args:
            path: From the host's root on, as links give it.
            tries: With more than one, wait and ask again where the trouble may pass.

        Raises:
            Refused: The service has no such resource, or does not give it.
            Passing: It is busy or stalls; it is not asked again before the time it told.
            MeterError: Anything else: no connection, no trust, no log-in, no JSON object.
        """
        for _ in range(tries - 1):
            try:
                return self._get(path)
            except Passing:
                self._pause(max(0.0, self._quiet_until - time.monotonic()))
        return self._get(path)

    def close(self) -> None:
        """End the session at the service and drop the connection. Never raises for what the service does."""
        try:
            self._sign_out()
        finally:
            self._drop()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _get(self, path: str) -> Document:
        left_s = self._quiet_until - time.monotonic()
        if left_s > 0:
            raise Passing(
                f"{self._endpoint} is left alone for another {left_s:.1f} s after an earlier failure"
            )
        if self._auth != "session":
            return self._document(self._send("GET", path, self._basic()), path)
        if self._token is None:
            self._sign_in()
        reply = self._send("GET", path, self._bearer())
        if reply.status == HTTPStatus.UNAUTHORIZED:
            # Usually the session ran out. Should it live on after all, it is closed by its own token.
            self._sign_out()
            self._sign_in()
            reply = self._send("GET", path, self._bearer())
            if reply.status == HTTPStatus.UNAUTHORIZED:
                self._sign_out()
        return self._document(reply, path)

    def _basic(self) -> dict[str, str]:
        if self._auth == "none" or self._login is None:
            return {}
        # RFC 7617, in UTF-8, since urllib3's own takes Latin-1 only.
        plain = f"{self._login.user}:{self._login.password}".encode()
        return {"Authorization": "Basic " + b64encode(plain).decode("ascii")}

    def _bearer(self) -> dict[str, str]:
        return {"X-Auth-Token": self._token} if self._token else {}

    def _sign_in(self) -> None:
        if self._locked_out or self._login is None:
            # Asking again with a password that was refused locks accounts.
            raise MeterError(self._no_entry())
        body = json.dumps({"UserName": self._login.user, "Password": self._login.password}).encode()
        path = self._sessions_path()
        try:
            reply = self._send("POST", path, {"Content-Type": "application/json"}, body)
        except Passing as error:
            self._quiet(_AFTER_LOST_LOGIN_S)
            raise MeterError(f"{self._endpoint} did not answer the log-in: {error}") from error
        if reply.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            self._locked_out = True
            raise MeterError(self._no_entry())
        made = _object(reply.body) or {}
        self._check(reply, path)
        token, session = reply.headers.get("X-Auth-Token"), _session_path(reply, made, path)
        if not token or not session:
            raise MeterError(
                f"{self._endpoint} opens a session without a token or an address; use auth: basic with it"
            )
        self._token, self._session = token, session

    def _no_entry(self) -> str:
        source = self._login.told_by if self._login else "nowhere"
        return f"{self._endpoint} refuses the user or the password; check those from {source}"

    def _sessions_path(self) -> str:
        try:
            return path_of(look(self.root(), "Links", "Sessions")) or _SESSIONS
        except Passing:
            raise
        except MeterError:
            # Some services want a log-in even for the root.
            return _SESSIONS

    def _sign_out(self) -> None:
        if self._token is None:
            return
        headers, self._token = self._bearer(), None
        for attempt in range(_FAREWELLS):
            try:
                reply = self._send("DELETE", self._session, headers)
            except MeterError as error:
                reason: object = error
                continue
            if reply.status not in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
                # 401 and 404: it had run out already.
                return
            reason = f"it answers {reply.status}"
            if attempt + 1 < _FAREWELLS:
                self._pause(waiting_time(reply.headers.get("Retry-After")))
        _log.warning("the session at %s may stay open until it runs out: %s", self._endpoint, reason)

    def _document(self, reply: _Reply, path: str) -> Document:
        self._check(reply, path)
        document = _object(reply.body)
        if document is None:
            raise Refused(f"{self._endpoint}{path} does not answer in JSON: is it a Redfish service?")
        return document

    def _check(self, reply: _Reply, path: str) -> None:
        where = f"{self._endpoint}{path}"
        if reply.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
            wait_s = waiting_time(reply.headers.get("Retry-After"))
            self._quiet(wait_s)
            raise Passing(
                f"{where} is busy (HTTP {reply.status}); asked again in {wait_s:g} s at the earliest"
            )
        if reply.status == HTTPStatus.UNAUTHORIZED:
            raise MeterError(
                f"{where} wants a log-in that is valid (HTTP 401); check auth and the user's role"
            )
        if not 200 <= reply.status < 300:
            raise Refused(f"{where} is not given: HTTP {reply.status} {responses.get(reply.status, '')}")

    def _quiet(self, wait_s: float) -> None:
        self._quiet_until = time.monotonic() + wait_s

    def _send(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> _Reply:
        """One request; redirects are followed within the host only, by GET only."""
        headers = {"Accept": "application/json", "OData-Version": "4.0", **headers}
        reply = self._exchange_or_map(method, path, headers, body)
        for _ in range(_REDIRECTS):
            if method != "GET" or reply.status not in (301, 302, 303, 307, 308):
                return reply
            target = self._here(reply.headers.get("Location", ""))
            if target is None:
                raise Refused(f"{self._endpoint}{path} sends to another host, which is not followed")
            reply = self._exchange_or_map(method, target, headers, body)
        return reply

    def _here(self, location: str) -> str | None:
        if location.startswith("/") and not location.startswith("//"):
            return location
        prefix = f"{self._endpoint}/"
        return location[len(prefix) - 1 :] if location.startswith(prefix) else None

    def _exchange_or_map(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, again: bool = True
    ) -> _Reply:
        """Services close idle connections, which shows at the next request: that one is repeated, once."""
        try:
            return self._exchange(method, path, headers, body)
        except (trouble.HTTPError, OSError) as error:
            self._drop()
            if again and method != "POST" and isinstance(error, trouble.ProtocolError):
                return self._exchange_or_map(method, path, headers, body, again=False)
            raise self._mapped(error) from error

    def _exchange(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> _Reply:
        if self._pool is None:
            self._pool = self._new_pool()
        deadline = time.monotonic() + self._endpoint.timeout_s
        response = self._pool.request(
            method, path, body=body, headers=headers, retries=False, redirect=False, preload_content=False
        )
        parts: list[bytes] = []
        # The socket's timeout restarts with each byte: a trickle is a stall too. The oldest urllib3 cannot
        # return what has come so far, and sees a trickle late.
        read: Callable[[int], bytes] = getattr(response, "read1", response.read)
        while part := read(1 << 16):
            parts.append(part)
            if time.monotonic() > deadline or sum(map(len, parts)) > _LARGEST_BYTES:
                raise trouble.TimeoutError("the answer does not end")
        response.release_conn()
        return _Reply(response.status, response.headers, b"".join(parts))

    def _new_pool(self) -> HTTPConnectionPool:
        here = self._endpoint
        timeout = Timeout(connect=here.timeout_s, read=here.timeout_s)
        if self._tls is None:
            return HTTPConnectionPool(here.host, here.port, timeout=timeout, maxsize=1)
        return HTTPSConnectionPool(
            here.host,
            here.port,
            timeout=timeout,
            maxsize=1,
            ssl_context=self._tls,
            assert_fingerprint=here.fingerprint,
            assert_hostname=None if here.tls == "verified" else False,
        )

    def _drop(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _mapped(self, error: Exception) -> MeterError:
        here = self._endpoint
        if isinstance(error, trouble.SSLError | ssl.SSLError):
            return MeterError(
                f"{here} is not trusted: {brief(error)}; give its ca_file, or the fingerprint (SHA-256) of "
                "its certificate"
            )
        if isinstance(error, trouble.NewConnectionError):
            return MeterError(f"{here} cannot be reached: {brief(error)}; check the url and the network")
        if isinstance(error, trouble.TimeoutError | TimeoutError):
            return Passing(
                f"{here} does not answer within {here.timeout_s:g} s; timeout_s sets how long to wait"
            )
        return Passing(f"{here} dropped the connection: {brief(error)}")


def waiting_time(retry_after: str | None) -> float:
    """Seconds to wait by a ``Retry-After`` header: 1 where it tells none, 5 at most."""
    text = (retry_after or "").strip()
    return min(float(text), _LONGEST_WAIT_S) if text.isascii() and text.isdigit() else 1.0


def look(document: object, *keys: str | int) -> Any:
    """What is at a place within a resource; None where the way there ends."""
    for key in keys:
        if isinstance(key, int):
            document = document[key] if isinstance(document, list) and key < len(document) else None
        else:
            document = document.get(key) if isinstance(document, dict) else None
    return document


def path_of(link: object) -> str | None:
    """The path of a link (``{"@odata.id": ...}``) or of a plain one; None unless it stays within the host."""
    target = link.get("@odata.id") if isinstance(link, dict) else link
    if not isinstance(target, str) or not target.startswith("/") or target.startswith("//") or "#" in target:
        return None
    return target


def _session_path(reply: _Reply, made: Document, collection: str) -> str | None:
    """Of a new session; only the path counts, since a BMC behind a router tells an address of its own."""
    location = urlsplit(reply.headers.get("Location", "")).path
    by_id = f"{collection.rstrip('/')}/{made['Id']}" if isinstance(made.get("Id"), str) else None
    return path_of(location) or path_of(made) or by_id


def _tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
    except (OSError, ValueError) as error:
        raise MeterError(f"the certificates in {endpoint.ca_file} cannot be read: {brief(error)}") from error
    if endpoint.tls != "verified":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if endpoint.tls == "not verified":
        # Asked for and recorded, so that one warning for each request tells nothing new.
        urllib3.disable_warnings(trouble.InsecureRequestWarning)
    return context


def _object(body: bytes) -> Document | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
