"""A server's input power as its management controller (BMC) tells it: IPMI DCMI, through ``ipmitool``.

Each reading is one run of ``ipmitool``: on this machine through the kernel's driver (``-I open``), or of
another over the network (``-I lanplus``, IPMI 2.0). The password goes by the environment (``-E``), never by
the command line, which every process of the machine can read.

Source: DCMI specification 1.5, 6.6.1 (Get Power Reading); IPMI 2.0, table 5-2 (completion codes).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferometer.contracts import Channel, MeterSession, MeterStatus
from inferometer.errors import ConfigError, MeterError, brief, nearest

__all__ = ["IpmiMeter", "IpmiSession", "PowerReading", "decode_reading", "power_w"]

_BOUNDARY = "server input (DCMI)"
# Source: DCMI 1.5, 6.6.1: group extension DCMI, mode 1 (system power statistics), two reserved bytes.
_REQUEST = ("raw", "0x2c", "0x02", "0xdc", "0x01", "0x00", "0x00")
# Source: the same: group extension; current, minimum, maximum, average W; time stamp; period in ms; state.
_ANSWER = struct.Struct("<B4H2IB")
_DCMI, _ACTIVE, _NO_VALUE = 0xDC, 1 << 6, 0xFFFF
# Where ipmitool looks for the driver; Source: ipmitool 1.8.19, src/plugins/open/open.c.
_NODES = (Path("/dev/ipmi0"), Path("/dev/ipmi/0"), Path("/dev/ipmidev/0"))
_REMOTE_ONLY = ("port", "user_env", "password_env", "credentials_file", "cipher", "privilege")
_KNOWN = ("host", *_REMOTE_ONLY, "timeout_s", "period_s", "devices")
_PRIVILEGES = ("user", "operator", "administrator")

_CODES: Mapping[int, tuple[str, str | None]] = {
    0xC0: ("the BMC is busy", "ask it less often: a longer period_s"),
    0xC1: ("the BMC does not support DCMI power readings (invalid command)", "try its Redfish service"),
    0xC3: ("the BMC took too long to find its answer", "ask it less often: a longer period_s"),
    0xD4: ("the BMC wants more privilege for it", "set the option privilege to operator or administrator"),
    0xD5: ("the BMC has no power reading in its present state", None),
}
# What ipmitool -v says, in its words, when no session comes about; what that means, and what to do.
_SILENT = "the BMC did not answer the request in time"
_ACCOUNT = "check {account}"
_NETWORK = "check the options host and port, and that the BMC has IPMI over LAN enabled"
_RIGHTS = "give the user more rights, or set the option privilege to less (user, operator, administrator)"
_SUITES = "set the option cipher to one that the BMC has, such as 3 or 17"
_SIGNS: Sequence[tuple[str, str, str]] = (
    ("Address lookup for .* failed", "the name of the host is not known", "check the option host"),
    ("Could not open socket", "the host cannot be reached", "check the option host and the network"),
    ("Could not open device", "the kernel's IPMI driver does not open", "see the kernel's log for ipmi_si"),
    ("RAKP 2 HMAC is invalid", "the BMC does not accept the password", _ACCOUNT),
    ("unauthorized name", "the BMC does not know the user", _ACCOUNT),
    ("is longer than|is too long", "IPMI takes users of 16 and passwords of 20 bytes at most", _ACCOUNT),
    ("no response from RAKP 1", "the BMC answers, but not to this user, whom it may not know", _ACCOUNT),
    ("(invalid|unauthorized) role|Set Session Privilege", "the BMC refuses the user this privilege", _RIGHTS),
    ("is not what we requested|cipher suite ID|no matching", "the BMC has no such cipher suite", _SUITES),
    ("Get Auth Capabilities error", "nothing answers at UDP port {port}", _NETWORK),
    (r"Unable to send RAW command \([^)]*cmd=0x2\)", _SILENT, "raise timeout_s"),
)


@dataclass(frozen=True)
class PowerReading:
    """The answer to Get Power Reading.

    Power in W: now, and the least, most and mean over the last ``period_s``; ``timestamp_s`` is the BMC's own
    clock, in seconds since 1970 where it is set; ``active`` says whether the BMC is measuring at all.
    """

    current_w: int
    minimum_w: int
    maximum_w: int
    average_w: int
    timestamp_s: int
    period_s: float
    active: bool


class _Refused(MeterError):
    """No reading: the reason, and what to do about it where that is known."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason, remedy)
        self.reason, self.remedy = reason, remedy

    def __str__(self) -> str:
        return f"ipmi: {self.reason}" + (f": {self.remedy}" if self.remedy else "")


