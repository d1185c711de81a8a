"""The command ``inferometer``, also as ``python -m inferometer``."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it as quietly as later."""
    try:
        from inferometer.cli.main import main as command_line
    except KeyboardInterrupt:
        sys.stderr.write("inferometer: interrupted\n")
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
