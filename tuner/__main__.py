"""The command `tftune`, and `python -m tuner`, whatever is on the PATH."""

from importlib import import_module

_INTERRUPTED = 130  # as a shell tells of Ctrl-C


def main(module: str = "tuner.cli") -> None:
    """Run the command, or the `main` of another module.

    Ctrl-C ends it without a traceback even while it is loaded, which takes a moment.
    """
    try:
        from tuner import inherited
        from tuner.paths import COMMAND

        inherited.keep()
        name = COMMAND.stem if COMMAND.parent.name != "entry" else f"tuner.entry.{COMMAND.stem}"
        import_module(name).take_path()
        import_module(module).main()
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None


if __name__ == "__main__":
    main()