@dataclass(frozen=True)
class _Settings:
    host: str | None
    port: int
    user_env: str
    password_env: str
    credentials_file: Path | None
    cipher: int | None
    privilege: str
    timeout_s: float
    period_s: float


@dataclass(frozen=True)
class _Link:
    """How one BMC is asked. ``account`` says in words where user and password come from."""

    settings: _Settings
    command: tuple[str, ...]
    account: str = ""
    password: str | None = field(default=None, repr=False)


class IpmiMeter:
    """The power that a server takes in, by IPMI DCMI.

    Options: ``host`` (absent: this machine); for a host, ``port`` (623), ``user_env`` and ``password_env``
    (the environment variables that hold them: INFEROMETER_IPMI_USER and INFEROMETER_IPMI_PASSWORD) or
    ``credentials_file`` (two lines, user and password, readable by its owner alone), ``cipher`` (RMCP+ cipher
    suite, 1 to 17; absent: the best that both ends have) and ``privilege`` (``user``, ``operator`` or
    ``administrator``: what the session asks for, ``user`` by default); ``timeout_s`` (5) for one reading;
    ``period_s`` (5) between readings.
    """

    name = "ipmi"

    def status(self, options: Mapping[str, Any]) -> Sequence[MeterStatus]:
        """Whether the BMC gives a reading, and why not; takes one, so ``timeout_s`` at the most.

        Raises:
            ConfigError: An option is not known, or does not take its value.
        """
        settings = _settings(options)
        subject = f"BMC of {settings.host}" if settings.host else "BMC of this machine"
        try:
            with self.open(options):
                return (MeterStatus(subject, reads=(f"{_BOUNDARY} power",)),)
        except _Refused as error:
            return (MeterStatus(subject, reason=error.reason, remedy=error.remedy),)

    def open(self, options: Mapping[str, Any]) -> IpmiSession:
        """Open it and take one reading, which must succeed.

        Raises:
            ConfigError: An option is not known, or does not take its value.
            MeterError: There is no ipmitool, driver, permission, user or password, or the BMC has no reading.
        """
        settings = _settings(options)
        link = _link(settings)
        first, _ = _ask(link)
        version = re.search(r"version (\S+)", _run((link.command[0], "-V"), settings.timeout_s)[1])
        return IpmiSession(link, first, version[1] if version else None)


class IpmiSession(MeterSession):
    """One BMC; holds nothing open, since each reading is a run of ipmitool that logs in by itself."""

    def __init__(self, link: _Link, first: PowerReading, version: str | None) -> None:
        """Read through ``link``, which gave ``first`` by ipmitool ``version``."""
        self._link, settings = link, link.settings
        part, how = settings.host or "local", "current reading of the BMC"
        self.channels = (
            Channel("power", "power", _BOUNDARY, part, how, period_s=settings.period_s, primary=True),
        )
        self.facts = {"ipmitool": version, "statistics_period_s": first.period_s, "interface": "open"}
        if settings.host:
            self.facts |= {"interface": "lanplus", "port": settings.port, "cipher": settings.cipher}
            self.facts["privilege"] = settings.privilege

    def read(self, place: int) -> float:
        """The power now, in W.

        Raises:
            MeterError: The BMC gave no reading in time, or says that it has none.
        """
        return _ask(self._link)[1]

    def close(self) -> None:
        """Nothing to let go of."""


def decode_reading(data: bytes) -> PowerReading:
    """The answer to Get Power Reading: the 18 bytes that follow the completion code.

    Raises:
        MeterError: It is of another length, or no answer of DCMI.
    """
    if len(data) != _ANSWER.size or data[0] != _DCMI:
        raise _Refused(f"this is no DCMI power reading, {_ANSWER.size} bytes from dc: {brief(data.hex(' '))}")
    _, current, least, most, average, timestamp, period_ms, state = _ANSWER.unpack(data)
    return PowerReading(current, least, most, average, timestamp, period_ms / 1000, bool(state & _ACTIVE))


