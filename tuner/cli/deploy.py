"""The commands `emit` and `run`: a recommendation applied to the user's own program."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import options
from tuner.cli.help import Command
from tuner.cli.options import complete_study, examples, other, output
from tuner.errors import BadInputError
from tuner.paths import DEFAULT_STORAGE

if TYPE_CHECKING:
    from typer._click.core import Context

    from tuner.space.deployment import Deployment

EMIT_EPILOG = examples(
    'eval "$(tftune emit)"',
    "tftune emit last --format k8s",
    "tftune emit last --instances",
    "tftune emit last --same-latency",
)


class RunCommand(Command):
    """The command `run`, whose study may be left out before the `--`."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Take the words after the `--` for the program, whatever stands before it."""
        before = args[: args.index("--")] if "--" in args else None
        is_page = before is not None and {"-h", "--help", "--help-all"} & {*before}
        if before is not None and not is_page and self.make_parser(ctx).parse_args(list(before))[0]["study"] is None:
            args = [*before, "last", *args[len(before) :]]
        return super().parse_args(ctx, args)


RUN_EPILOG = examples(
    "tftune run -- python serve.py",
    "tftune run last --instances -- python serve.py --port {8500+instance}",
)
_FORMATS = {"kubernetes": "k8s", "docker-compose": "compose", "bash": "sh", "shell": "sh", "env": "dotenv"}


def emit(
    study: options.Study = "last",
    format_: Annotated[
        str,
        output(
            "--format sh|dotenv|docker|compose|k8s|systemd|tfserving|tfserving-k8s|python",
            "Format of the snippet.",
        ),
    ] = "sh",
    instances: Annotated[
        bool | None,
        other(
            "--instances/--one-process",
            "The answer on several processes, or on one (default: the first that sets anything).",
            show_default=False,
        ),
    ] = None,
    same_latency: options.SameLatency = False,
    model: Annotated[str | None, other("--model NAME", "Of an ensemble, the model that the snippet is for.")] = None,
    storage: options.Storage = DEFAULT_STORAGE,
    json_: options.Json = False,
) -> None:
    """Print what to set, for a shell, Docker, Kubernetes and others."""
    from tuner.api.study import load_study
    from tuner.deploy import program
    from tuner.report.emit import Format
    from tuner.result.document import several_come_first

    format_ = _FORMATS.get(format_.lower(), format_.lower())
    format_ = options.format_of(format_, list(Format), usual=Format.SH, json_=json_)
    loaded = load_study(study, storage)
    deployment = loaded.deployment(instances=instances, same_latency=same_latency)
    n = deployment.processes
    sys.stdout.write(loaded.emit(format_, instances=instances, same_latency=same_latency, model=model))
    _point(None if same_latency or n > 1 else loaded.better_with_instances())
    notes = program.left_out(deployment) if format_ == Format.SH else []  # which is for this shell
    if instances is None and not same_latency and several_come_first(loaded.result):
        notes.append(f"this is for each of {n} processes side by side; --one-process: a single one keeps the defaults")
    shorter = None if same_latency else loaded.shorter_with_same_latency(instances=instances)
    notes += [] if shorter is None else [shorter]
    for note in notes:
        sys.stderr.write(f"tftune: {note}\n")


