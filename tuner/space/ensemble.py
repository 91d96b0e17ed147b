"""Ensembles: different models side by side that answer together, and how the cores are shared out among them.

A share c of n cores is a setting's value of a member's own knob, `cores_NAME`. With c = n the member may use all CPUs,
as with nothing set; with fewer it is kept to c cores of its own and has no more threads than these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.errors import BadInputError
from tuner.machine.cpulist import format_list, parse_list
from tuner.space.baseline import Baseline
from tuner.space.carrier import Mask, Processes, Share, Streams
from tuner.space.catalogue import Catalogue
from tuner.space.knob import Knob
from tuner.space.setting import Setting, distinct
from tuner.space.values import Numbers, Value
from tuner.workload.workload import identifier

_MAX_DIVISIONS = 500
_MAX_COMPOSITIONS = 50_000  # that are written out, before some of them are kept
_PREFIX = "cores_"


def knob_name(member: str) -> str:
    """Return the name of the knob for a member's share of the cores."""
    return _PREFIX + identifier(member)


def catalogue_of(catalogue: Catalogue, members: Sequence[str]) -> Catalogue:
    """Return a framework's catalogue with a knob for the share of each member, itself where there are no members.

    Knobs that would share out the cores too are not in it.
    """
    if not members:
        return catalogue
    rivals = (Processes, Streams, Mask)
    own = {name: knob for name, knob in catalogue.knobs.items() if not isinstance(knob.carrier, rivals)}
    shares = {knob_name(member): _share(member) for member in members}
    equal = Baseline(
        name="equal-shares",
        source="each member on as many cores as the others",
        rule=lambda machine: {
            **catalogue.threads_on(machine.usable_cores),
            **dict(zip(shares, in_proportion([1.0] * len(shares), machine.usable_cores), strict=True)),
        },
        needs=frozenset(shares),
    )
    kept = tuple(each for each in catalogue.baselines if each.needs <= own.keys())
    return replace(
        catalogue,
        framework="an ensemble",
        knobs=own | shares,
        baselines=(*kept, equal),
        owner=lambda name: "a single model" if name in catalogue.knobs else catalogue.owner(name),
    )


def _share(member: str) -> Knob:
    """Return the knob for a member's share of the cores."""
    name = knob_name(member)
    return Knob(
        name=name,
        meaning=f"physical cores that {member} is kept to; it may use all CPUs where these are all cores",
        values=Numbers(counts_cores=True),
        carrier=Share(name),
        default=lambda machine, *_: machine.usable_cores,
        audit=None,
        n_threads=lambda values: int(values[name]),
    )


