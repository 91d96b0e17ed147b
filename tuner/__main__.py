"""The command `tftune`, and `python -m tuner`, whatever is on the PATH."""

from importlib import import_module

_FAILED = 3  # as a `TunerError` ends, which may not be there to be asked
_INTERRUPTED = 130  # as a shell tells of Ctrl-C


def main(module: str = "tuner.cli") -> None:
    """Run the command, or the `main` of another module.

    Ctrl-C ends it without a traceback even while it is loaded, which takes a moment. A fault of its own has one.
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
    except Exception:  # noqa: BLE001  # whatever it is, it is no finding
        import traceback

        traceback.print_exc()
        raise SystemExit(_FAILED) from None


if __name__ == "__main__":
    main()
