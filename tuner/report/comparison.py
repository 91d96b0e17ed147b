"""What `tftune compare`, `tftune check` and `tftune noise` show, drawn from their documents."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.measure.objective import METRIC
from tuner.report.document import Document
from tuner.report.layout import duration_text, percent, rate_text, ratio_text, table
from tuner.report.terminal import luck_text, rounds_text, sessions_text, setting_text, speedup_text, warnings

_STYLES = {"better": "green", "worse": "red", "no difference": "cyan", "undecided": "yellow"}


def comparison(document: Document) -> RenderableType:
    """Return the two sides, the verdict on b against a, and what stands behind it."""
    shown = () if document["unit"] == METRIC else ("p50", "p90", "p99")
    sides = table("", "setting", f">{document['unit']}", *(f">{key} ms" for key in shown))
    for name in ("a", "b"):
        row = document["sides"][name]
        figures = ("—" if row[key] is None else f"{row[key]:.3g}" for key in shown)
        rate = "—" if row["rate"] is None else rate_text(row["rate"])
        sides.add_row(name, f"{setting_text(document[name])}{_asked(row['asked'])}", rate, *figures)
    word = document["verdict"]
    said = Text.assemble("b against a: ", (word, _STYLES[word]), f"  {speedup_text(document)}")
    notes = [
        f"{rounds_text(document)}, {duration_text(document['timed_s'])} of slices; "
        f"differences under {percent(document['margin'])} are treated as equal"
    ]
    if word == "undecided":
        notes.append(f"undecided: {document['reason']}")
    failures = [Text(f"{name} {text}", style="red") for name, text in document["failures"].items()]
    return Group(sides, Text(), said, *(Text(note, style="dim") for note in notes), *failures, warnings(document))


def checked_text(document: Document) -> str:
    """Return what a check says of a study's recommendation, by all of its sessions."""
    said = {True: "still helps", False: "no longer helps", None: "could not be decided on"}[document["helps"]]
    limits = f"; limits {document['limits']['b']}" if document["limits"] else ""
    whole = document["together"] | {"closest_s": document["closest_s"]}
    return (
        f"all sessions together: {whole['verdict']}  {speedup_text(whole)}, {sessions_text(whole)}\n"
        f"the recommendation of study {document['study']} {said}{limits}"
    )


def _asked(text: str) -> str:
    return "" if "=" in text else f"  ({text})"


def noise(document: Document) -> RenderableType:
    """Return the noise of a machine: pairs, spreads, what they mean for finals, and what the machine did meanwhile."""
    found, machine = document["noise"], document["conditions"]
    rows = table("", ">", "", title="noise: the default against itself")
    rows.show_header = False
    longest = max(document["pairs"], key=lambda pair: pair["n_quads"])
    pair = ratio_text(longest["ratio"], longest["low"], longest["high"])
    rows.add_row("a slice, nothing paired", f"±{percent(document['unpaired_sd'], 2)}", "noise and drift together")
    rows.add_row("a quad of a pair", f"±{percent(found['quad_sd'], 2)}", f"{found['n_quads']} quads, drift taken out")
    rows.add_row("one pair of processes", pair, f"{longest['n_quads']} quads in one pair: its own 95 % interval")
    spread = f"{document['between_sd'] * 100:.2f} %"
    rows.add_row("fresh pairs among themselves", f"±{spread}", f"{found['n_pairs']} pairs")
    rows.add_row("the luck of a process", luck_text(found, 2, "±"), "no longer measurement takes this away")
    rows.add_row("drift of the whole machine", f"±{percent(found['drift'], 2)}", "common to both of a pair")
    finals = table("", ">", "", title=f"what {document['rounds']} rounds of finals can say, as the default budget has")
    finals.show_header = False
    finals.add_row("noise floor", percent(document["floor"]), "A against A stays below this in 95 % of finals")
    finals.add_row("smallest gain found", percent(document["detectable"]), "called better in 90 % of finals")
    return Group(rows, Text(), finals, Text(), conditions(machine), warnings(document))


def conditions(machine: Document) -> RenderableType:
    """Return what the machine did while something was measured."""
    unknown = "not told here"
    pressure, mhz, hot = machine["pressure_share"], machine["mhz"], machine["hot"]
    parts = [
        f"steal {percent(machine['steal_share'])}",
        f"other processes {machine['foreign_cpus']:.2f} of {machine['n_cpus']} CPUs",
        f"CPU pressure {unknown if pressure is None else percent(pressure)} (our own threads included)",
        f"held back by the quota {percent(machine['throttled_share'])}",
        f"frequency {unknown if mhz is None else f'{mhz:.0f} MHz'}",
        f"slowed down by heat {unknown if hot is None else f'{hot} times'}",
    ]
    return Text(f"the machine meanwhile ({duration_text(machine['elapsed_s'])}): {', '.join(parts)}", style="dim")
