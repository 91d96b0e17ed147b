"""Tables and lines for people, drawn with rich from the document; nothing here prints."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tuner.frameworks import registry
from tuner.frameworks.tensorflow.baselines import WANG, WANG_SOURCE
from tuner.measure.objective import METRIC
from tuner.places import DEFAULT_STORAGE
from tuner.report.document import Document
from tuner.report.emit import emit, usual
from tuner.report.layout import duration_text, percent, plural, rate_text, ratio_text, table
from tuner.space.deployment import Deployment
from tuner.stats.noise import LEAST_PROCESS_SD
from tuner.stats.tail import QUANTILES, samples_needed

_GIB = 1024**3
_APART_S = 1800.0  # sessions of less than this between them may well meet the machine in one state
_STYLES = {"better": "green", "worse": "red", "no difference": "cyan", "undecided": "yellow"}


def setting_text(setting: Mapping[str, Any], held: Collection[str] = ()) -> str:
    """Return a setting as one would type it, without the knobs that are held at one value anyway."""
    return " ".join(f"{name}={value}" for name, value in setting.items() if name not in held)


def held(document: Document) -> list[str]:
    """Return the knobs that have one value only, in the space and in all baselines."""
    settings = [baseline["setting"] for baseline in document["baselines"].values()]
    return [
        name
        for name, knob in document["knobs"].items()
        if knob["active"] and len({*knob["values"], *(setting[name] for setting in settings)}) == 1
    ]


def host(document: Document) -> RenderableType:
    """Return the machine and the build."""
    machine = document["machine"]
    smt = f"{machine['threads_per_core']} threads a core" if machine["threads_per_core"] > 1 else "no SMT"
    nodes = len(machine["numa_nodes"]) or 1
    quota = "none" if machine["cpu_quota"] is None else f"{machine['cpu_quota']:g} CPUs"
    limit = machine["memory_limit_bytes"]
    rows = table("", "")
    rows.show_header = False
    rows.add_row(
        "machine",
        f"{machine['cpu_model']}: {plural(machine['physical_cores'], 'physical core')}, {smt}, "
        f"{plural(machine['sockets'], 'socket')}, {plural(nodes, 'NUMA node')}",
    )
    rows.add_row(
        "", f"CPUs in the affinity mask: {machine['affinity']} ({machine['logical_cpus']} of {machine['online_cpus']})"
    )
    rows.add_row("", f"CPU quota (cgroup): {quota}")
    rows.add_row(
        "",
        f"memory: {machine['memory_bytes'] / _GIB:.1f} GiB" + (f", limited to {limit / _GIB:.1f} GiB" if limit else ""),
    )
    for number, line in enumerate(registry.of(document["runtime"]).lines(document["runtime"])):
        rows.add_row("" if number else "build", line)
    return rows


def knobs(document: Document) -> RenderableType:
    """Return the knobs with their values, or the reason why they are off."""
    on = table("knob", "set by", "values", title=f"search space '{document['space']}': {document['points']:,} settings")
    off: dict[str, list[str]] = {}
    fixed = held(document)
    for name, knob in document["knobs"].items():
        if knob["active"] and name not in fixed:
            on.add_row(name, knob["variable"] or knob["set_by"], ", ".join(map(str, knob["values"])))
        elif not knob["active"]:
            off.setdefault(knob["reason"], []).append(name)
    values = {name: document["knobs"][name]["values"][0] for name in fixed}
    lines = [Text(f"held: {setting_text(values)}", style="dim")] if fixed else []
    lines += [Text(f"off: {', '.join(names)}: {reason}", style="dim") for reason, names in off.items()]
    lines += unasked(document)
    for name, knob in document["knobs"].items():
        if "dropped" in knob:
            lines.append(Text(f"left out of {name}: {knob['dropped']}", style="dim"))
    return Group(on, *lines)


def unasked(document: Document) -> list[Text]:
    """Return what the space did not ask about, where that may decide more than what it did."""
    return [Text(note) for note in registry.of(document["runtime"]).notes(document)]


def baselines(document: Document) -> RenderableType:
    """Return the baselines as resolved here, each distinct setting once."""
    shown = table("baseline", "setting", "the same here", title="baselines")
    seen: set[str] = set()
    for name, baseline in document["baselines"].items():
        if name not in seen:
            shown.add_row(name, setting_text(baseline["setting"], held(document)), ", ".join(baseline["same_as"]))
            seen.update(baseline["same_as"])
    return shown


def hint_line(name: str, setting: Mapping[str, Any], document: Document) -> Text:
    """Return what is tried right after the baselines, and what hints at it."""
    source = WANG_SOURCE if name == WANG else name
    return Text(f"tried early: {setting_text(setting, held(document))}  ({source})", style="dim")


def trials(document: Document) -> RenderableType:
    """Return the trials of a study."""
    title = f"trials of {document['study']}"
    shown = table(">#", "setting", ">ratio to reference", ">timed", "", ">first step", title=title)
    best = document["incumbent"]
    for row in document["history"]:
        is_best = best is not None and row["setting"] == best["setting"]
        first = "" if row["first_step_s"] is None else f"{row['first_step_s']:.2f} s"
        shown.add_row(*trial_row(row, incumbent=is_best, held=held(document)), first)
    return shown


def trial_row(row: Document, *, incumbent: bool, held: Collection[str] = ()) -> tuple[str | Text, ...]:
    """Return the cells of one trial; knobs that are `held` are left out of its setting."""
    notes = [", ".join(row["baselines"])] if row["baselines"] else []
    if row["status"] != "ok":
        return (
            str(row["number"]),
            setting_text(row["setting"], held),
            Text(row["status"], style="red"),
            "",
            Text(" ".join([*notes, row["message"]]), style="red"),
        )
    if row["pruned"]:
        notes.append("given up: hopeless")
    if row["over_limit"]:
        memory = row["peak_memory_bytes"]
        figures = [f"p99 {row['p99_ms']:.3g} ms", *([f"{memory / _GIB:.2f} GiB"] if memory else [])]
        notes.append(f"over the limit: {', '.join(figures)}")
    if not row["steady"]:
        notes.append("not steady")
    if row["alone"]:
        notes.append("measured alone")
    if incumbent:
        notes.insert(0, "incumbent")
    return (
        str(row["number"]),
        setting_text(row["setting"], held),
        ratio_text(row["ratio"], row["low"], row["high"]),
        f"{row['timed_s']:.0f} s",
        Text("; ".join(notes), style="green" if incumbent else "dim"),
    )


def verdicts(document: Document) -> RenderableType:
    """Return the finals: the incumbent against each distinct baseline."""
    final = document["finals"]
    if final is None:
        return Text("no finals yet", style="yellow")
    names: Mapping[str, Sequence[str]] = final["names"]
    shown = table(
        "incumbent against",
        f">{final['unit']}",
        ">speed-up [interval]",
        "verdict",
        title=f"finals: {rounds_text(final)}; differences under {percent(final['margin'])} are treated as equal",
    )
    for first, all_names in names.items():
        others = [name for name in all_names if name != "incumbent"]
        rate = final["rates"].get(first)
        figure = "—" if rate is None else rate_text(rate)
        if "incumbent" in all_names:
            shown.add_row(Text(f"incumbent{_also(others)}", style="bold"), figure, "", "")
            continue
        verdict = document["verdicts"][first]
        word = verdict["verdict"]
        shown.add_row(
            f"{first}{_also(others[1:])}",
            figure,
            speedup_text(verdict),
            Text(word, style=_STYLES[word]),
        )
    notes = [Text(f"{name}: {text}", style="red") for name, text in final["failures"].items()]
    best = document["incumbent"]
    # Where the default is the best of the search, the best of the others stands against it.
    if best is not None and best["setting"] not in (final["incumbent"], final["default"]):
        notes.append(Text("the search has another incumbent since: continue it for new finals", style="yellow"))
    return Group(shown, *notes)


def rounds_text(final: Mapping[str, Any]) -> str:
    """Return how many rounds there were, and of which processes."""
    n, fresh = final["rounds"], final["fresh_rounds"]
    processes = "fresh processes" if fresh == n else f"new processes, {fresh} of them fresh interpreters"
    return f"{plural(n, 'round')} of {processes}"


def sessions_text(gain: Mapping[str, Any]) -> str:
    """Return how many sessions a gain rests on, and whether they agree."""
    if gain["sessions"] < 2:
        return "from one session: what another day says, `tftune check` adds"
    disagree = ", which disagree" if gain["sessions_disagree"] else ""
    closest_s = gain["closest_s"]
    is_close = closest_s is not None and closest_s < _APART_S
    close = f", two of them only {duration_text(closest_s)} apart: hours tell more" if is_close else ""
    return f"{gain['sessions']} sessions{disagree}{close}"


def speedup_text(verdict: Mapping[str, Any]) -> str:
    """Return a verdict's speed-up with its interval; of an undecided one the interval alone."""
    if verdict["verdict"] == "undecided" and verdict["speedup"] is not None:
        return f"between {verdict['low']:.2f} and {verdict['high']:.2f}"
    return ratio_text(verdict["speedup"], verdict["low"], verdict["high"])