def run(
    *,
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study, or a file that 'emit --json' wrote (default: the newest study).",
            autocompletion=complete_study,
        ),
    ] = "last",
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...",
            help="Your program. {instance} becomes the number of its copy, from 0, and {8500+instance} the sum "
            "with it. {batch_size} or another knob becomes its value, {model} the model of an ensemble.",
        ),
    ],
    instances: Annotated[
        bool, other("--instances", "The answer on several processes, instead of the answer on one.")
    ] = False,
    same_latency: options.SameLatency = False,
    keep_going: Annotated[bool, other("--keep-going", "Let the other copies run on if one fails.")] = False,
    storage: options.Storage = DEFAULT_STORAGE,
) -> None:
    """Run your program with the setting that a study recommends.

    It gets the variables and its CPUs. With --instances it runs in as many copies as the study recommends.
    Variables that the study inherited from its environment are set as well, unless yours has a value of its own.

    A single copy replaces this process. Lines of several copies carry their numbers, and signals reach all of them. If
    one fails, the others are ended. The exit code is the worst. TFTUNE_INSTANCE holds the number of a copy,
    TFTUNE_MODEL the model of an ensemble.
    """
    from tuner.deploy import program
    from tuner.report.emit import code_notes
    from tuner.workload.command import check_program, placeholders

    better: str | None = None
    if study.endswith(".json"):
        if instances or same_latency:
            option = "--instances" if instances else "--same-latency"
            raise BadInputError(
                f"{option} chooses among the answers of a study, and {study} holds one answer",
                f"leave it out, or choose when you write the file: tftune emit STUDY {option} --json",
            )
        deployment = _read(Path(study))
    else:
        deployment, better = _of_study(study, storage, groups=instances, same_latency=same_latency)
        if "batch_size" in placeholders(command):
            deployment = _with_batch(deployment, study, storage)
        if names := program.unfilled(deployment, command):
            deployment = _with_knobs(deployment, names, study, storage, groups=instances, same_latency=same_latency)
    own, moved = program.placed(deployment)
    group = program.copies(own, command)
    if re.match(r"\w+=", command[0]):
        check_program(command)
    _point(better)
    own = program.without(own, placeholders(command))
    whose = f"{study} holds no value of it" if study.endswith(".json") else "the answer has no value of it"
    left = [
        f"{{{name}}} stays as it is: {name} is a knob, and {whose}; write the value instead"
        for name in sorted(program.unfilled(deployment, command))
    ]
    notes = [*left, *program.not_passed_on(own, command), *code_notes(own), *moved, *program.unlike_copies(own)]
    for note in [*notes, *program.differences(deployment)]:
        sys.stderr.write(f"tftune: {note}\n")
    sys.stderr.flush()
    if len(group) == 1:
        program.become(group[0])
    raise typer.Exit(program.run_together(group, keep_going=keep_going))


def _point(better: str | None) -> None:
    """Say that there is a better answer than what is applied, where there is one."""
    if better is not None:
        sys.stderr.write(f"tftune: this is not the best that is known: {better}\n")


def _of_study(study: str, storage: str, *, groups: bool, same_latency: bool) -> tuple[Deployment, str | None]:
    """Return what a study recommends, and what is better than that if something is; raises BadInputError."""
    from tuner.deploy import remembered

    place = remembered.of_study(study, storage, groups=groups, same_latency=same_latency)
    known = None if place is None else place.recall()
    if known is not None:
        return known
    from tuner.api.study import load_study

    loaded = load_study(study, storage)
    instances = None if same_latency and not groups else groups  # both are refused
    deployment = loaded.deployment(instances=instances, same_latency=same_latency)
    better = None if groups or same_latency else loaded.better_with_instances("run")
    if place is not None:
        place.remember(deployment, better)
    return deployment, better


def _with_batch(deployment: Deployment, study: str, storage: str) -> Deployment:
    """Return a deployment with its batch size, or the default's batch size if the answer does not change it.

    A command that has no place for a batch size keeps its own, which nothing here knows.
    """
    if "batch_size" in deployment.arguments or deployment.members:
        return deployment
    from tuner.api.study import load_study
    from tuner.deploy import program

    result = load_study(study, storage).result
    batch_size = result.baselines[result.default].setting.get("batch_size", result.workload.batch_size)
    is_given = program.BATCH in (result.command or "") or result.batch_sizes or "batch_size" in (result.pins or ())
    if result.workload.kind == "command" and not is_given:
        return deployment
    return replace(deployment, arguments={**deployment.arguments, "batch_size": batch_size})


def _with_knobs(
    deployment: Deployment, names: Collection[str], study: str, storage: str, *, groups: bool, same_latency: bool
) -> Deployment:
    """Return a deployment with the values of knobs as arguments, also of those that an answer leaves at the default."""
    from tuner.api.study import load_study
    from tuner.result.document import advice_of

    instances = None if same_latency and not groups else groups  # as in _of_study
    setting = advice_of(load_study(study, storage).result, groups=instances, same_latency=same_latency).setting
    values = {name: setting[name] for name in sorted(names) if name in setting}
    return replace(deployment, arguments={**deployment.arguments, **values})


def _read(path: Path) -> Deployment:
    """Return the deployment that a file says; raises BadInputError."""
    import msgspec

    from tuner.space.deployment import Deployment

    hint = "write it with: tftune emit STUDY --json"
    try:
        data = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        missing = sorted({"env", "arguments", "cpus"} - data.keys())
        if missing:
            raise BadInputError(f"{path} is not a setting: it has no {', '.join(missing)}", hint)
        deployment = msgspec.convert(data, Deployment)
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}", hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} is not a setting: {error}", hint) from error
    n, parts = deployment.processes, deployment.members or deployment.cpu_sets
    if n < 1 or (parts and len(parts) != n):
        raise BadInputError(f"{path} has {n} processes" + (f", and names {len(parts)}" if parts else ""), hint)
    return deployment