def power_w(reading: PowerReading) -> float:
    """The power of a reading that is one, in W.

    Raises:
        MeterError: The BMC is not measuring, or gave no value.
    """
    if not reading.active:
        state = f"the BMC's power measurement is deactivated (it says {reading.current_w} W)"
        raise _Refused(state, "enable power monitoring in the BMC's settings")
    if reading.current_w == _NO_VALUE:
        raise _Refused(f"the BMC has no reading ({_NO_VALUE} W stands for none)")
    if reading.current_w == 0:
        raise _Refused("the BMC says 0 W, which cannot be: it draws power itself")
    return float(reading.current_w)


def _link(settings: _Settings) -> _Link:
    tool = shutil.which("ipmitool")
    if tool is None:
        raise _Refused("there is no ipmitool on PATH", "install the package ipmitool")
    if settings.host is None:
        _check_driver()
        return _Link(settings, (tool, "-v", "-I", "open", *_REQUEST))
    user, password, account = _credentials(settings)
    # -v, since ipmitool tells a wrong password from silence only then.
    command = [tool, "-v", "-I", "lanplus", "-H", settings.host, "-p", str(settings.port), "-U", user, "-E"]
    # To find that nobody answers takes two waits, which must end within the time for one reading.
    wait_s = max(1, int((settings.timeout_s - 0.5) / 2))
    command += ["-L", settings.privilege.upper(), "-N", str(wait_s), "-R", "1"]
    if settings.cipher is not None:
        command += ["-C", str(settings.cipher)]
    return _Link(settings, (*command, *_REQUEST), account, password)


def _check_driver() -> None:
    node = next((node for node in _NODES if node.exists()), None)
    if node is None:
        raise _Refused(
            f"there is no {_NODES[0]}: the kernel's IPMI driver is not loaded, or this machine has no BMC",
            "sudo modprobe -a ipmi_si ipmi_devintf (in a container, on the host, and pass the device in); "
            "or name another machine's BMC with the option host",
        )
    if not os.access(node, os.R_OK | os.W_OK):
        raise _Refused(
            f"no permission to use {node}",
            "run as root, or give a group of yours the device by a udev rule, such as "
            'KERNEL=="ipmi*", GROUP="ipmi", MODE="0660" in /etc/udev/rules.d/90-ipmi.rules',
        )


def _credentials(settings: _Settings) -> tuple[str, str, str]:
    """User, password, and where they are from."""
    if settings.credentials_file is not None:
        return *_from_file(settings.credentials_file), str(settings.credentials_file)
    names = (settings.user_env, settings.password_env)
    for name in names:
        if not os.environ.get(name):
            raise _Refused(f"the environment variable {name} is not set", "it holds what the BMC wants")
    return os.environ[names[0]], os.environ[names[1]], " and ".join(names)


def _from_file(path: Path) -> tuple[str, str]:
    wants = "two lines are wanted, the user and the password"
    try:
        # What is read is what was checked; a pipe must not keep us waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                raise _Refused(f"{path} holds a password, and is open to others", f"chmod 600 {path}")
            text = os.read(descriptor, 4096).decode()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _Refused(f"{path} cannot be read ({error.strerror})", wants) from error
    except UnicodeDecodeError:
        # Not from the error: it holds what the file holds.
        raise _Refused(f"{path} is no text in UTF-8", wants) from None
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if len(lines) != 2 or not all(lines) or "\0" in text:
        raise _Refused(f"{path} does not hold a user and a password", wants)
    return lines[0], lines[1]


def _ask(link: _Link) -> tuple[PowerReading, float]:
    """One reading, and its power in W."""
    place = link.settings.host or "local"
    try:
        code, output, errors = _run(link.command, link.settings.timeout_s, link.password)
        if code != 0:
            raise _failure(link, code, errors)
        try:
            data = bytes.fromhex(output)
        except ValueError:
            raise _Refused(f"ipmitool's output is not hexadecimal: {_shown(link, output)}") from None
        reading = decode_reading(data)
        return reading, power_w(reading)
    except _Refused as error:
        raise _Refused(f"{place}: {error.reason}", error.remedy) from error.__cause__


