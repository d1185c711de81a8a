"""A server's own power sensors, through the Redfish service of its BMC (iDRAC and others).

A chassis may tell its power in several places that cover different things, so each has a boundary of its
own. The sum of the power supplies' inputs comes first: it is what the server draws. Others follow in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

from inferometer.contracts import Channel, MeterSession, MeterStatus
from inferometer.errors import ConfigError, MeterError
from inferometer.meters.redfish_client import Client
from inferometer.meters.redfish_options import Settings, login_of, settings_of
from inferometer.meters.redfish_sources import Source, must_be_off, sources_of, watts_of

__all__ = ["RedfishMeter"]

_NO_URL = "no url is given"
_HOW = (
    "give url: https://ADDRESS of the BMC, with its user and password in INFEROMETER_REDFISH_USER and "
    "INFEROMETER_REDFISH_PASSWORD"
)
_TRIES = 3


class RedfishMeter:
    """Power of a server as its BMC tells it, over the network.

    Options, all but the first with a default:
        url: https://HOST or https://HOST:PORT; http:// where there is no TLS.
        chassis: Its id; absent: every server that tells power.
        sources: ``preferred`` (one boundary for each chassis) or ``all``.
        auth: ``session``, ``basic`` or ``none``.
        user_env, password_env: Names of environment variables.
        credentials_file: In their place; two lines, or user:password; readable by its owner alone.
        ca_file, fingerprint, insecure: One of them; trust these certificates, the one with this SHA-256, any.
        timeout_s: Of one request, 5.
        period_s: From one reading to the next, 1.
    """

    name = "redfish"

    def status(self, options: Mapping[str, Any]) -> Sequence[MeterStatus]:
        """What the service at ``url`` tells, or why it cannot be read; see `Meter`."""
        settings = settings_of(options)
        if settings.endpoint is None:
            return (MeterStatus("redfish", reason=_NO_URL, remedy=_HOW),)
        subject = str(settings.endpoint)
        try:
            with self._open(settings) as session:
                reads = tuple(f"{channel.boundary}: {channel.part}" for channel in session.channels)
        except MeterError as error:
            reason, _, remedy = str(error).partition("; ")
            return (MeterStatus(subject, reason=reason, remedy=remedy or None),)
        return (MeterStatus(subject, reads),)

    def open(self, options: Mapping[str, Any]) -> MeterSession:
        """Log in, walk the chassis and settle what to read; see `Meter`."""
        return self._open(settings_of(options))

    def _open(self, settings: Settings) -> MeterSession:
        if settings.endpoint is None:
            raise ConfigError(f"redfish: {_NO_URL}; {_HOW}")
        with ExitStack() as stack:
            login = None if settings.auth == "none" else login_of(settings)
            client = stack.enter_context(Client(settings.endpoint, settings.auth, login))
            session = _RedfishSession(client, settings)
            stack.pop_all()
            return session


class _RedfishSession(MeterSession):
    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        found, passed_over = sources_of(cache(partial(client.get, tries=_TRIES)), client.root(), settings)
        if not found:
            reasons = ", ".join(f"{where}: {why}" for where, why in passed_over.items())
            raise MeterError(
                f"{settings.endpoint} tells no power that can be used ({reasons or 'no chassis'})"
            )
        self._sources = found
        self._last: dict[int, float] = {}
        self.channels = tuple(_channel(source, settings.period_s) for source in found)
        root = client.root()
        self.facts = {
            "url": str(settings.endpoint),
            "tls": settings.endpoint.tls if settings.endpoint else None,
            "auth": settings.auth,
            **{
                key: root[key]
                for key in ("Vendor", "Product", "RedfishVersion")
                if isinstance(root.get(key), str)
            },
            "passed_over": passed_over,
        }

    def read(self, place: int) -> float:
        source = self._sources[place]
        self._last.pop(place, None)
        watts = watts_of(self._client.get, source)
        if watts == 0 and not self._another_carries(place):
            must_be_off(self._client.get, source)
        self._last[place] = watts
        return watts

    def close(self) -> None:
        self._client.close()

    def _another_carries(self, place: int) -> bool:
        """Whether 0 W is true since another power supply carries the load."""
        source = self._sources[place]
        for other, peer in enumerate(self._sources):
            if other != place and (peer.boundary, peer.system) == (source.boundary, source.system):
                if other not in self._last:
                    self._last[other] = watts_of(self._client.get, peer)
                if self._last[other] > 0:
                    return True
        return False


def _channel(source: Source, period_s: float) -> Channel:
    return Channel(
        name=source.name,
        quantity="power",
        boundary=source.boundary,
        part=source.part,
        semantics=source.semantics,
        period_s=period_s,
        primary=True,
        gain_error=source.gain_error,
    )
