"""Numbers as programs print them: separators, exponents, units, and how fine they are.

A pattern finds the place of a number in a line. What stands there may go on past the match, and is read whole:

    number    digits, grouped by  , . ' _  or a narrow space in threes, [. or , and decimals], [e, E or D and a power]
    spread    ± 0.1   +/- 0.1   (± 3%)   -13   /1.5       between a number and its unit, or behind it
    unit      a time, an energy, [k, M, Gi, million …] a rate (FPS, qps, GB), a/b, a per b      in brackets, too
              k, M, Gi, million … alone   %

    1,830.4   1'830.4   1_830          separators of thousands, in groups of three
    1.83e3   1.83E+03   1.83D+03       exponents
    1.83k   2 ms   917us   3.20s/it    units, which are compared

Nothing else is understood. Letters that touch a number are a unit of their own. Between two numbers without a blank
only marks of columns may stand: behind any other the number may go on, and it is refused. A number without a unit
keeps the words around it. Numbers with other words are doubtful: refused if they are far apart, else shown by a note.
Whatever can be read in two ways is refused: `12,84`, `1:23` and `1 830` are one number to some readers and two to
others. A separator that the pattern itself names, with a digit on its other side, parts two columns.

    Name (time in us)     Min     Mean          benchmark programs choose such a unit again in each run, and
    test_predict        598.1    667.9          {"latency": 1.2, "unit": "ms"} has another one in the next

Which number such a unit belongs to is not known. So nothing is converted: a run is refused if its units differ from the
units of the first run, and the difference explains why its numbers do.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.workload.digits import NO_BREAK, SEPARATORS, mark_after, mark_before, may_be_thousands, two_dots, worth
from tuner.workload.units import (
    HOURS,
    MINUTES,
    OF_RATES,
    PREFIXES,
    SECONDS,
    TIMES,
    NoNumberError,
    factor,
    inverse,
    is_plural,
    is_time,
    no_match,
    relatives,
    scales,
)

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")  # such as a BOM
_REDRAWN = re.compile(r"\r\n?|\x08+|\x1b\[[0-9;]*[ABD-Hdf]")  # a progress bar writes its line again and again
_PARTING = SEPARATORS.replace(".", "") + ": "  # what parts columns, too
_RUN = re.compile(rf"(?:(?<![.\w])\.)?[0-9]+(?:[{SEPARATORS}:][0-9]+)*(?:[eE][+-]?[0-9]+|[dD][+-]?[0-9]+(?![\w.]))?")
_DIGITS = re.compile(r"[0-9][0-9.,]*")
_FIGURE = re.compile(r"[0-9][0-9.,]*(?:[kKMG]\b)?")
# A number in any of its forms: 1012, 1,012.5, 1.012e+03, 1.02k, and the 1m2.1 or 1:02 of 1m2.1s and 1:02s.
_FORM = re.compile(
    r"(?<![\w.,:])(?:(?P<minutes>[0-9]+)[m:](?=[0-9.]+s\b))?"
    r"(?P<number>[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?P<thousands> ?[kK](?!\w))?"
)
_FIGURE_ALONE = re.compile(r"(?<![\w.])[0-9]")  # not of p50
_SPACED = re.compile(r"(?<![\w.,:])[0-9]{1,3}(?: [0-9]{3})+(?:[.,][0-9]+)?(?![\w:])")
_BEFORE = re.compile(r"[\s(\[=~≈$€£<>≤≥+]*")
_NEGATIVE = re.compile(r"(?:^|[\s=:(\[,])[-−]$")
_NOTHING_YET = frozenset(
    ["", "?", "-", "--", "n/a", "na", "nan", "-nan", "inf", "+inf", "-inf", "infinity", "none", "null"]
)
_TWO_MARKS = re.compile(r"[0-9]{1,3}\.[0-9]{3},[0-9]+")
_ONE_COMMA = re.compile(r"[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?")
# A number of a table whose columns have semicolons between them: its comma is the decimal point.
_CELL = re.compile(r';"?\0"?(?:;|$)|^"?\0"?;')
_PARTS = re.compile(r"[, :]")
_KEY = re.compile(r"\s*[\"']?[^\W\d][^,:=\n]*[:=]")  # of the next part of a list
_PADDED = re.compile(r"0[0-9]{2}(?![0-9])")  # what thousands have, and columns do not
# By a table that has no room. Dots alone may end a line, as of done in 12.5..., unless other columns are next to them.
_CUT = re.compile(r"[.,]{0,3}(?:…|(?P<dots>\.\.))\.{0,3}(?=\s|\Z|[|│])")
_NEXT_COLUMN, _LAST_COLUMN = re.compile(r"\s?[|│]|[ \t]{2,}\S"), re.compile(r"\S {2,}\Z")
_ALONE = "let its parentheses hold the number alone, e.g. ([0-9.]+)"
_PLAIN = "print plain numbers such as 1830.4, e.g. with LC_ALL=C; of two columns let the pattern match both"
_WIDER = "let the command print whole numbers, as in wider tables: env COLUMNS=200 …; or let the pattern name the dots"
_SECONDS_ALONE = "print seconds alone, as for example GNU time does with -f %e"
# Of one output: each takes about half a millisecond. Of more, whole stretches are read, in which ranks, epochs and
# other lines that take turns keep their shares: 240 is a multiple of 1 to 6, 8, 10, 12, 15, 16 and 20.
_MAX_NUMBERS, _STRETCH = 1200, 240
_WINDOW = 200  # characters: no number is longer
_SPREAD_WINDOW = 60  # characters: a number, its unit, and the mark of a spread
_OTHER_FIGURE = 1.5  # times as much: what one figure scatters by is less
_NEAR = 4.0  # times as much or as little: figures of one thing
# What libraries print around a number: np.float64(1.5), tf.Tensor(1.5, shape=(), dtype=float32), tensor(1.5).
_WRAPPED = re.compile(
    r"(?:<tf\.Tensor: shape=\(\), dtype=\w+, numpy="
    r"|(?:(?:np|numpy|jnp)\.)?(?:b?float|u?int)[0-9]+\(|(?:tf\.T|torch\.t|t)ensor\(|(?:(?:np|numpy|jnp)\.)?[aA]rray\()"
    r"(?P<number>-?(?:[0-9.]+(?:e[+-]?[0-9]+)?|nan|inf))"
    r"(?:, \w+=(?:\(\)|[\w.:'\"]+|<\w+>))*[)>]"
)
_BOUND = re.compile(  # but no arrow, no mark before a line, and no share: 99.3% <= 1 ms
    r"(?:(?<=[\s:(])>|(?:<|≤|≥)\s*|(?P<soft>[^\d%\s]\s*[<>]=\s*"
    r"|(?i:\b(?:(?:less|lower|fewer|more|greater|higher) than|at (?:most|least))\s)))\Z"
)
_POWER_OF_TEN = re.compile(r"\s?[x×*·]\s?10(?![0-9])|\s?(?:[eE]\s?[+-]?|[dD][+-])\s?[0-9]+(?!\w)")

_LETTERS = r"[^\W\d_]"
_RATIO = rf"{_LETTERS}*\s?(?:/|\bper\b)\s?{_LETTERS}+"
_TIME = "|".join(sorted(TIMES, key=len, reverse=True))
_MULTIPLE = "|".join(sorted(PREFIXES, key=len, reverse=True))
_RATES = r"(?i:b|bps|hz|[fiopqrt]ps|flops?|(?:cycle|event|sample|image|item|token|request|row|example)s?|quer(?:y|ies))"
_ENERGY = r"[uµμmkM]?(?:J|Wh?)|(?i:joules?|watts?)"
_KNOWN = rf"(?:{_MULTIPLE})? ?{_RATIO}|(?:{_MULTIPLE})?{_RATES}|(?i:{_TIME})|{_ENERGY}"
_KNOWN += rf"|(?:{_MULTIPLE})(?: {_RATIO}| {_RATES})?"
_ATTACHED = re.compile(rf"{_RATIO}| ?%|{_LETTERS}+ {_RATIO}|(?:{_MULTIPLE}) {_RATES}|{_LETTERS}+")
_SHARE = r"(?:/(?:gpu|device|core|worker|node|thread|process|socket|chip|card|instance|replica|rank|stream)s?)?"
_APART = re.compile(rf" ?[\[(](?P<enclosed>{_KNOWN})[\])]| (?P<unit>{_KNOWN})(?i:{_SHARE})(?!\w|/(?![0-9]))")
_TO_MINUS_ONE = re.compile(  # a rate as physicists write it: 12 s⁻¹, 12 img s^-1
    rf" ?(?:(?P<over>{_LETTERS}+)[ ·*.])?(?P<under>(?i:{_TIME}))(?:\^\{{?[-−]1\}}?|\*\*-1|⁻¹|(?<=[ ·]s)-1)(?![\w.])"
)
# What a label says: (ms), [us], lat_ms, images/sec; not min/avg.
_LABEL = re.compile(
    rf"[\[(](?P<enclosed>{_TIME})[\])]|(?<!_per)_(?P<ending>[nuµm]?s|[mu]?secs?|(?:milli|micro)?seconds|minutes)\b"
    rf"|(?<!per )(?<!/)\b(?P<full>(?:nano|micro|milli)?seconds|minutes|hours)\b"
    rf"|(?<![\w/])(?P<ratio>{_LETTERS}+/(?:s|sec|second)|(?:ns|us|µs|ms|s|sec)/{_LETTERS}+)(?![\w/])|\b(?P<word>ns|us|µs|ms)\b"
)
_KNOWN_UNIT = re.compile(rf"%|{_KNOWN}")
_COLUMN_BEGIN = re.compile(r"[,;|\t0-9]|\s{2}|\]\s+(?=[^\W\d])")
_COLUMN_END = re.compile(r"[,;|\t]|\s{2}|\S+[=:]")
_POWER = re.compile(r"\^|\*\*")
_OF_MANY = ("per", "for", "x", "×", "*", "·")  # a number behind them is part of what the one before them means
_BYTES = re.compile("[kKMGT]B")  # of 1000 or of 1024
_INSIDE = re.compile(r"[^\W\d][^\W\d]")
_PLURAL = re.compile(rf"(?<={_LETTERS}{{3}})s\b")
_PER_MANY = re.compile(rf" ?(?:/ ?|per |for )[0-9]+ ?(?!(?:{_TIME})\b){_LETTERS}{{2,}}")  # 950 ms/100 images
_WORDS = 6  # on each side, that a unit may have
_ABOVE = 4096  # characters in which the head of a table is looked for
_HEADING = re.compile(r"[\W\d_]*+[^\W\d_](?:.*(?:[(\[|;\t]|,\S)|.*\S  |.*:\s*\Z)")
_WORDS_TOGETHER = re.compile(r"\S+(?: \S+)*")
_CELLS = re.compile(r"[,;|\t]")
_FAR = 30.0  # times as much or as little: about half of the way to another unit, which is a thousand times as large
_MINIMUM_NEXT = re.compile(  # avg 1.2 / min 0.9 / max 1.5 ms, but 2 Min. 3 Sek.
    r" ?[/,]? ?(?:min\b[ :=]*[0-9]|M(?:in|IN)\b(?: ?[:=] ?[0-9]| [0-9][0-9.,]*[ /,]{1,3}M(?:ax|AX)\b))"
)
_UNIT_OF_ANOTHER = re.compile(r"(?<![\w.])[0-9][0-9.,]* ?[\[(]?$")  # not of p99
_STATISTIC = re.compile(
    r"p|avg|average|mean|min|minimum|max|maximum|median|std|stdev|percentile|st|nd|rd|th|latency|lat|time"
)
"""Words that lie between a label and its figures: Latency (ms): p50 1.2, p99 3.4."""
_OF_RATE = re.compile(r"p|avg|average|mean|min|minimum|max|maximum|median|std|stdev|percentile|st|nd|rd|th")
"""The statistics that a rate may have: in img/s: 100, latency: 80 the second number is a time."""
_OF_RATE_ALONE = re.compile(r"avg|average|mean|min|minimum|max|maximum|median")
"""The statistics of a rate whose first number has no word: in req/s: 833 p99: 1.2 the second is a time, too."""
_WORD = re.compile(r"(?<![0-9.])[a-z]+")  # not the k of 20k
_WORD_ALONE = re.compile(r"(?<!\w)[^\W\d_]+(?:_[^\W\d_]+)*(?!\w)")
_SPREAD = re.compile(r"(?: ?(?:/|\(?(?:±|\+/?-|[-–](?! ))) ?[0-9.,]+(?:[eE][+-]?[0-9]+)?(?: ?%)?\)?)+")
_OF_SPREAD = re.compile(  # what the spread stands behind: 12.3 ms ±   12.3 ms (std
    r"(?P<digit>[0-9])[^0-9]*(?P<sign>±|\+/?-)\s*\Z"
    rf"|(?<![\w.])(?P<number>[0-9]+(?:[.,][0-9]+)*(?:[eE][+-]?[0-9]+)?)(?: ?(?P<unit>{_KNOWN}))?[,;]?\s+[(\"']*"
    r"(?P<word>(?i:std(?:\.? ?dev\.?)?|stdev|stddev|σ))[\"']?\s*[:=]?\s*\Z"
)
_WORD_AND = r"(?:(?:and|und|et|y|e|en) )?"
_AND = rf"(?:(?:(?<=[Mm]in)|(?<=[Mm]ins)|(?<=мин)|(?<=hr)|(?<=hrs))\.)?(?: ?[:,&+-])? ?{_WORD_AND}"
_ODD = re.compile(r"[&+-]| :|: ")  # 5 min - 12 s: one time or two figures
_FINE = "|".join(sorted((word for word, seconds in TIMES.items() if seconds < 1), key=len, reverse=True))
_S = r"(?P<s>[0-9]+(?:[.,][0-9]+)?)"
_BEGIN = r"(?<!\w)(?<![0-9][.,:])"
_DURATIONS = [
    re.compile(  # 1m12.3s, 1 hour, 2 minutes, 1 Min. 59 Sek.
        rf"{_BEGIN}(?:(?P<d>[0-9]+) ?(?:d|days?){_AND})?(?:(?P<h>[0-9]+) ?(?:h|{HOURS}){_AND})?"
        rf"(?:(?P<m>[0-9]+) ?(?:m|{MINUTES}){_AND})?(?:{_S} ?(?:s|{SECONDS})(?: ?{_WORD_AND}(?=[0-9]))?)?"
        rf"(?P<rest>[0-9.]+ ?(?:{_FINE}))?(?<! )(?![A-Za-z/]| per )"
    ),
    re.compile(rf"\bP(?:(?P<d>[0-9]+)D)?T(?:(?P<h>[0-9]+)H)?(?:(?P<m>[0-9]+)M)?(?:{_S}S)?\b"),  # ISO 8601: PT1M2.3S
    re.compile(rf"{_BEGIN}(?P<m>[0-9]+)['′](?P<s>[0-5]?[0-9](?:[.,][0-9]+)?)(?:[\"″]|'')"),
]
# Without an s this may be a size and another figure: yolo 30m:12.5.
_WITHOUT_S = re.compile(rf"{_BEGIN}(?P<m>[0-5]?[0-9])m(?P<gap>[: ]?)(?P<s>[0-5]?[0-9](?:\.[0-9]+)?)\s*\Z")
_OF_TIME = re.compile(
    r"(?i)\b(?:real|user|sys|took|takes|in|after|for|within|total|elapsed|duration|\w*time|wall|spent|needed|lasted"
    r"|done|finished|completed|ended|avg|average|mean|median)\W{0,4}\Z"
)
_COUNTER = re.compile(r"[^\W\d_][ #]{0,2}\Z")  # epoch 1:34.5s
_LABELLED = re.compile(  # minutes: 1, seconds: 59.1   tv_sec=1 tv_usec=12000; no rates, and no minimum
    r"(?i)(?<![\w/])(?<!per )(?<!/ )(?:tv_)?(?:"
    r"(?:minutes?|mins?(?!=))\W{1,4}0*[1-9][0-9]*\W{1,4}(?:tv_)?(?:seconds?|secs?)\W{1,4}[0-5]?[0-9](?:\.[0-9]+)?"
    r"|(?:seconds?|secs?)\W{1,4}0*[1-9][0-9]*\W{1,4}(?:tv_)?(?:m(?:s(?:ecs?)?|illi\w*)\W{1,4}[0-9]{1,3}"
    r"|(?:[uµ]s(?:ecs?)?|micro\w*)\W{1,4}[0-9]{1,6}|n(?:s(?:ecs?)?|ano\w*)\W{1,4}[0-9]{1,9}))(?![.,]?[0-9])"
)
_COARSE = r"(?i:h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?)"
_CLOCK = re.compile(  # 1:02.3   0 days 00:00:52.1   1:02.30elapsed, but no 8:52 img/s
    rf"{_BEGIN}(?:(?P<d>[0-9]+) days?,? )?(?:(?P<h>[0-9]+):)?(?P<m>[0-9]{{1,2}}):"
    rf"(?P<s>[0-5][0-9](?:[.,][0-9]++)?+)(?:(?P<word>elapsed|{_COARSE})(?![\w/])|(?!\w|:| ?(?:{_RATIO})))"
)
_MAY_BE_TIME = re.compile(r"[^\W\d_]|[:'′]")  # what all forms of a time have
_PART_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_MOST = {"h": 24.0, "m": 60.0, "s": 60.0}  # of a part that follows a larger one
# Units that stand away from their numbers: in the head of a table, in a field beside them, or at a list's end.
_RATE = rf"(?:{_MULTIPLE})? ?(?:[A-Za-z]+/(?:{_TIME})|[A-Za-z]*ps|Hz|flops)"
_INVERSE = rf"(?:{_TIME})/[A-Za-z]+"
_UNIT = rf"(?P<unit>(?i:{_TIME})|{_RATE}|{_MULTIPLE})"
_UNIT_ALONE = rf"(?P<unit>(?i:{_TIME})|{_RATE}|{_INVERSE}|{_MULTIPLE})"
_FIELD = re.compile(rf"(?i:units?)[\"']?\s{{0,99}}[:=]\s{{0,99}}[\"']?{_UNIT_ALONE}(?![\w/])")
_CELL_ALONE = re.compile(
    rf"(?:^|[,;|\t\"'])[^\S\n]{{0,99}}+{_UNIT_ALONE}[^\S\n]{{0,99}}+(?=$|[,;|\t\"'])", re.MULTILINE
)
_UNIT_LINE = re.compile(r"[^\n]*\n(\s*(?i:units?)\b[^\n]*)")
_OF_ALL = re.compile(  # in a heading, or before the labels of a line: (time in us), timings in us: first: 1.2
    rf"\b[Ii]n (?P<in>{_TIME})(?:[)\]]|:(?=\s*\Z|\s+[^\W\d]))|[\[(](?P<enclosed>{_TIME})[\])]:\s*\Z"
)
_ENDS_LOOKED_AT = 1 << 16  # characters at each end of an output
_PLACES = [
    re.compile(rf"[\[(]{_UNIT}[\])]"),
    re.compile(rf"(?<![0-9])(?<![0-9] )[\[(](?P<unit>{_INVERSE})[\])]"),
    re.compile(rf"\b(?i:in) {_UNIT_ALONE}(?![\w/])"),
    _FIELD,
    re.compile(r"(?<=\w_)(?<!per_)(?P<unit>[nuµm]?s|[mu]?secs?|(?:milli|micro)?seconds)(?=[\s,;|\"']|\Z)"),
    _CELL_ALONE,
    # Behind a number: the end of a list such as 1.2, 3.4 ms, and what stands apart, [1.2]  ms. The rate of a progress
    # bar, which turns over, is the bar's own.
    re.compile(rf"(?<![\w.])[0-9][0-9.,]{{0,99}}+(?:[^\w\n]|_){{0,4}}{_UNIT}(?![\w/])"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The numbers of a run, in their order, all in one unit.

    `resolution` is the smallest difference that they can show, 1 of whole numbers. `n_left_out` numbers were 0 or not
    finite, as of counters that report before anything was counted.
    """

    values: tuple[float, ...]
    resolution: float
    unit: str = ""
    n_left_out: int = 0
    units_around: tuple[str, ...] = ()
    """Of numbers without a unit: those that the output names elsewhere."""
    around: str = ""
    """The words next to most of the numbers, # in their place, then the heading above them in brackets.

    If the unit is known, it is what the unit is of, as ms/100 images.
    """
    units_above: tuple[str, ...] = ()
    """Of numbers in a table with marks between its columns: the units in the head of their column."""
    unit_field: str = ""
    """Of numbers without a unit: the only one that stands in a field of its own, as "unit": "ms"."""
    unit_of_all: str = ""
    """Of numbers without a unit: the unit that a heading gives all numbers below it, as (time in us)."""
    figures: tuple[str, ...] = ()
    """If the numbers are of two or three figures that are far apart: the words before each, as train # and eval #."""

    def in_unit(self, unit: str) -> Reading:
        """Return the reading in the unit of another; raises NoNumberError where one cannot be had from the other."""
        scale = factor(self.unit, unit)
        values = tuple(scale * each for each in self.values)
        return replace(self, values=values, resolution=scale * self.resolution, unit=unit)

    def like(self, first: Reading) -> Reading:
        """Return the reading in the unit of the first run's; raises NoNumberError where the two may not be compared.

        Words that are not known may be units: numbers beside other words are doubtful if they differ by as much as a
        unit does.
        """
        reading = self.in_unit(first.unit)
        if reading.unit_field and first.unit_field and set(_scales(reading.unit_field, first.unit_field)) - {1.0}:
            raise _other_unit(reading.unit_field, first.unit_field)
        check_alike(reading.values, reading.units_around, first.values, first.units_around)
        one, other = statistics.median(reading.values), statistics.median(first.values)
        if may_be_thousands(reading.values, reading.resolution, first.values, first.resolution):
            raise NoNumberError(
                f"{one:g} stands where the first run has {other:g}, "
                "and a dot or comma may part thousands in one of them",
                _PLAIN,
            )
        is_known = "#" not in reading.around + first.around  # and so the numbers are of other things: ms/100 images
        units, first_units = reading.units_above, first.units_above
        has_other_head = len(units) == len(first_units) == 1 and units != first_units  # model,lat_us
        if reading.around != first.around and (is_known or has_other_head or not 1 / _FAR < one / other < _FAR):
            raise NoNumberError(
                f"{one:g} stands in '{reading.around}', and {other:g} in '{first.around}' in the first run",
                "let the command print the same words next to its number under every setting, or a known unit, as ms",
            )
        return reading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Number:
    """A number as it stands in a line: what it is worth in its unit, and its text."""

    value: float
    resolution: float
    unit: str
    text: str
    around: str = ""
    head: str = ""
    units_beside: tuple[str, ...] = ()
    unit_of_all: str = ""
    label: str = ""