def divisions(n_members: int, cores: int) -> list[tuple[int, ...]]:
    """Return the ways to share out the cores, by members, besides all for all.

    Where there is a core for each member they are all compositions of `cores`, or, where those are very many, of
    coarser parts of it. Where there are not, members that have fewer than all overlap: see `share_sets`.
    """
    if n_members <= cores:
        step = 1
        while math.comb(cores // step - 1, n_members - 1) > _MAX_COMPOSITIONS and cores // (2 * step) > n_members:
            step *= 2
        parts = list(_compositions(cores // step, n_members))
        # Of too many every so many are kept, in order. What a coarser step leaves over goes to the first.
        kept = parts[:: math.ceil(len(parts) / _MAX_DIVISIONS)]
        return [(step * first + cores % step, *(step * part for part in rest)) for first, *rest in kept]
    sizes = range(1, cores + 1) if cores**n_members <= _MAX_DIVISIONS else sorted({1, cores})
    return [each for each in itertools.product(sizes, repeat=n_members) if min(each) < cores]


def _compositions(total: int, n: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write `total` as a sum of `n` numbers of at least 1, in order."""
    for bars in itertools.combinations(range(1, total), n - 1):
        edges = (0, *bars, total)
        yield tuple(end - start for start, end in itertools.pairwise(edges))


def in_proportion(weights: Sequence[float], cores: int) -> tuple[int, ...]:
    """Return shares in proportion to the members' weights, at least one core each, by largest remainders.

    cᵢ ≈ cores · wᵢ / Σw        all cores are used where there is one for each member, else each has one
    """
    n = len(weights)
    if n >= cores:
        return (1,) * n
    exact = [1 + (cores - n) * weight / sum(weights) for weight in weights]
    # One core each first: a plain proportion may give a small member none.
    plain = [cores * weight / sum(weights) for weight in weights]
    exact = plain if min(plain) >= 1 else exact
    shares = [math.floor(part) for part in exact]
    by_remainder = sorted(range(n), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: cores - sum(shares)]:
        shares[i] += 1
    return tuple(shares)


def share_sets(cores: Sequence[str], shares: Sequence[int], *, whole: int) -> tuple[str | None, ...]:
    """Return the CPUs of each member, None for all that it may use anyway, which a share of `whole` stands for.

    `cores` are the CPUs of each physical core, neighbours beside each other, as lists such as `0,8`. Members take
    cores one after the other; where all are taken, the next begins with the first core again and shares it.
    """
    sets: list[str | None] = []
    at = 0
    for share in shares:
        if share >= min(whole, len(cores)):
            sets.append(None)
            continue
        taken = [parse_list(cores[(at + offset) % len(cores)]) for offset in range(share)]
        sets.append(format_list(frozenset().union(*taken)))
        at += share
    return tuple(sets)


def divided(
    setting: Setting, catalogue: Catalogue, names: Sequence[str], cores: int, pins: Mapping[str, Value]
) -> list[Setting]:
    """Return a setting with the cores shared out among the members of the knobs `names`, in all ways that pins allow.

    Its members have one thread for each core that they have.
    """
    threads = {name: value for name, value in catalogue.threads_on(cores).items() if name in setting.to_dict()}
    base = setting.with_values(**threads | {name: value for name, value in pins.items() if name not in names})
    settings = [base.with_values(**dict(zip(names, each, strict=True))) for each in divisions(len(names), cores)]
    return [each for each in settings if all(each[name] == value for name, value in pins.items())]


def of_member(setting: Setting, catalogue: Catalogue, name: str, names: Sequence[str], *, whole: int) -> Setting:
    """Return the setting of one member, whose knob is `name`: no more threads than it has cores of its own.

    With a share of the `whole` it has none of its own, and the threads are those of the setting.
    """
    share = int(setting[name])
    threads = catalogue.threads_on(share)
    values = {knob: value for knob, value in setting.items if knob not in names}
    if share >= whole:
        return Setting.of(values)
    capped = {
        knob: min(int(value), share)
        for knob, value in values.items()
        if knob in threads and isinstance(catalogue.knobs[knob].values, Numbers)
    }
    return Setting.of(values | capped)


def with_shares(
    points: Sequence[Setting],
    domains: Mapping[str, tuple[Value, ...]],
    members: Sequence[str],
    catalogue: Catalogue,
    default: Setting,
    pins: Mapping[str, Value],
    *,
    n_cores: int,
) -> tuple[tuple[Setting, ...], dict[str, tuple[Value, ...]]]:
    """Return the points of an ensemble and the domains of their knobs: those with all cores for all, and divisions.

    Divisions are tried at each batch size; the other knobs are at their defaults there. Raises BadInputError where the
    pins leave none.
    """
    shares = [knob_name(member) for member in members]
    cores = int(default[shares[0]])
    bases = [default.with_values(batch_size=batch_size) for batch_size in domains["batch_size"]]
    split = [s for base in bases for s in divided(base, catalogue, shares, cores, pins)] if n_cores == cores else []
    together = [each for each in points if all(each[name] == cores for name in shares)]
    everything = tuple(distinct([*together, *split]))
    if not everything:
        pinned = ", ".join(f"{name}={value}" for name, value in pins.items())
        raise BadInputError(f"{cores} cores cannot be shared out with {pinned}", "remove a --set")
    used = {name: sorted({int(each[name]) for each in everything}) for name in shares}
    return everything, dict(domains) | {name: tuple(values) for name, values in used.items()}