def tails(document: Document) -> RenderableType:
    """Return the contenders' quantiles of the step, memory and limits; nothing of a command, which shows no steps."""
    final = document["finals"]
    if final is None or not final["tails"] or final["unit"] == METRIC:
        return Text()
    shown = table("", ">p50", ">p90", ">p99", ">steps seen", ">peak memory", "", title="steps in the finals (ms)")
    for name, row in final["tails"].items():
        limits = document["limits"]
        answer = final["kept"][name] if any(limits.values()) else ""
        memory = row["peak_memory_bytes"]
        shown.add_row(
            name,
            *("—" if row[key] is None else f"{row[key]:.3g}" for key in ("p50", "p90", "p99")),
            str(row["n_steps"]),
            "—" if memory is None else f"{memory / _GIB:.2f} GiB",
            Text(f"limits {answer}" if answer else "", style="red" if answer == "broken" else "dim"),
        )
    needed = ", ".join(f"{name} from {samples_needed(p)}" for name, p in QUANTILES.items())
    return Group(shown, Text(f"shown where there are steps enough: {needed}", style="dim"))


def warnings(document: Document) -> RenderableType:
    """Return the warnings, each with what to do."""
    lines = [
        Text.assemble((f"{row['code']}: ", "yellow"), f"{row['found']}; {row['advice']}")
        for row in document["warnings"]
    ]
    return Group(*lines) if lines else Text("no warnings", style="dim")