def plain(output: str) -> str:
    """Return the lines of an output as a terminal shows them: no escape codes, each state of a progress bar a line."""
    return _ESCAPES.sub("", _REDRAWN.sub("\n", _UNSEEN.sub("", output.replace("\0", ""))))


def read(pattern: str, output: str) -> Reading:
    """Return the numbers that a pattern with at most one group finds in an output; raises NoNumberError."""
    lines = plain(output)
    matches = list(re.finditer(pattern, lines, re.MULTILINE))
    if not matches:  # it may be of what was removed
        matches, lines = list(re.finditer(pattern, output, re.MULTILINE)), output
    if not matches or any(_WRAPPED.match(each[each.re.groups] or "") for each in matches):
        lines = _WRAPPED.sub(r"\g<number>", lines if matches else plain(output))
        matches = list(re.finditer(pattern, lines, re.MULTILINE))
    numbers = list(_numbers(_some(_of_own_label(matches, lines)), lines))
    if not numbers:
        raise no_match(pattern, plain(output))
    good = [each for each in numbers if isinstance(each, _Number)]
    if differing := two_dots(each.text for each in good):
        raise NoNumberError(
            f"'{pattern}' matched {differing[0]} and {differing[1]}, and a dot parts thousands in one of them",
            _PLAIN,
        )
    late = list(itertools.dropwhile(lambda each: not isinstance(each, _Number), numbers))
    if 2 * len(good) <= len(late) or not good:
        bad = [each for each in numbers if not isinstance(each, _Number)]
        found = f"'{pattern}' matched {bad[-1] or 'nothing'} ({len(bad)} of {len(numbers)} numbers)"
        hint = "let the pattern match the lines of the measurement alone"
        raise NoNumberError(f"{found}; expected finite numbers above 0", hint)
    readings = [Reading(values=(each.value,), resolution=each.resolution, unit=each.unit) for each in good]
    converted = [each.in_unit(readings[0].unit) for each in readings]
    ordered = sorted(converted, key=lambda each: each.values)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]  # what the median is made of
    around = statistics.mode(each.around for each in good)
    typical = next(each for each in good if each.around == around)
    fields, above = typical.units_beside, units_in(typical.head)
    reading = Reading(
        values=tuple(each.values[0] for each in converted),
        resolution=max(each.resolution for each in middle),
        unit=readings[0].unit,
        n_left_out=len(numbers) - len(good),
        units_around=() if readings[0].unit else units_in(lines),
        around=around,
        units_above=above,
        unit_field=fields[0] if len(fields) == 1 and not readings[0].unit else "",
        unit_of_all=above[0] if len(above) == 1 else typical.unit_of_all,
        figures=_figures([each.label for each in good], [each.values[0] for each in converted]),
    )
    for other, scale in relatives(reading.unit).items():
        if other in lines or other.replace("/", "/ ") in lines:
            _refuse_lost(pattern, lines, reading, other, scale)
    _refuse_other_forms(pattern, lines, reading)
    return reading


