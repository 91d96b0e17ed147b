"""Pool sessions (runs hours or days apart, or on other nodes) into one estimate of a setting against the default.

A setting's gain can depend on the state that the machine is in, for minutes or for days: what else is in its caches,
where its pages lie, what the neighbours of a virtual machine do. It can also differ between machines of one type. One
run's interval does not include that. With two sessions or more the interval holds what sessions differ by. With two
nodes or more, the sessions of each node are pooled first, and the interval holds what nodes differ by.

Notation
    x_i, s_i   log-ratio of session i, and its standard error within the session, as much wider as Student's interval of
               its few rounds is than a normal one;  i = 1 … n
    τ₀         what sessions are believed to differ by before any was seen (standard deviation), worth d₀ sessions
    w_i        1 / (τ₀² + s_i²)
    x̄          Σ w_i x_i / Σ w_i
    q          (d₀ + Σ w_i (x_i - x̄)²) / (d₀ + n - 1): by how much more they scatter than was believed, moderated
    se²        q / Σ w_i, with d₀ + n - 1 degrees of freedom
    Q          Σ v_i (x_i - x̂)², v_i = 1/s_i², x̂ = Σ v_i x_i / Σ v_i: χ²(n - 1) if sessions differed by nothing

Of several nodes the same holds with the pooled sessions of node i as x_i and s_i, and with the expected
difference between nodes as τ₀.

Sources: Hartung & Knapp (2001), Statistics in Medicine 20 (the variance of a mean of few studies, by q); Smyth (2004),
Linear models and empirical Bayes methods (moderation by d₀); Cochran (1954), Biometrics 10 (Q); Freischuetz et al.
(2025), TUNA, EuroSys (cloud nodes of one type hardly differ in CPU speed, and clearly in memory and caches; a ratio on
one node does not contain the node's own speed, so `NODES_SD` is a small prior that data soon outweigh).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import chdtrc, stdtrit

from tuner.stats import Z95
from tuner.stats.equivalence import MARGIN, UNMEASURED, Verdict, VerdictCode, verdict_on
from tuner.stats.estimate import Array, Estimate

BELIEVED_SD, BELIEVED_DF = 0.01, 4.0
NODES_SD = 0.02
"""The expected difference between nodes of one type (log), worth `BELIEVED_DF` nodes."""
_DISAGREE = 0.05  # the error of saying that sessions disagree which do not


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledVerdict:
    """What `n` sessions report together, and the estimate of each node if there are several.

    `sessions_disagree` if they, or the nodes, differ by more than their own noise, and not all on one side of the
    margin: then the verdict is undecided, and `codes` has the verdict of each session.
    """

    verdict: Verdict
    n: int
    sessions_disagree: bool = False
    codes: tuple[VerdictCode, ...] = ()
    nodes: Mapping[str, Estimate] = field(default_factory=dict)


def pooled_verdict(
    sessions: Sequence[Estimate], *, nodes: Sequence[str] = (), level: float = 0.95, margin: float = MARGIN
) -> PooledVerdict:
    """Return what sessions report together, each an estimate of its own; of one alone, what that says at `level`.

    `nodes` has the node of each session; none are given if all are of one. Of several sessions the interval is at 95 %:
    what looks and choices cost is small beside what sessions differ by, and the first, which chose the setting, cannot
    make the claim without the others.
    """
    by_node: dict[str, list[Estimate]] = {}
    for session, node in zip(sessions, nodes or [""] * len(sessions), strict=True):
        if session.df > 0 and math.isfinite(session.se):
            by_node.setdefault(node, []).append(session)
    usable = [session for own in by_node.values() for session in own]
    if len(usable) <= 1:
        verdict = verdict_on(usable[0], level=level, margin=margin) if usable else UNMEASURED
        return PooledVerdict(verdict=verdict, n=len(usable), codes=(verdict.code,) if usable else ())
    codes = tuple(verdict_on(session, margin=margin).code for session in usable)
    of_nodes = {node: pool(own) for node, own in by_node.items()} if len(by_node) > 1 else {}
    if of_nodes:
        verdict = verdict_on(pool_nodes([*of_nodes.values()]), margin=margin)
        node_estimates = [own[0] if len(own) == 1 else of_nodes[node] for node, own in by_node.items()]
        disagree = _disagree(node_estimates, margin)
    else:
        verdict, disagree = verdict_on(pool(usable), margin=margin), _disagree(usable, margin)
    if disagree:
        verdict = Verdict(speedup=verdict.speedup, low=verdict.low, high=verdict.high, code=VerdictCode.UNDECIDED)
    return PooledVerdict(verdict=verdict, n=len(usable), sessions_disagree=disagree, codes=codes, nodes=of_nodes)


def pool(sessions: Sequence[Estimate]) -> Estimate:
    """Return the mean of sessions of one node, with what sessions differ by in its standard error."""
    return _pooled(sessions, _standard_errors(sessions), BELIEVED_SD)


def pool_nodes(nodes: Sequence[Estimate]) -> Estimate:
    """Return the mean of nodes, each as `pool` returns it, with what nodes differ by in its standard error."""
    return _pooled(nodes, np.array([node.se for node in nodes]), NODES_SD)


def _pooled(estimates: Sequence[Estimate], s: Array, tau: float) -> Estimate:
    """Return x̄ and its se, of estimates of standard errors `s`, shape (n,), with an expected difference of `tau`."""
    x = np.array([each.mean for each in estimates])
    w = 1 / (tau**2 + s**2)
    mean = float((w * x).sum() / w.sum())
    df = BELIEVED_DF + len(x) - 1
    q = (BELIEVED_DF + float((w * (x - mean) ** 2).sum())) / df
    rounding = max(each.rounding for each in estimates)  # it is of one sign in all of them
    return Estimate(mean=mean, se=math.sqrt(q / float(w.sum())), n=len(x), df=df, rounding=rounding)


def _standard_errors(sessions: Sequence[Estimate]) -> Array:
    """Return s_i, shape (n,): two rounds that agree by chance do not make a precise session."""
    se, df = np.array([max(each.se, 1e-6) for each in sessions]), np.array([each.df for each in sessions])
    return np.asarray(se * stdtrit(df, 0.975) / Z95)


def _disagree(sessions: Sequence[Estimate], margin: float) -> bool:
    """Return whether sessions differ by more than their noise, and in what they say."""
    x = np.array([each.mean for each in sessions])
    edge = math.log1p(margin)
    if (x > edge).all() or (x < -edge).all() or (abs(x) <= edge).all():
        return False
    v = 1 / _standard_errors(sessions) ** 2
    centre = float((v * x).sum() / v.sum())
    return float(chdtrc(len(x) - 1, float((v * (x - centre) ** 2).sum()))) < _DISAGREE
