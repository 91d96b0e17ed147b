"""The command line: translate options, call, print, exit code. Heavy modules are imported where they are used."""

from __future__ import annotations

import codecs
import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from tuner import __version__
from tuner.cli import deploy, inspect, measure, model, rules, search, studies, suite
from tuner.cli.help import SHOWN, Command, Group
from tuner.cli.output import discard
from tuner.cli.search import INTERRUPTED
from tuner.errors import BadInputError, TunerError
from tuner.plain import printable

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=SHOWN,
    cls=Group,
    rich_markup_mode=None,
    help="Find the fastest parallelism settings of a TensorFlow, ONNX Runtime or OpenVINO model, and prove the gain.",
    epilog="Exit codes: 0 fine, 1 a finding, 2 bad input, 3 tftune or the machine failed, 130 interrupted\n"
    "Start with: tftune search resnet50",
)
_FIRST, _LOOK, _TEAM = "Begin with these", "Look closer", "Studies, teams and programs"
for _name, _function, _epilog, _panel in (
    ("search", search.search, search.EPILOG, _FIRST),
    ("emit", deploy.emit, deploy.EMIT_EPILOG, _FIRST),
    ("run", deploy.run, deploy.RUN_EPILOG, _FIRST),
    ("check", measure.check, measure.CHECK_EPILOG, _FIRST),
    ("load", measure.load, measure.LOAD_EPILOG, _FIRST),
    ("report", studies.report, studies.REPORT_EPILOG, _FIRST),
    ("recommend", rules.recommend, rules.RECOMMEND_EPILOG, _FIRST),
    ("suite", suite.suite, suite.EPILOG, _FIRST),
    ("inspect", inspect.inspect, inspect.EPILOG, _LOOK),
    ("noise", measure.noise, measure.NOISE_EPILOG, _LOOK),
    ("compare", measure.compare, measure.COMPARE_EPILOG, _LOOK),
    ("frameworks", measure.frameworks, measure.FRAMEWORKS_EPILOG, _LOOK),
    ("predict", model.predict, model.PREDICT_EPILOG, _LOOK),
    ("profile", model.profile, model.PROFILE_EPILOG, _LOOK),
    ("overhead", model.overhead, model.OVERHEAD_EPILOG, _LOOK),
    ("size", measure.size, measure.SIZE_EPILOG, _LOOK),
    ("list", studies.list_studies, studies.LIST_EPILOG, _TEAM),
    ("show", studies.show_study, studies.SHOW_EPILOG, _TEAM),
    ("rules", rules.rules, rules.RULES_EPILOG, _TEAM),
    ("node", suite.node, suite.NODE_EPILOG, _TEAM),
    ("scheduler", suite.scheduler, suite.SCHEDULER_EPILOG, _TEAM),
    ("import", studies.import_studies, studies.IMPORT_EPILOG, _TEAM),
    ("export", studies.export, studies.EXPORT_EPILOG, _TEAM),
    ("schema", studies.schema, studies.SCHEMA_EPILOG, _TEAM),
):
    _class = deploy.RunCommand if _name == "run" else Command
    app.command(_name, cls=_class, epilog=_epilog, rich_help_panel=_panel)(_function)
app.add_typer(inspect.workloads, name="workloads", rich_help_panel=_LOOK)
app.add_typer(inspect.env, name="env", rich_help_panel=_LOOK)


def command_names() -> list[str]:
    """Return every command in the words that call it, those with commands of their own before these."""
    names = [str(info.name) for info in app.registered_commands]
    for group in app.registered_groups:
        sub_app = group.typer_instance
        names += [str(group.name)] if sub_app is not None and sub_app.registered_callback is not None else []
        for info in sub_app.registered_commands if sub_app is not None else ():
            name = info.name or str(getattr(info.callback, "__name__", ""))
            names.append(f"{group.name} {name}")
    return names


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"tftune {__version__}")
        raise typer.Exit


@app.callback()
def tftune(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find the fastest parallelism settings of a TensorFlow, ONNX Runtime or OpenVINO model, and prove the gain."""


def _interrupt(*_: object) -> NoReturn:
    """End like Ctrl-C. (A background process of a script may ignore SIGINT, so its handler cannot be reused.)"""
    raise KeyboardInterrupt


def main(call: Callable[[], int | None] = lambda: app(standalone_mode=False)) -> NoReturn:
    """Run the command, or another `call`; every failure of the tool ends in one clear line and its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123  # for the rest of the process
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors=_REPLACED)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = call() or 0
    except typer.TyperException as error:
        code = _usage(error)
    except TunerError as error:
        code = _fail(error)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        discard(sys.stdout)
        code = 0
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("tftune: interrupted\n")
        code = INTERRUPTED
    except OSError as error:
        discard(sys.stdout)
        code = _fail(TunerError(f"operating system error: {error}", system_hint(error)))
    sys.exit(code)


def system_hint(error: OSError) -> str:
    """Return what to do about an error of the operating system."""
    if "No usable temporary directory" in str(error):
        return "free some space there, or set TMPDIR to a folder that can be written"
    return _SYSTEM_HINTS.get(error.errno or 0, "check the path, its permissions and the free disk space")


_SYSTEM_HINTS = {
    errno.ENOSPC: "free some space on that disk: TMPDIR, TFTUNE_CACHE, --storage and --out name other folders",
    errno.EDQUOT: "free some of your quota: TMPDIR, TFTUNE_CACHE, --storage and --out name other folders",
    errno.EROFS: "name a folder that can be written: TMPDIR, TFTUNE_CACHE, --storage and --out do",
    errno.EACCES: "check its permissions, or name another place",
    errno.EPERM: "check its permissions, or name another place",
    errno.ENOENT: "check the path",
    errno.EMFILE: "raise the limit on open files: ulimit -n 4096",
    errno.ENFILE: "end other programs: the machine has too many open files",
    errno.ENOMEM: "free some memory, then run the same command again",
    errno.EAGAIN: "raise the limit on processes, see ulimit -u, or end other programs",
}


def _replaced(error: UnicodeError) -> tuple[bytes, int]:
    """Return what stands for characters that the output's encoding lacks; bytes of a file's name are themselves."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return b"".join(bytes([ord(c) - 0xDC00]) if "\udc80" <= c <= "\udcff" else b"?" for c in lacking), error.end


_REPLACED = "tftune-replaced"
codecs.register_error(_REPLACED, _replaced)


def _usage(error: typer.TyperException) -> int:
    """Say in one line what is wrong with the options; a bare command shows its help instead."""
    context = getattr(error, "ctx", None)
    message = getattr(error, "format_message", error.__str__)()
    if context is not None and (not sys.argv[1:] or message == context.get_help()):
        sys.stdout.write(context.get_help() + "\n")
        return 0
    command = context.command_path if context is not None else "tftune"
    return _fail(BadInputError(" ".join(message.split()).rstrip("."), f"see {command} --help"))


def _fail(error: TunerError) -> int:
    sys.stderr.write(f"{error.log.rstrip()}\n" if error.log else "")
    text = " ".join(str(error).split()) if isinstance(error, BadInputError) else str(error)
    sys.stderr.write(f"tftune: {printable(text)}\n")
    return error.exit_code