def _figures(labels: Sequence[str], values: Sequence[float]) -> tuple[str, ...]:
    """Return the labels of two or three figures that a run's numbers are of, () if they are of one, or not far apart.

    Each has a fifth of the numbers. The first number is left out if others have its label: it may be of a warm-up.
    """
    by_label: dict[str, list[float]] = {}
    for label, value in itertools.islice(zip(labels, values, strict=True), int(labels.count(labels[0]) > 1), None):
        by_label.setdefault(label, []).append(value)
    medians = {label: statistics.median(own) for label, own in by_label.items() if 5 * len(own) >= len(values)}
    is_known = 2 <= len(medians) <= 3 and "" not in labels
    return tuple(medians) if is_known and max(medians.values()) > _OTHER_FIGURE * min(medians.values()) else ()


def _of_own_label(matches: Sequence[re.Match[str]], lines: str) -> Sequence[re.Match[str]]:
    """Return the matches without those that begin inside a longer word, if others do not: time: 1.2  data_time: 0.3."""
    own = [each for each in matches if not each.start() or not _INSIDE.match(lines, each.start() - 1)]
    return own or matches


def _some(matches: Sequence[re.Match[str]]) -> Sequence[re.Match[str]]:
    """Return all matches, or of very many a few evenly spaced stretches, the first and the last among them."""
    if len(matches) <= _MAX_NUMBERS:
        return matches
    n = _MAX_NUMBERS // _STRETCH
    begins = [i * (len(matches) - _STRETCH) // (n - 1) for i in range(n)]
    return [match for begin in begins for match in matches[begin : begin + _STRETCH]]


def _refuse_lost(pattern: str, lines: str, reading: Reading, other: str, scale: float | None) -> None:
    """Raise NoNumberError if numbers that the pattern looks for have another unit on some lines: 1.10s/it, 1.05kit/s.

    A progress bar prints the slow half of its rates upside down, if they are about 1, and the fast half with a prefix,
    if they are about 1000. The pattern misses that half. A few numbers before the first match are of a start, and
    numbers far from the others are of something else, such as a bar around this one. So are those of a time in a line
    of other words, such as a total. `scale` is how many of the reading's unit one of the `other` is, None of the
    inverse.
    """
    # Of the unit " img" tqdm prints 1.05 img/s and 1.10s/ img.
    word = re.compile(rf"(?<![A-Za-z]){re.escape(other).replace('/', '/ ?')}(?![A-Za-z/])")
    usual, is_begun, n_before = statistics.median(reading.values), False, 0
    words = {_DIGITS.sub("0", line) for line in lines.splitlines() if re.search(pattern, line)}
    for line in lines.splitlines():
        if re.search(pattern, line):
            is_begun = True
            continue
        if not word.search(line):
            continue
        found: list[float] = []
        for gap in ("", " "):
            turned = word.sub(gap + reading.unit, line)
            if scale is not None and "/" not in other and _DIGITS.sub("0", turned) not in words:
                continue
            with contextlib.suppress(NoNumberError):
                numbers = list(_numbers(re.finditer(pattern, turned), turned))
                found += [each.value for each in numbers if isinstance(each, _Number)]
        if not any(1 / _NEAR <= (usual * v if scale is None else v * scale / usual) <= _NEAR for v in found):
            continue
        n_before += not is_begun
        if is_begun or n_before > len(reading.values):
            field = "rate_inv_fmt" if is_time(reading.unit) else "rate_noinv_fmt"
            hint = f"let the command print one unit alone: a bar of tqdm does with {{{field}}} in its bar_format"
            if scale is not None:
                hint = f"let the pattern match both, such as ([0-9.]+) *(?:{reading.unit}|{other})"
            raise NoNumberError(
                f"'{pattern}' matches numbers in {reading.unit} alone, and others are in {other}: "
                f"'{_short(line.strip())}'",
                hint,
            )


def _refuse_other_forms(pattern: str, lines: str, reading: Reading) -> None:
    """Raise NoNumberError if the pattern misses the larger or the smaller numbers of its lines for their form.

    Of 985.1 and 1,012.5 a pattern of digits and a dot matches the smaller, whatever the setting. Numbers that are
    missed on both sides of the others are no such half, and neither is one whole number among decimals.
    """
    has_matched = {line: re.search(pattern, line) is not None for line in lines.splitlines()}
    words = {_FORM.sub("0", line) for line, is_match in has_matched.items() if is_match}
    lost: list[tuple[float, str]] = []
    low, high, is_whole = min(reading.values), max(reading.values), True
    for line, is_match in has_matched.items():
        for number in () if is_match or _FORM.sub("0", line) not in words else _FORM.finditer(line):
            value = _other_form(pattern, line, number)
            if value is not None and high / _NEAR <= value <= low * _NEAR:
                lost.append((value, line))
                is_whole = is_whole and number[0].isdecimal()
    if len(lost) > is_whole and (min(lost)[0] > high or max(lost)[0] < low):
        raise NoNumberError(
            f"'{pattern}' matches numbers such as {reading.values[-1]:g}, and not the one in "
            f"'{_short(lost[-1][1].strip())}'",
            "let the parentheses match a number in any form, such as (\\S+)",
        )


def _other_form(pattern: str, line: str, number: re.Match[str]) -> float | None:
    """Return the number that a pattern would match if a line had it in another form, None if it would not."""
    value = float(number["number"].replace(",", "")) * (1e3 if number["thousands"] else 1.0)
    value += 60 * float(number["minutes"] or 0)
    for form, unit in ((f"{value:.10g}", 1.0), (f"{value:.1f}", 1.0), (f"{value / 1e3:.10g}k", 1e3)):
        begin, end = number.start(), number.start() + len(form)
        changed = f"{line[:begin]}{form}{line[number.end() :]}"
        for match in re.finditer(pattern, changed) if float(form.rstrip("k")) * unit == value else ():
            first, last = match.span(match.re.groups)
            if (first, last) == (begin, end - form.endswith("k")) and match.end() >= end:
                return value / unit
    return None


def _numbers(matches: Iterable[re.Match[str]], lines: str) -> Iterator[_Number | str]:
    """Yield what each match stands for: a number above 0, or the text of what is none yet; raises NoNumberError.

    The spread of a number is left out, unless the pattern names it.
    """
    last_end, n_read, lost = -1, 0, list[NoNumberError]()
    for match in matches:
        begin, end = match.span(match.re.groups)
        text = "" if begin < 0 else lines[begin:end]
        if text.strip().lower() in _NOTHING_YET:
            yield text.strip()
            continue
        before = _BEFORE.match(text)
        first = begin + (0 if before is None else before.end())
        if not re.match(r"[-−]?\.?[0-9]", lines[first:end]):
            hint = _ALONE if match.re.groups else "put parentheses around the part of the pattern that is the number"
            raise NoNumberError(f"'{match.re.pattern}' matched '{_short(text)}', which is not a number", hint)
        first += lines[first] in "-−"
        if duration := _duration(match, first, lines):
            if duration[0] >= last_end:
                yield duration[1]
            last_end, n_read = duration[0] + len(duration[1].text), n_read + 1
            continue
        begin, end = _extent(match, first, lines)
        if begin < last_end:  # another part of a number that was read
            if _PARTS.search(lines[begin:end]):
                raise _ambiguous(match, lines[begin:end])
            continue
        if spread := _spread(match, lines, begin):
            mark, number_end = spread
            if number_end > last_end:
                found = (
                    f"'{match.re.pattern}' matched '{lines[begin:end]}' behind '{mark}', the spread of another number"
                )
                hint = (
                    f"let the pattern match the number before '{mark}'; if the spread is meant, let it match '{mark}'"
                )
                lost.append(NoNumberError(found, hint))
            last_end = end
            continue
        letter = lines[begin - 1 : begin]  # scripts without capitals write no spaces, and a name may end there
        if (letter == "_" or letter.lower() != letter.upper()) and not _is_named(match, lines, (begin - 1, begin)):
            word = re.search(r"\w*$", lines[max(0, begin - _WINDOW) : begin])
            raise NoNumberError(
                f"'{match.re.pattern}' matched '{lines[begin:end]}' of '{word[0] if word else ''}{lines[begin:end]}', "
                "which is part of a name",
                "let the pattern name what stands right before the number, e.g. ': ([0-9.]+)'",
            )
        last_end, n_read = end, n_read + 1
        bound = _BOUND.search(lines[max(lines.rfind("\n", 0, begin) + 1, begin - 16) : begin])
        is_soft = bound is not None and bound["soft"] is not None  # which the pattern may name
        if bound and lines[end : end + 1] != ">" and not (is_soft and _is_named(match, lines, (begin - 2, begin))):
            shown = _short((bound["soft"] or lines[max(0, begin - 2) : begin]).lstrip(" :(") + lines[begin:end])
            raise NoNumberError(
                f"'{match.re.pattern}' matched '{shown}', which is a bound and no number",
                "let the command print the number itself, with more digits or in a finer unit",
            )
        number = _number(lines, begin, end, match)
        sign = "-" if _NEGATIVE.search(lines[max(0, begin - 2) : begin]) else ""
        yield number if 0 < number.value < math.inf and not sign else sign + number.text
    if lost and len(lost) >= n_read:  # else of a summary below the numbers themselves
        raise lost[-1]


def _spread(match: re.Match[str], lines: str, begin: int) -> tuple[str, int] | None:
    """Return what marks a number as the spread of one before it, and where that ends; None if nothing does.

    A pattern that names the mark means the spread.
    """
    window_begin = max(lines.rfind("\n", 0, begin) + 1, begin - _SPREAD_WINDOW)
    found = _OF_SPREAD.search(lines[window_begin:begin])
    if found is None:
        return None
    mark = "sign" if found["sign"] else "word"
    span = (window_begin + found.start(mark), window_begin + found.end(mark))
    end = window_begin + found.end("digit" if found["sign"] else "number")
    if mark == "word" and bool(found["unit"]) != _has_unit(lines, begin):  # 1000 std 33.5 items/s
        return None
    return None if _is_named(match, lines, span) else (found[mark], end)


def _has_unit(lines: str, begin: int) -> bool:
    """Return whether a known unit is behind the number that begins there."""
    return re.compile(rf"[0-9.,]+ ?(?:{_KNOWN})(?!\w)").match(lines, begin) is not None


def _duration(match: re.Match[str], first: int, lines: str) -> tuple[int, _Number] | None:
    """Return where the duration of several parts begins that holds the digit `first`, and what it is (s); else None.

    Raises NoNumberError for one that may be two figures, 1s 250ms, and for a part of 1:02.3.
    """
    window_begin = max(lines.rfind("\n", 0, first) + 1, first - _WINDOW)
    window = lines[window_begin : first + _WINDOW].partition("\n")[0]
    at = first - window_begin
    if not _MAY_BE_TIME.search(window):
        return None
    for form in _DURATIONS:
        for each in form.finditer(window):
            parts = {unit: text for unit, text in each.groupdict().items() if text}
            is_two = "rest" in parts and "." in parts.get("s", "")  # 12.5 s 980 ms
            is_whole = len(parts) > 1 or (parts and each[0][0] == "P")
            if is_whole and not is_two and each.start() <= at < each.end():
                is_odd = _ODD.search(each[0]) is not None
                smaller = {unit: float(parts[unit].replace(",", ".")) for unit in list(parts)[1:] if unit in _MOST}
                if is_odd and any(value >= _MOST[unit] for unit, value in smaller.items()):
                    continue  # 3 min - 250 s
                if "rest" in parts or is_odd:
                    raise _ambiguous(match, each[0], _SECONDS_ALONE)
                return each.start() + window_begin, _in_seconds(parts, each[0])
    for each in _WITHOUT_S.finditer(window):
        if each.start() <= at < each.end():
            earlier, group = window[: each.start()], match.span(match.re.groups)
            is_held = group[0] <= each.start() + window_begin and each.end("s") + window_begin <= group[1]
            is_time_word, is_blank = _OF_TIME.search(earlier) is not None, each["gap"] == " "
            begins_line = not earlier.strip()
            if not is_blank and (is_held or is_time_word or (not each["gap"] and begins_line)):
                return each.start() + window_begin, _in_seconds({"m": each["m"], "s": each["s"]}, each[0])
            if is_time_word or (not is_blank and (begins_line or earlier.rstrip()[-1:] in (":", "="))):
                raise _ambiguous(match, each[0], _SECONDS_ALONE)
    for each in _LABELLED.finditer(window):
        if each.start() <= at < each.end():
            raise _ambiguous(match, each[0], _SECONDS_ALONE)
    for each in _CLOCK.finditer(window):
        if each.start() <= at < each.end():
            parts = {unit: text for unit, text in each.groupdict().items() if text}
            word, group = parts.pop("word", None), match.span(match.re.groups)
            is_held = group[0] <= each.start() + window_begin and each.end("s") + window_begin <= group[1]
            earlier = window[: each.start()]
            is_counted = _COUNTER.search(earlier) is not None and _OF_TIME.search(earlier) is None
            is_of_time = word == "s" if word else "h" in parts or ("." in parts["s"] and not is_counted)
            if word == "elapsed" or (is_held and is_of_time):
                return each.start() + window_begin, _in_seconds(parts, each[0])
            if word and is_counted:
                continue
            raise NoNumberError(
                f"'{match.re.pattern}' matched '{_short(match[match.re.groups])}' of the time '{each[0]}'",
                f"{_SECONDS_ALONE}; of two columns let something else than a colon part them",
            )
    return None


def _in_seconds(parts: Mapping[str, str], text: str) -> _Number:
    """Return the time whose parts are given from the largest to the smallest."""
    texts = {unit: part.replace(",", ".") for unit, part in parts.items()}
    last = list(texts)[-1]
    value = sum(_PART_S[unit] * float(part) for unit, part in texts.items())
    resolution = _PART_S[last] * 10.0 ** -len(texts[last].partition(".")[2])
    return _Number(value=value, resolution=resolution, unit="s", text=text)


def _extent(match: re.Match[str], first: int, lines: str) -> tuple[int, int]:
    """Return where the number begins and ends whose digit `first` the group holds; raises NoNumberError.

    It may begin before the group, or end after it.
    """
    group_end = match.end(match.re.groups)
    window_begin = max(lines.rfind("\n", 0, first) + 1, first - _WINDOW)
    window = lines[window_begin : first + _WINDOW].split("\n")[0]
    runs = [each.span() for form in (_SPACED, _RUN) for each in form.finditer(window)]
    held = next((span for span in runs if span[0] <= first - window_begin < span[1]), None)
    if held is None:  # the dot of rate.985, which may be of the name
        raise _ambiguous(match, lines[max(window_begin, first - 1) : group_end])
    begin, end = held[0] + window_begin, held[1] + window_begin
    if worth(lines[begin:end]) is None and "." in lines[begin:end].rpartition(",")[0]:
        # 12.5,13.2 is no number in any country.
        begin = max(begin, lines.rfind(",", begin, first) + 1)
        end = min(end, lines.find(",", first) % (len(lines) + 1))
        if "." not in lines[begin:end] and _PADDED.match(lines, end + 1):
            raise _ambiguous(match, lines[begin : end + 4])
    last = max(at + 1 for at in range(first, min(end, group_end)) if lines[at] in "0123456789")
    is_bare = not re.search(r"[^0-9.,\s]", window)
    is_column = False
    if begin < first and lines[first - 1] in _PARTING:
        is_column = _is_column(match, lines, (begin, end), first - 1, is_bare=is_bare)
        begin = first if is_column else begin
    if group_end < end and lines[last] in _PARTING:
        is_next = is_column and lines[last] == lines[first - 1]
        if is_next or _is_column(match, lines, (begin, end), last, is_bare=is_bare):
            end = last
    if re.search(r"[0-9]", lines[end:group_end]):
        shown = _short(match[match.re.groups])
        raise NoNumberError(f"'{match.re.pattern}' matched '{shown}', which is not one number", _ALONE)
    _refuse_marks(match, lines, begin, end)
    goes_on = begin < match.start(match.re.groups) or group_end < end
    if goes_on and _TWO_MARKS.fullmatch(lines[begin:end]):
        raise _ambiguous(match, lines[begin:end])
    return begin, end


def _refuse_marks(match: re.Match[str], lines: str, begin: int, end: int) -> None:
    """Raise NoNumberError where a number may go on before or after what was found, behind a mark: 1`830, 10^3, 12½.

    A mark that the pattern names parts columns.
    """
    before, after = mark_before(lines[max(0, begin - _WINDOW) : begin]), mark_after(lines[end : end + _WINDOW])
    cut = _CUT.match(lines, end)
    if cut and cut["dots"]:
        line_begin = max(lines.rfind("\n", 0, begin) + 1, begin - _WINDOW)
        ends_line = not lines[cut.end() : cut.end() + _WINDOW].partition("\n")[0].strip()
        is_last = ends_line and _LAST_COLUMN.search(lines[line_begin:begin])
        cut = cut if is_last or _NEXT_COLUMN.match(lines, cut.end()) else None
    if cut and not _is_named(match, lines, cut.span()):
        text = lines[begin:end]
        raise NoNumberError(f"'{match.re.pattern}' matched '{text}' of '{text}{cut[0]}', which is cut", _WIDER)
    for mark, at in ((before, begin - len(before)), (after, end)):
        if mark and not _is_named(match, lines, (at, at + len(mark))):
            shown = re.search(r"[0-9.]*\Z", lines[max(0, at - _WINDOW) : at])
            rest = re.match(r"[\d.]*", lines[at + len(mark) :])
            raise _ambiguous(match, f"{shown[0] if shown else ''}{mark}{rest[0] if rest else ''}")


def _is_column(match: re.Match[str], lines: str, run: tuple[int, int], edge: int, *, is_bare: bool) -> bool:
    """Return whether the separator at `edge` of a run parts columns, and not a number; raises NoNumberError.

    It does where the pattern names it, or the digits on its other side, and where the same separator comes before or
    after the run, as in a list. A line of nothing else than numbers (`is_bare`) can be read in both ways, and so can a
    part of a list that begins with a word: rate=98,830,loss=3.
    """
    begin, end = run
    first, mark = match.start(match.re.groups), lines[edge]
    is_left = edge < first
    other = (begin, edge) if is_left else (edge + 1, end)
    before, after = lines[begin - 1 : begin], lines[end : end + 2]
    is_list = (before == mark and mark != ":") or (after[:1] == mark and not after[1:].isspace() and len(after) == 2)
    is_list = is_list or (before == "[" and after[:1] in ("]", ","))
    is_readable = worth(lines[begin:end]) is not None
    if _is_named(match, lines, other):
        return True
    if is_list and mark != " ":
        is_row = before in (mark, "[", "\n", "")
        if _PADDED.match(lines, edge + 1) and is_readable and not is_row:
            return False  # rate=1,012.4,loss=3
        if _PADDED.match(lines, edge + 1) or (not is_row and (is_readable or _KEY.match(lines, end + 1))):
            raise _ambiguous(match, lines[begin:end])  # rate=98,830.4,loss=3
        return True
    if _is_named(match, lines, (edge, edge + 1)):
        if is_left or is_bare or not is_readable:
            return True
        raise _ambiguous(match, lines[begin:end])
    if mark == " " or (mark == "," and is_bare):
        raise _ambiguous(match, lines[begin:end])
    return False


def _ambiguous(match: re.Match[str], text: str, hint: str = _PLAIN) -> NoNumberError:
    found = f"'{match.re.pattern}' matched '{_short(match[0])}' of '{_short(text)}'"
    return NoNumberError(f"{found}, which is one number or two", hint)


def _is_named(match: re.Match[str], lines: str, span: tuple[int, int]) -> bool:
    """Return whether the pattern matches here only because of the characters of a span."""
    begin = lines.rfind("\n", 0, match.start()) + 1
    blank = "\0" * (span[1] - span[0])
    other_lines = f"{lines[begin : span[0]]}{blank}{lines[span[1] : match.end() + _WINDOW]}"
    other = match.re.search(other_lines, match.start() - begin)
    return other is None or other.start(match.re.groups) != match.start(match.re.groups) - begin


def _number(lines: str, begin: int, end: int, match: re.Match[str]) -> _Number:
    """Return the number between two places, with the unit next to it; raises NoNumberError."""
    text, after = lines[begin:end], lines[end : end + 80].partition("\n")[0]
    line_begin = max(lines.rfind("\n", 0, begin) + 1, begin - _WINDOW)
    parsed, shown = worth(text), text
    if _CELL.search(f"{lines[line_begin:begin]}\0{after}") and _ONE_COMMA.fullmatch(text):
        parsed = worth(text.replace(",", "."))
    if power := _POWER_OF_TEN.match(after):
        parsed, shown = None, f"{text}{power[0]}{after[power.end() :].split(' ')[0]}"
    if parsed is None:
        raise NoNumberError(
            f"'{match.re.pattern}' matched '{_short(match[match.re.groups])}' of '{_short(shown)}', "
            "which can be read in two ways",
            _SECONDS_ALONE if ":" in shown else _PLAIN,
        )
    value, resolution = parsed
    after = "" if _MINIMUM_NEXT.match(after) else re.sub(f"[{NO_BREAK}]", " ", after)
    attached, apart = _ATTACHED.match(after), _APART.match(after)
    if not attached and not apart and (spread := _SPREAD.match(after)):
        attached, apart = _ATTACHED.match(after, spread.end()), _APART.match(after, spread.end())
    is_in_word = attached and after[attached.end() : attached.end() + 1].isdecimal()  # 1M2.5S
    if is_in_word and not _is_named(match, lines, (end, end + 1)):
        raise _ambiguous(match, text + after.split(" ")[0])
    own = attached or apart
    unit = attached[0] if attached else apart[apart.lastgroup or 0] if apart else _labelled(lines[line_begin:begin])
    if inverted := _TO_MINUS_ONE.match(after):
        unit = f"{inverted['over'] or ''}/{inverted['under']}"
    unit = " ".join(unit.split())
    rest = after[own.end() if own else 0 :]
    head, of_all, beside = "", "", tuple[str, ...]()
    if unit and unit not in PREFIXES and (own is None or _KNOWN_UNIT.fullmatch(unit)):
        many = _PER_MANY.match(rest)
        around = f"{unit}{many[0]}" if many else f"# {unit}" if _BYTES.fullmatch(unit) else ""
    else:
        heading = _heading(lines[max(0, begin - _ABOVE) : begin])
        words = heading.split()[: 2 * _WORDS]
        around = _around(lines[line_begin:begin], rest) + (f" ({' '.join(words)})" if words else "")
        line_end = lines[end : end + _WINDOW].partition("\n")[0]
        head = _head(heading, lines[line_begin:begin], line_end)
        if not OF_RATES.search(around):  # the unit of a time that stands next to a rate is not its own
            beside = units_in(f"{lines[line_begin:begin]}0{line_end}", [_FIELD, _CELL_ALONE])
            beside = beside or units_in(_object(lines, begin, end), [_FIELD])
        of_all = _of_all(heading, lines[line_begin:begin], end - line_begin)
    text += own[0] if own else ""
    return _Number(
        value=value,
        resolution=resolution,
        unit=unit,
        text=text,
        around=around,
        head=head,
        units_beside=beside,
        unit_of_all=of_all,
        label=_label(lines[line_begin:begin], unit),
    )


def _label(before: str, unit: str) -> str:
    """Return the words before a number in its line, each once, and # in its place.

    Words of its unit, and those with digits, are left out.
    """
    own = _WORD_ALONE.findall(unit)
    return " ".join([*(word for word in dict.fromkeys(_WORD_ALONE.findall(before)) if word not in own), "#"])


def _around(before: str, after: str) -> str:
    """Return the words beside a number: its label, # in its place, and what follows up to the next column.

    Of the numbers among them only those are kept that change what this one means: per 100, [10^-3].
    """
    label = _COLUMN_BEGIN.split(before)[-1].split()[-_WORDS:]
    behind: list[str] = []
    for word in _COLUMN_END.split(after.lstrip(" "), maxsplit=1)[0].split()[:_WORDS]:
        is_part = _POWER.search(word) or (behind and behind[-1] in _OF_MANY)
        behind.append(word if is_part else _FIGURE.sub("#", word))
    return _PLURAL.sub("", " ".join([*label, "#", *behind]))


def _heading(before: str) -> str:
    """Return the last heading above a number, "" if there is none.

    It is a line without a figure that has columns or brackets, or ends with a colon: it may name the unit of figures.
    """
    above = before.split("\n")[len(before) >= _ABOVE : -1]  # the first line may be cut
    return next((line for line in reversed(above) if not _DIGITS.search(line) and _HEADING.match(line)), "")


def _head(heading: str, before: str, after: str) -> str:
    """Return the cell of a heading above a number in its line, "" if the line has another number of columns."""
    cells, at = _CELLS.split(heading), len(_CELLS.findall(before))
    return cells[at] if at + len(_CELLS.findall(after)) + 1 == len(cells) > 1 else ""


def _of_all(heading: str, before: str, end: int) -> str:
    """Return the unit of time of all numbers below a heading or in a line, "" if there is none, or for a rate.

    The number has a column of its own in a heading with columns, and ends at the character `end` of its line.
    """
    places = [(each, text) for text in (before, heading) for each in _OF_ALL.finditer(text)]
    found = next(
        (each for each, text in places if each["enclosed"] != "s" or not is_plural(text[: each.start()])), None
    )
    columns = [each for each in _WORDS_TOGETHER.finditer(heading) if len(before) < each.end() and each.start() < end]
    labels = [*(each[0] for each in columns), _COLUMN_BEGIN.split(before)[-1]]
    return "" if found is None or any(map(OF_RATES.search, labels)) else found[found.lastgroup or 0]


def _object(lines: str, begin: int, end: int) -> str:
    """Return what stands in one pair of braces with a number, without them the next line if that is of a unit."""
    before, after = lines[max(0, begin - _WINDOW) : begin], lines[end : end + _WINDOW]
    if "{" in before and "}" in after:
        return f"{before.rpartition('{')[2]}0{after.partition('}')[0]}"
    following = _UNIT_LINE.match(after)
    return following[1] if following else ""


def _labelled(before: str) -> str:
    """Return the unit that a label before a number gives it, "" if there is none.

    A label that has had its number is none, unless both figures are statistics of one thing.
    """
    for label in reversed(list(_LABEL.finditer(before))):
        own, gap = before[: label.start()], before[label.end() :]
        is_own = label["ending"] or (label["ratio"] and re.match(r" ?[:=]", gap))  # p99_us, 10 images/sec: 33.2
        if (_UNIT_OF_ANOTHER.search(own) and not is_own) or (label[0] == "(s)" and is_plural(own)):
            continue
        unit = str(label[label.lastgroup or 0])
        statistic = _STATISTIC
        if is_time(unit) is False and _FIGURE_ALONE.search(gap):
            statistic = _OF_RATE_ALONE if re.match(r"[^\w]*[0-9]", gap) else _OF_RATE
        if not re.search(r"[0-9]", gap) or all(map(statistic.fullmatch, _WORD.findall(gap.lower()))):
            return unit
    return ""


def units_in(lines: str, places: Sequence[re.Pattern[str]] = _PLACES) -> tuple[str, ...]:
    """Return the units that an output names in some places, each once."""
    ends = lines if len(lines) <= 2 * _ENDS_LOOKED_AT else f"{lines[:_ENDS_LOOKED_AT]}\n{lines[-_ENDS_LOOKED_AT:]}"
    return tuple(sorted({" ".join(found["unit"].split()) for each in places for found in each.finditer(ends)}))


def check_alike(
    values: Sequence[float], units: Sequence[str], first_values: Sequence[float], first_units: Sequence[str]
) -> None:
    """Raise NoNumberError if numbers without units differ from the numbers of the first run because these units do."""
    apart = math.log(statistics.median(values) / statistics.median(first_values))
    product = statistics.median(values) * statistics.median(first_values)
    gone = [each for each in first_units if each not in units] or [""]
    for new in [each for each in units if each not in first_units] or [""]:
        for old in gone:
            turned = inverse(new)  # and so the product of two such numbers is about 1
            inverses = _scales(turned, old) if turned and old else []
            is_inverse = any(1 / _FAR < scale / product < _FAR for scale in inverses)
            if is_inverse or any(abs(apart + math.log(scale)) < abs(apart) for scale in _scales(new, old)):
                raise _other_unit(new, old)


def _other_unit(new: str, old: str) -> NoNumberError:
    return NoNumberError(
        f"the numbers have no unit, and the output names {new or 'none'} instead of {old or 'none'} of the first run",
        "let the command print one unit under every setting, as for example pytest-benchmark does "
        "with --benchmark-time-unit=ms",
    )


def _scales(unit: str, other: str) -> list[float]:
    """Return how many of the other unit one of this unit may be; "" is the unit without a prefix."""
    own, others = scales(unit), scales(other)
    if unit and other:
        return [own[root] / others[root] for root in own if root in others]
    return [*own.values()] if unit else [1 / each for each in others.values()]


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"