def noise_line(document: Document) -> RenderableType:
    """Return what the search found of the noise, and how much its figure shrank in the finals."""
    found, parts = document["noise"], []
    if found is not None:
        parts.append(noise_text(found))
    shrank = document.get("shrinkage")
    if shrank is not None:
        parts.append(
            f"against {document['default']} the search said {shrank['search']:.3f}, the finals {shrank['finals']:.3f}"
        )
    return Text("; ".join(parts), style="dim")


def noise_text(found: Mapping[str, Any]) -> str:
    """Return the noise in a line."""
    quad, process = percent(found["quad_sd"]), luck_text(found)
    assumed = f" (mostly assumed: {found['n_quads']} quads seen)" if found["assumed"] else ""
    return (
        f"noise: a quad scatters by {quad}, processes of one setting by {process}; floor of the finals "
        f"{percent(found['floor'])}{assumed}"
    )


def luck_text(found: Mapping[str, Any], digits: int = 1, sign: str = "") -> str:
    """Return what processes scatter by, which may be hidden by what quads do."""
    process = found["process_sd"]
    return "less than can be seen" if process <= LEAST_PROCESS_SD else f"{sign}{percent(process, digits)}"


def recommendation(document: Document, storage: str = DEFAULT_STORAGE) -> list[RenderableType]:
    """Return the recommendation, its snippet, and the command that prints it again from `storage`.

    What is to be pasted comes as plain texts, which may neither be wrapped nor cut: print them as they are.
    """
    advice = document["recommended"]
    if advice is None:
        return [Text("no recommendation yet: run the same search again to continue", style="yellow")]
    lines = [
        Text.assemble(("recommended: ", "bold"), setting_text(advice["setting"]), f"  ({advice['source']})"),
        Text(advice["reason"]),
    ]
    if advice["gain"] is None and advice["together"] is not None:
        lines.append(Text(f"all sessions: {speedup_text(advice['together'])}, {sessions_text(advice['together'])}"))
    if advice["gain"] is not None:
        lines.append(
            Text(
                f"speed-up over {document['default']}: {speedup_text(advice['gain'])}, {sessions_text(advice['gain'])}"
            )
        )
    if len(advice["alike"]) > 1:
        lines.append(Text(f"not told apart from the fastest: {', '.join(advice['alike'])}", style="dim"))
    deployment = Deployment.from_dict(advice)
    format_ = usual(deployment)
    again = f"tftune emit {document['study']} --format {format_}"
    if storage != DEFAULT_STORAGE:
        again += f" --storage {shlex.quote(storage)}"
    title = f"tftune, study {document['study']}"
    snippet = emit(deployment, format_, title=title, session=registry.of(document.get("runtime", {})).session)
    return [
        Group(*lines),
        Text(),
        Text(snippet.rstrip(), style="green"),
        Text(),
        Text(f"again: {again}", style="dim"),
    ]


def incumbent_line(document: Document) -> RenderableType:
    """Return the best of the search, with its own, not yet confirmed, figure."""
    best = document["incumbent"]
    if best is None:
        return Text("no trial gave a number yet", style="yellow")
    return Text(
        f"best in the search: {setting_text(best['setting'])}  {ratio_text(best['ratio'], best['low'], best['high'])}"
    )


def summary(document: Document) -> RenderableType:
    """Return how the last run went."""
    counted = document["trials"]
    parts = [f"{counted['ok']} trials ok, {counted['pruned']} given up, {counted['failed']} failed"]
    if document["wall_s"] is not None:
        parts.append(f"{duration_text(document['wall_s'])}, {duration_text(document['measured_s'])} of it measuring")
    if document["search_timed_share"] is not None:
        parts.append(f"{100 * document['search_timed_share']:.0f} % of the search inside timed slices")
    if document["ended_because"]:
        parts.append(f"search ended: {document['ended_because']}")
    return Text("; ".join(parts), style="dim")


def studies(rows: Sequence[Document]) -> RenderableType:
    """Return the list of studies."""
    shown = table("study", ">trials", ">against the default", "verdict", "created (UTC)")
    shown.columns[0].no_wrap = True
    for row in rows:
        verdict = row["verdict"]
        word = verdict["verdict"] if verdict else "no finals"
        shown.add_row(
            row["study"],
            str(row["trials"]),
            speedup_text(verdict) if verdict else "—",
            Text(word, style=_STYLES.get(word, "dim")),
            str(row["created"])[:16].replace("T", " "),
        )
    return shown


def _also(names: Sequence[str]) -> str:
    return f" (= {', '.join(names)})" if names else ""
