"""``python -m inferometer``: the same as the command ``inferometer``."""

from inferometer.cli.main import main

main()
