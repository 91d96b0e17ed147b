"""Help pages: options in groups, a line or two each, and examples as they are typed; and options by their old names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter
    from typer._click.formatting import HelpFormatter

ARGUMENTS, SETTINGS, MEASUREMENT, WORKLOAD = "Arguments", "Settings", "Measurement", "The workload"
COMMAND, STUDIES, OUTPUT, OTHERS = "A command as workload (after --)", "Studies", "Output", "Options"
_PANELS = (ARGUMENTS, SETTINGS, MEASUREMENT, WORKLOAD, COMMAND, STUDIES, OUTPUT, OTHERS)
_WIDEST_OPTION = 24
"""An option with its value that is wider stands on a line of its own (characters)."""
SHOWN = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of every page; at most so many characters wide."""
# fmt: off
_RARE = frozenset({
    "--every", "--execution", "--feed", "--framework", "--input", "--input-range", "--input-shape", "--insecure",
    "--launcher", "--margin", "--max-memory", "--max-power", "--minimize", "--name", "--numerics", "--op-library",
    "--param", "--predict", "--rate", "--seed", "--sessions", "--signature", "--storage", "--summary", "--tags",
    "--trial-timeout", "--trials", "--wait",
})
# fmt: on
"""Options that few people need: on a page of many options only `--help-all` shows them."""
_FEW = 16
"""So many options are all shown."""
_ALL = "--help-all"
NEW_NAMES = {
    "search": {"--no-instances": "--one-process"},
    "frameworks": {"--batch": "--scan"},
    "overhead": {"--batch": "--batch-size"},
    "recommend": {"--batch": "--any-batch-size"},
    "predict": {"--profile": "--from", "--setting": "--only"},
    "rules": {"--profile": "--from", "--machine": "--machines", "--format json": "--json"},
    "list": {"--machine": "--machines"},
    "export": {"--machine": "--machines", "--format json": "--json"},
    "check": {"--no-instances": "--one-process"},
    "emit": {"--format json": "--json", "--no-instances": "--one-process"},
    "suite": {"--modes": "--mode"},
}
"""By command, what replaces an option, or one with its value, that has been renamed; the old names go with 0.3."""


class Command(TyperCommand):
    """A command with a compact help page; options stand under the `rich_help_panel` that they name."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the words of the command line, options by their old names among them."""
        if ctx.resilient_parsing:  # a shell completes words
            return super().parse_args(ctx, args)
        words = renamed(args, NEW_NAMES.get(str(self.name), {}))
        if _ALL in _own(words):
            ctx.meta[_ALL] = True
            sys.stdout.write(f"{ctx.get_help()}\n")
            ctx.exit()
        return super().parse_args(ctx, words)

    def _rare(self, ctx: Context) -> list[Parameter]:
        """Return the parameters that the page leaves out: few people need them, and it is long."""
        params = self.get_params(ctx)
        return [each for each in params if len(params) > _FEW and not ctx.meta.get(_ALL) and _RARE & {*each.opts}]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the arguments, the options by group, and what belongs to none."""
        rows: dict[str, list[tuple[str, str]]] = {panel: [] for panel in _PANELS}
        rare = self._rare(ctx)
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or param in rare:
                continue
            if param.param_type_name == "argument":
                rows[ARGUMENTS].append((str(param.metavar or param.name).upper(), record[1]))
            else:
                rows[getattr(param, "rich_help_panel", None) or OTHERS].append(record)
        if rare:
            rows[OTHERS].append((_ALL, f"Show {len(rare)} more options, and exit."))
        if rare:  # a short page has few panels
            rows[WORKLOAD] += rows.pop(COMMAND)
            rows[OTHERS] = rows.pop(OUTPUT) + rows.pop(STUDIES) + rows[OTHERS]
        for panel in rows:
            if rows[panel]:
                with formatter.section(panel):
                    formatter.write_dl(rows[panel], col_max=_WIDEST_OPTION)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the examples."""
        del ctx
        write_lines(self.epilog, formatter)


class Group(TyperGroup):
    """A command with commands of its own, each under the `rich_help_panel` that it names."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the words of the command line; its page always shows all."""
        is_own = bool(args) and args[0].startswith("-") and not ctx.resilient_parsing
        return super().parse_args(ctx, ["--help" if word == _ALL else word for word in args] if is_own else args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write each command with the first sentence of its help."""
        rows: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                rows.setdefault(panel if isinstance(panel, str) else "Commands", []).append(
                    (name, command.get_short_help_str(limit=1000))
                )
        for panel, of_panel in rows.items():
            with formatter.section(panel):
                formatter.write_dl(of_panel)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the last lines."""
        del ctx
        write_lines(self.epilog, formatter)


def write_lines(text: str | None, formatter: HelpFormatter) -> None:
    """Write lines that are not wrapped, so that they can be copied."""
    formatter.write_paragraph()
    for line in (text or "").splitlines():
        formatter.write(f"{line}\n")


def _own(words: Sequence[str]) -> Sequence[str]:
    """Return the words before the `--`, after which the words of another program come."""
    return words[: words.index("--")] if "--" in words else words


def renamed(words: Sequence[str], new_names: dict[str, str]) -> list[str]:
    """Return the words of a command line by the names that options have now, and name each that was used."""
    own = _own(words)
    renamed: list[str] = []
    remaining = list(own)
    while remaining:
        word = remaining.pop(0)
        option, sign, value = word.partition("=")
        pair = f"{option} {value if sign else (remaining or [''])[0]}"
        if pair in new_names:
            remaining = remaining if sign else remaining[1:]
            old, new, word = pair, new_names[pair], new_names[pair]
        elif option in new_names:
            old, new, word = option, new_names[option], f"{new_names[option]}{sign}{value}"
        else:
            renamed.append(word)
            continue
        sys.stderr.write(f"tftune: {old} is now {new}; the old name works until version 0.3\n")
        renamed.append(word)
    return [*renamed, *words[len(own) :]]
