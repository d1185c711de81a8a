"""Options of the Redfish meter, checked, and the login that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from inferometer.errors import ConfigError, MeterError, nearest
from inferometer.meters.redfish_client import Auth, Endpoint, Login, Tls

__all__ = ["Settings", "login_of", "settings_of"]

Which = Literal["preferred", "all"]


@dataclass(frozen=True)
class Settings:
    """The options as one checked whole; ``endpoint`` is None where no url is given."""

    endpoint: Endpoint | None
    chassis: str | None
    sources: Which
    auth: Auth
    user_env: str
    password_env: str
    credentials_file: str | None
    period_s: float


_DEFAULTS: Mapping[str, Any] = {
    "url": None,
    "chassis": None,
    "sources": "preferred",
    "auth": "session",
    "user_env": "INFEROMETER_REDFISH_USER",
    "password_env": "INFEROMETER_REDFISH_PASSWORD",
    "credentials_file": None,
    "ca_file": None,
    "fingerprint": None,
    "insecure": False,
    "timeout_s": 5.0,
    "period_s": 1.0,
}


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Check options; defaults stand in for those that are absent.

    Raises:
        ConfigError: One is not known, or does not take its value.
    """
    given = dict(_DEFAULTS)
    for key, value in options.items():
        if key == "devices":
            continue
        if key not in _DEFAULTS:
            raise ConfigError(f"redfish: unknown option {key!r}{nearest(key, _DEFAULTS)}")
        if value is not None:
            given[key] = _checked(key, value)
    for key, known in (("sources", get_args(Which)), ("auth", get_args(Auth))):
        if given[key] not in known:
            raise ConfigError(f"redfish: {key} is one of {', '.join(known)}, not {given[key]!r}")
    endpoint = None if given["url"] is None else _endpoint(given)
    rest = ("chassis", "sources", "auth", "user_env", "password_env", "credentials_file", "period_s")
    return Settings(endpoint, **{key: given[key] for key in rest})


def _checked(key: str, value: Any) -> Any:
    usual = _DEFAULTS[key]
    if isinstance(usual, bool):
        if not isinstance(value, bool):
            raise ConfigError(f"redfish: {key} is true or false, not {value!r}")
    elif isinstance(usual, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
            raise ConfigError(f"redfish: {key} is a number of seconds above 0, not {value!r}")
        return float(value)
    elif not isinstance(value, str) or not value:
        raise ConfigError(f"redfish: {key} is text")
    return value


def _endpoint(given: Mapping[str, Any]) -> Endpoint:
    try:
        parts = urlsplit(given["url"])
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        # The text stays out of the message, since it may hold a password.
        scheme, host, port, parts = "", None, None, urlsplit("")
    if "@" in given["url"]:
        raise ConfigError(
            "redfish: url holds a user or password; give them in the environment or credentials_file"
        )
    if scheme not in ("http", "https") or not host or parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError(
            "redfish: url is https://HOST or https://HOST:PORT (or http://), with nothing behind it"
        )
    trust = [key for key in ("ca_file", "fingerprint", "insecure") if given[key]]
    if len(trust) > 1 or (trust and scheme == "http"):
        raise ConfigError(f"redfish: {' and '.join(trust)} do not go together with each other or with http")
    fingerprint = given["fingerprint"] and given["fingerprint"].replace(":", "").lower()
    if fingerprint and not re.fullmatch(r"[0-9a-f]{64}", fingerprint):
        raise ConfigError("redfish: fingerprint is the SHA-256 of the certificate, 64 hex digits")
    vouches: Mapping[str, Tls] = {"fingerprint": "fingerprint", "insecure": "not verified"}
    tls: Tls = "none (http)" if scheme == "http" else vouches.get("".join(trust), "verified")
    return Endpoint(
        "https" if scheme == "https" else "http",
        host,
        port or (443 if scheme == "https" else 80),
        tls,
        ca_file=given["ca_file"],
        fingerprint=fingerprint,
        timeout_s=given["timeout_s"],
    )


def login_of(settings: Settings) -> Login:
    """User and password from where the settings say they are.

    Raises:
        MeterError: They are not there, or others can read the file.
    """
    if settings.credentials_file is not None:
        return _login_from(Path(settings.credentials_file))
    names = (settings.user_env, settings.password_env)
    user, password = (os.environ.get(name) for name in names)
    if not user or not password:
        missing = " and ".join(name for name in names if not os.environ.get(name))
        raise MeterError(
            f"no user and password for the BMC: {missing} not set; set them, or give credentials_file"
        )
    return Login(user, password, f"${names[0]} and ${names[1]}")


def _login_from(path: Path) -> Login:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise MeterError(f"{path} can be read by others; chmod 600 {path}")
            # Bytes that are no text show as U+FFFD: the codec's own error would quote the file.
            lines = file.read(4096).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise MeterError(
            f"{path} cannot be read: {error.strerror}; it holds the BMC's user and password"
        ) from error
    user, password = lines[:2] if len(lines) > 1 else (*"".join(lines).partition(":")[::2],)
    if len(lines) > 2 or not user or not password or "\ufffd" in user + password:
        raise MeterError(f"{path} does not hold user:password, or the two on a line each; mend it")
    return Login(user, password, str(path))
