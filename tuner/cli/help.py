"""Help pages: options in groups, a line or two each, and examples as they are typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

ARGUMENTS, SETTINGS, MEASUREMENT, WORKLOAD = "Arguments", "Settings", "Measurement", "The workload"
COMMAND, STUDIES, OUTPUT, OTHERS = "A command as workload (after --)", "Studies", "Output", "Options"
_PANELS = (ARGUMENTS, SETTINGS, MEASUREMENT, WORKLOAD, COMMAND, STUDIES, OUTPUT, OTHERS)
_WIDEST_OPTION = 24
"""An option with its value that is wider stands on a line of its own (characters)."""
SHOWN = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of every page; at most so many characters wide."""


class Command(TyperCommand):
    """A command with a compact help page; options stand under the `rich_help_panel` that they name."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the arguments, the options by group, and what belongs to none."""
        rows: dict[str, list[tuple[str, str]]] = {panel: [] for panel in _PANELS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.param_type_name == "argument":
                rows[ARGUMENTS].append((str(param.metavar or param.name).upper(), record[1]))
            else:
                rows[getattr(param, "rich_help_panel", None) or OTHERS].append(record)
        for panel in _PANELS:
            if rows[panel]:
                with formatter.section(panel):
                    formatter.write_dl(rows[panel], col_max=_WIDEST_OPTION)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the examples."""
        del ctx
        write_lines(self.epilog, formatter)


class Group(TyperGroup):
    """A command with commands of its own, each under the `rich_help_panel` that it names."""

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