def _run(command: Sequence[str], limit_s: float, password: str | None = None) -> tuple[int | None, str, str]:
    """Exit status (None: it took too long, and was killed), output, and error output."""
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    env |= {} if password is None else {"IPMI_PASSWORD": password}
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=null, stdout=pipe, stderr=pipe, env=env, process_group=0)
    except OSError as error:
        raise _Refused(f"{command[0]} does not start ({error.strerror})") from error
    with process:
        try:
            output, errors = process.communicate(timeout=limit_s)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code, (output, errors) = None, process.communicate()
        finally:
            # Something else ended the wait, such as Ctrl-C. Not reaped: the number is still its own.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    return code, output.decode(errors="replace"), errors.decode(errors="replace")


def _shown(link: _Link, text: str) -> str:
    """What ipmitool says, shortened to the lines that end it, without the password."""
    safe = text.replace(link.password, "***") if link.password else text
    return brief("\n".join(safe.splitlines()[-3:])) or "(nothing)"


def _failure(link: _Link, status: int | None, errors: str) -> _Refused:
    """Why a run of ipmitool brought no answer."""
    settings = link.settings
    last = _shown(link, errors)
    code = re.search(r"Unable to send RAW command \([^)]*rsp=0x([0-9a-f]+)\)", errors, re.IGNORECASE)
    if code:
        number = int(code[1], 16)
        reason, remedy = _CODES.get(number, (f"the BMC refuses the request: {last}", None))
        return _Refused(f"{reason}; completion code {number:02x}", remedy)
    for sign, reason, advice in _SIGNS:
        if re.search(sign, errors, re.IGNORECASE):
            return _Refused(reason.format(port=settings.port), advice.format(account=link.account))
    if status is not None:
        return _Refused(f"ipmitool failed (exit status {status}): {last}")
    # ipmitool says so as it sends the request, in the session that it then has.
    if settings.host is None or "RAW REQ" in errors:
        return _Refused(_SILENT, "raise timeout_s")
    return _Refused(f"nothing at UDP port {settings.port} gave a session in time", _NETWORK)


def _settings(options: Mapping[str, Any]) -> _Settings:
    for key in sorted(options.keys() - set(_KNOWN)):
        raise ConfigError(f"ipmi: unknown option {key!r}{nearest(key, _KNOWN)}")
    given = {key: value for key, value in options.items() if value is not None}
    stray = [key for key in _REMOTE_ONLY if key in given]
    if stray and "host" not in given:
        raise ConfigError(f"ipmi: {stray[0]} goes with the option host, which is not given")
    if "credentials_file" in given and given.keys() & {"user_env", "password_env"}:
        raise ConfigError("ipmi: credentials_file excludes user_env and password_env")
    file = given.get("credentials_file")
    if file is not None and (not isinstance(file, (str, Path)) or not str(file) or "\0" in str(file)):
        raise ConfigError(f"ipmi: credentials_file: wants a path: {file!r}")
    privilege = given.get("privilege", "user")
    if privilege not in _PRIVILEGES:
        raise ConfigError(f"ipmi: unknown privilege {privilege!r}{nearest(str(privilege), _PRIVILEGES)}")
    return _Settings(
        host=_host(given["host"]) if "host" in given else None,
        port=_whole("port", given.get("port", 623), 65535),
        user_env=_variable("user_env", given.get("user_env", "INFEROMETER_IPMI_USER")),
        password_env=_variable("password_env", given.get("password_env", "INFEROMETER_IPMI_PASSWORD")),
        credentials_file=None if file is None else Path(file).expanduser(),
        # Suite 0 has no password check at all.
        cipher=_whole("cipher", given["cipher"], 17) if "cipher" in given else None,
        privilege=privilege,
        timeout_s=_seconds("timeout_s", given.get("timeout_s", 5.0)),
        period_s=_seconds("period_s", given.get("period_s", 5.0)),
    )


def _host(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9:][\w.:%-]*", value, re.ASCII):
        raise ConfigError(f"ipmi: host: wants a name or an address without a port: {value!r}")
    return value


def _whole(key: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigError(f"ipmi: {key}: wants a whole number from 1 to {most}: {value!r}")
    return value


def _seconds(key: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 3600:
        raise ConfigError(f"ipmi: {key}: wants seconds, more than 0 and at most 3600: {value!r}")
    return float(value)


def _variable(key: str, value: object) -> str:
    # The value is not repeated: it may be the secret itself, put here by mistake.
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ConfigError(f"ipmi: {key}: wants the name of an environment variable, never what it holds")
    return value
