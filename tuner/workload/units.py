"""Units as programs print them: what is a time or a rate, and how many of one unit another is.

A unit is a word with a prefix (k, Ki, million), or two with a bar: images/s, ms/step, k samples per second.
"""

from __future__ import annotations

import re

PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
PREFIXES |= {"ki": 2.0**10, "Ti": 2.0**40}
PREFIXES |= {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "lakh": 1e5, "crore": 1e7}
PREFIXES |= {"Tsd": 1e3, "Mio": 1e6, "mio": 1e6, "mln": 1e6, "mn": 1e6, "Mrd": 1e9, "bn": 1e9}
_SECONDS = {
    1e-9: ("ns", "nsec", "nsecs", "nanos", "nanosec", "nanosecs", "nanosecond", "nanoseconds"),
    1e-6: (
        "us",
        "µs",
        "μs",
        "usec",
        "usecs",
        "µsec",
        "µsecs",
        "μsec",
        "μsecs",
        "micros",
        "microsec",
        "microsecs",
        "microsecond",
        "microseconds",
    ),
    1e-3: ("ms", "msec", "msecs", "millis", "millisec", "millisecs", "millisecond", "milliseconds"),
    1.0: ("s", "sec", "secs", "second", "seconds"),
    60.0: ("min", "mins", "minute", "minutes"),
    3600.0: ("h", "hr", "hrs", "hour", "hours"),
    86400.0: ("day", "days"),
}
TIMES = {word: seconds for seconds, words in _SECONDS.items() for word in words}
TIMES |= {  # as Darknet writes them
    f"{part}{gap}seconds": seconds for part, seconds in (("milli", 1e-3), ("micro", 1e-6)) for gap in "- "
}
OF_TIMES = re.compile(
    r"(?i)latenc|elapsed|duration|(?<![a-z])(?<!real[ _-])(?:(?:wall|run|step)?_?time(?![ _-]?steps?)"
    r"|real(?![ _-]*[a-z])|seconds|[cs]?lat|took|delay|rtt|ttft"
    r"|tpot|itl|wall[ _-]?clock|p(?:50|9[0-9]+)|percentiles?)(?![a-z])|runtime|(?-i:(?<=[a-z])Time(?![a-z]))"
    r"|(?<![a-z/])(?<!per[ _])(?:[mun]?s|(?:milli|micro|nano)?sec(?:ond)?s?|time)[ _-]*per(?=[ _-]|(?-i:[A-Z]))"
    r"|(?<![a-z])(?:finished|completed|done|ended|executed|ran) in(?![a-z])"
)
"""What names a time in a label or a pattern."""
OF_RATES = re.compile(
    r"(?i)through|(?:per|/)[ _]?s(?:ec|\b)|(?<![a-z])(?:speed|i?ops|[fiqrtw]ps|hz|bandwidth|[gt]?flops)(?![a-z])"
    r"|(?<![a-z])(?<!error[ _-])(?<!miss[ _-])(?<!fail[ _-])(?<!failure[ _-])(?<!drop[ _-])(?<!loss[ _-])rate(?![a-z])"
)
# Of durations in parts, in the languages that programs print most.
_ORE = "or[ea](?=,? (?:e )?[0-9]+ (?:minut|second)[io])"  # 4 ore 5 minuti, but no 4 ore of English
HOURS = f"hrs?|hours?|Std\\.?|Stunden?|heures?|horas?|{_ORE}|час(?:а|ов)?|小时|時間|시간"
MINUTES = "(?i:min)s?|(?i:minut)(?:es?|os?|i|en?)|мин(?:ут[аы]?)?|分钟?|분"
SECONDS = "(?i:sec|sek)s?|seconds?|secondes?|second[io]|segundos?|Sekunden?|сек(?:унд[аы]?)?|秒钟?|초"
_ENERGIES = {  # and powers
    f"{prefix}{base}": (base, scale)
    for base in ("J", "W", "Wh")
    for prefix, scale in {"u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}.items()
} | {"joule": ("J", 1.0), "joules": ("J", 1.0), "watt": ("W", 1.0), "watts": ("W", 1.0)}
_ITEMS = {
    "B", "b", "bit", "byte", "character", "document", "element", "ex", "example", "flop", "fps", "frame", "image",
    "img", "item", "pixel", "point", "record", "row", "sample", "sentence", "seq", "sequence", "tok", "token", "word",
}  # fmt: skip
_STEPS = frozenset(f"{word}{ending}" for word in ("it", "iter", "iteration", "step") for ending in ("", "s")) | {
    "batch",
    "batches",
}

_BINARY = re.compile(r"[kKMGT]i(?:[bB](?:its?|ytes?|ps)?)?")  # 1 GiB is 1024 MiB, and an item no binary tem
_SHELL_TIME = re.compile(r"^real\s+([0-9]+m[0-9.,]+s)$", re.MULTILINE)  # as the shell's time prints it
_RATE = re.compile(r".*?([bfiopqrt]ps|hz|flops)", re.IGNORECASE)  # without a bar

_COUNTED = re.compile(
    r"(?i)(?:[0-9] ?[a-z]+|\b(?:[cgt]pu|core|device|host|instance|node|process|rank|replica|socket|thread|worker))$"
)
_SHORT_TIMES, _SHORT_PREFIXES = ("ns", "us", "µs", "ms", "s"), ("k", "K", "M", "G")
_PART_OF_NAME = re.compile(r"[^\W\d_][^\WA-Z\d_]*")
_LOOKED_AT = 1 << 16  # characters at the end of an output


class NoNumberError(Exception):
    """The output does not hold what the pattern promises: what was found, and what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def no_match(pattern: str, lines: str) -> NoNumberError:
    """Return the error of a pattern that matches no line of an output."""
    last = next((line.strip() for line in reversed(lines.splitlines()) if line.strip()), "")
    shown = last if len(last) <= 100 else f"…{last[-99:]}"
    printed = f"; the last line is '{shown}'" if last else "; it printed nothing"
    timed = _SHELL_TIME.search(lines)
    hint = "" if last else "let it print its number: a log file by sh -c '… && cat FILE'; some print to terminals alone"
    hint = hint if timed is None else f"print seconds by time -p, or let the pattern match {timed[1]}: real\\s+(\\S+)"
    hint = hint or _nearly(pattern, lines[-_LOOKED_AT:])
    return NoNumberError(f"no line of its output matches '{pattern}'{printed}", hint)


def _nearly(pattern: str, lines: str) -> str:
    """Return what a pattern could be changed to so that it matches: letters, spaces or units of time of any kind."""
    spaced, open_ended = re.sub(r"(?<!\\) +", r"\\s*", pattern), re.sub(r"(?<!\\)\$$", "", pattern)
    grouped = re.sub(r"\\([()])", r"\1", pattern)  # as grep and sed write a group
    bare = re.sub(r"^/(.*)/[a-z]*$", r"\1", pattern)  # as Perl and sed write a pattern
    any_time = re.sub(r"(?<![A-Za-z\\])(?:[nuµm]s|s)\b", f"(?:{'|'.join(_SHORT_TIMES)})", pattern)
    for changed in (f"(?i){pattern}", spaced, f"(?i){spaced}", open_ended, grouped, bare, any_time):
        try:
            found = re.search(changed, lines, re.MULTILINE)
        except re.error:  # flags of its own come first
            continue
        if found and found[0].strip() and found.re.groups <= 1:
            return f"'{found[0].strip()[:80]}' is matched by --metric-regex '{changed}'"
    return ""


def is_per_step(unit: str) -> bool:
    """Return whether a unit counts steps, however many items a step has: it/s, ms/step."""
    return not _STEPS.isdisjoint(_parts(unit))


def counts_items(unit: str) -> bool:
    """Return whether a unit counts items, so that batches of other sizes do not change it: images/s, ms/token."""
    over, _, under = _parts(unit)
    roots = {over, *(over.removeprefix(prefix).strip() for prefix in PREFIXES if over.startswith(prefix))}
    return not _ITEMS.isdisjoint(_singular(word) for word in (*roots, *under.split()))


def names_items(words: str) -> bool:
    """Return whether words beside a number name items per second: train_samples_per_second, RunningAvgSamplesPerSec."""
    parts = [each.lower() for each in _PART_OF_NAME.findall(words)]
    triples = zip(parts, parts[1:], parts[2:], strict=False)
    return any(_singular(a) in _ITEMS and b == "per" and TIMES.get(c) == 1.0 for a, b, c in triples)


def is_plural(before: str) -> bool:
    """Return whether the (s) after this text is of a plural, and no second: 4 CPU(s), but latency(s)."""
    return _COUNTED.search(before) is not None


def is_time(unit: str) -> bool | None:
    """Return whether less of a unit is better, as of ms/step or J; None of one that does not say."""
    over, separator, under = _parts(unit)
    if (over in TIMES or {over, over.lower()} & _ENERGIES.keys()) and under not in TIMES:
        return True
    return False if (separator and under in TIMES) or _RATE.fullmatch(unit) else None


def names_time(words: str) -> bool | None:
    """Return whether words name a time, False if they name a rate; None of neither or both."""
    is_rate, is_a_time = (form.search(words) is not None for form in (OF_RATES, OF_TIMES))
    return None if is_rate == is_a_time else is_a_time


def inverse(unit: str) -> str:
    """Return the unit upside down, s/it of it/s; "" if it is no ratio with a time in it."""
    over, bar, under = unit.replace(" ", "").partition("/")
    return f"{under}/{over}" if bar and (over in TIMES) != (under in TIMES) else ""


def relatives(unit: str) -> dict[str, float | None]:
    """Return units that programs change to as numbers grow or shrink, with how many of this unit each is.

    The inverse has None: s/it of it/s. Of it/s they are kit/s and more, and of ms/step us/step and s/step.
    """
    over, bar, under = unit.partition("/")
    others = [f"{each}{bar}{under}" for each in _SHORT_TIMES if over in TIMES]
    if over not in TIMES and bar and under in TIMES:
        base = over[1:] if over[:1] in _SHORT_PREFIXES and len(over) > 1 else over
        others = [f"{prefix}{each}{bar}{under}" for each in {over, base} for prefix in ("", *_SHORT_PREFIXES)]
    scaled: dict[str, float | None] = {}
    for each in others:
        try:
            scale = factor(each, unit)
        except NoNumberError:
            continue
        scaled |= {each: scale} if scale != 1.0 else {}
    return scaled | ({inverse(unit): None} if inverse(unit) else {})


def _parts(unit: str) -> tuple[str, str, str]:
    """Return what stands over a unit's bar, the bar, and what stands under it."""
    over, bar, under = re.sub(r"\s?(?:/|\bper\b)\s?", "/", unit).partition("/")
    over, under = (word.lower() if len(word) > 1 and word.lower() in TIMES else word for word in (over, under))
    return over, bar, under


def scales(unit: str) -> dict[str, float]:
    """Return how a unit can be understood: its root, and how many of the root it is."""
    over, bar, under = _parts(unit)
    numerators = {over: 1.0}
    if over in TIMES:
        numerators = {"s": TIMES[over]}
    base = over if over in _ENERGIES else over.lower()
    if base in _ENERGIES:
        numerators = {_ENERGIES[base][0]: _ENERGIES[base][1]}
    is_binary = _BINARY.fullmatch(over) is not None
    for prefix, scale in PREFIXES.items():
        is_cut = is_binary and not prefix.endswith("i")
        if over.startswith(prefix) and not is_cut and over not in TIMES and base not in _ENERGIES:
            numerators.setdefault(over.removeprefix(prefix).strip(), scale)
    if over.startswith("B "):  # B alone may be bytes
        numerators[over[2:]] = 1e9
    numerators = {_singular(root): scale for root, scale in numerators.items()}
    per, share = ("s", TIMES[under]) if under in TIMES else (under, 1.0)
    return {f"{root}{bar}{per}": scale / share for root, scale in numerators.items()}


def _singular(root: str) -> str:
    is_of_data = re.match(r"[kKMGT]?i?[bB](?:ps)?(?:/|$)", root)  # MB/s are bytes, and Mb/s bits
    root = root if is_of_data or len(root) == 1 else root.lower()
    return root[:-1] if len(root) > 3 and root.endswith("s") else root


def factor(unit: str, other: str) -> float:
    """Return how many of the other unit one of this unit is; raises NoNumberError where they are of different kinds."""
    if unit == other:
        return 1.0
    own, others = scales(unit), scales(other)
    common = [root for root in own if root in others]
    if common:
        return own[common[0]] / others[common[0]]
    if not unit or not other:
        named = unit or other
        raise NoNumberError(
            f"numbers have different units, as some have the unit {named}, and others have none",
            f"let the command print {named} after each number under every setting, or let the pattern match {named}, "
            f"e.g. ([0-9.]+) *{named}",
        )
    over, bar, under = _parts(unit)
    inverse = ", one the inverse of the other" if scales(f"{under}{bar}{over}").keys() & others.keys() else ""
    raise NoNumberError(
        f"numbers have different units, {unit} and {other}{inverse}",
        "let the command print one unit under every setting, or let the pattern match one unit alone",
    )
