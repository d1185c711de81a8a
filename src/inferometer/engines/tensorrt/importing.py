"""Importing a vendor's module: what is missing is named by the package that brings it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from inferometer.errors import EngineError, MissingExtra

__all__ = ["importing"]


@contextmanager
def importing(engine: str, package: str, extra: str) -> Iterator[None]:
    """Around the import of a module that a package of another name brings.

    Args:
        engine: The entry-point name.
        package: What brings the module.
        extra: That of Inferometer which brings the package.

    Raises:
        MissingExtra: The module is not installed.
        EngineError: It is there and does not load, for want of its shared libraries for example.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"engine {engine!r} needs the package {package!r}: pip install 'inferometer[{extra}]'"
        ) from error
    except (ImportError, OSError) as error:
        raise EngineError(
            f"engine {engine!r}: the package {package!r} is installed and does not load: "
            f"{' '.join(str(error).split())}; install it again, with the libraries that it needs"
        ) from error
