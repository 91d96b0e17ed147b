"""Digits with marks between them: what they are worth, and whether a number goes on behind a mark.

Programs write 1830 as 1,830, 1'830, 1.83e3 and in more ways. What two readers could take for different numbers is
worth none here.
"""

from __future__ import annotations

import math
import re
import statistics
import unicodedata
from collections.abc import Iterable

NO_BREAK = "\u00a0\u202f\u2009"  # the spaces that typography has for thousands
SEPARATORS = ".,'’_" + NO_BREAK
_NUMBER = re.compile(r"(?P<digits>.*?)(?:[eEdD](?P<exponent>[+-]?[0-9]+))?", re.DOTALL)
_BETWEEN = r"(?P<mark>[^\d \t\r\n\f\v]{1,12})"
_AFTER, _BEFORE = re.compile(rf"{_BETWEEN}(?P<digit>\d)"), re.compile(rf"(?P<digit>\d){_BETWEEN}\Z")
_OF_COLUMNS = re.compile(rf"(?:[{SEPARATORS};|/=<>()\[\]{{}}\"%@:&×÷±≈≤≥→–—−\u2500-\u259f-]|\+/?-)*")
"""What parts two numbers without a blank: of all other marks it is not known whether they do."""
_LONGEST_MARK = 13
_OTHER_UNIT = 99.0  # times as coarse: no zeros at the end are left out so often
_NEAR = 0.9  # of the larger: settings differ by less than ten times
_DOT_OF_THOUSANDS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3}){2,}(?![0-9])|[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+")
_ONE_DOT = re.compile(r"[0-9]{1,3}\.[0-9]{3}(?![0-9.,])")
_ONE_COMMA = re.compile(r"[0-9]{1,3},[0-9]{3}(?![0-9.,])")


def worth(text: str) -> tuple[float, float] | None:
    """Return what a number is worth, and what its last digit is; None where there are two ways to read.

    A comma parts thousands, or follows them in the place of the decimal point; a dot is the decimal point unless there
    are several. Thousands come in groups of three.
    """
    parts = _NUMBER.fullmatch(text)
    assert parts is not None  # it takes any text
    power = int(parts["exponent"] or 0)
    groups = re.split(r"[^0-9]", parts["digits"])
    marks = re.findall(r"[^0-9]", parts["digits"])
    decimals = ""
    if marks and marks[-1] in ".," and marks.count(marks[-1]) == 1 and (marks[-1] == "." or len(marks) > 1):
        *groups, decimals = groups
        marks.pop()
    is_grouped = len(set(marks)) <= 1 and all(len(each) == 3 for each in groups[1:]) and 1 <= len(groups[0]) <= 3
    if marks and (not is_grouped or ":" in marks or groups[0].startswith("0")):
        return None
    try:
        return float(f"{''.join(groups) or 0}.{decimals or 0}e{power}"), 10.0 ** (power - len(decimals))
    except OverflowError:
        return math.inf, math.inf


def mark_after(after: str) -> str:
    """Return what stands between a number and further digits that may be part of it, "" if nothing does.

    A power, a fraction or a digit of another script that follows at once is such a mark too: 10³, 12½, 12８.
    """
    return after[0] if _is_of_number(after[:1]) else _strange(_AFTER.match(after))


def mark_before(before: str) -> str:
    """Return what stands between earlier digits and a number that may be part of it, "" if nothing does."""
    return before[-1] if _is_of_number(before[-1:]) else _strange(_BEFORE.search(before[-_LONGEST_MARK:]))


def _is_of_number(character: str) -> bool:
    """Return whether a character is a digit, a fraction or a power, or changes the one before it."""
    return character != "" and (unicodedata.category(character)[0] in "NM" or character in "⁺⁻")


def _strange(found: re.Match[str] | None) -> str:
    """Return what stands between two numbers, "" for what is known to part them: marks of columns, and words.

    Whatever else it is, the number may go on behind it, and so it may in digits of another script.
    """
    if found is None:
        return ""
    mark = found["mark"]
    has_word = any(each.isalpha() and unicodedata.category(each) != "Lm" for each in mark) and "&" not in mark
    is_parting = has_word or (_OF_COLUMNS.fullmatch(mark) is not None and mark not in ("{,}", "{.}"))  # of LaTeX
    return "" if is_parting and found["digit"].isascii() else mark


def resolution_of(printed: Iterable[tuple[float, float]]) -> float:
    """Return the smallest difference that numbers show, each with what its last digit is worth; 0 without numbers.

    A program that leaves zeros out at the end prints some numbers with fewer digits than it knows: the finest count. If
    it changes its unit, as of 985ms and 1s, the unit of the numbers in the middle counts.
    """
    ordered = sorted(printed)
    finest = min((resolution for _, resolution in ordered), default=0.0)
    middle = [resolution for _, resolution in ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]]
    coarsest = max(middle, default=0.0)
    return coarsest if coarsest >= _OTHER_UNIT * finest else finest


def may_be_thousands(values: Iterable[float], resolution: float, others: Iterable[float], other: float) -> bool:
    """Return whether thousands are parted in one of two outputs: 1.012 and 980, or 850,250 and 1.050,250.

    The numbers of one have three decimals, the numbers of the other have none and are about a thousand times as large.
    `resolution` and `other` are what the last digits of the two are worth.
    """
    if resolution > other:
        values, resolution, others, other = others, other, values, resolution
    fine, whole = statistics.median(values), statistics.median(others)
    return math.isclose(resolution, 1e-3) and other >= 1 and math.isclose(whole, 1e3 * fine, rel_tol=_NEAR)


def two_dots(texts: Iterable[str]) -> tuple[str, str] | None:
    """Return two numbers of one output whose marks mean different things, 1.234.567 and 987.654; None if none are so.

    Of 1.234,567 and 987,654 these are the commas.
    """
    texts = list(texts)
    grouped = next((each for each in texts if _DOT_OF_THOUSANDS.match(each)), None)
    forms = [_ONE_DOT, _ONE_COMMA] if grouped and "," in grouped else [_ONE_DOT]
    single = next((each for each in texts if any(form.match(each) for form in forms)), None)
    return None if grouped is None or single is None else (grouped, single)
