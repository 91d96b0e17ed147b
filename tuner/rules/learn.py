"""Learning a rule list: which recipe under which condition loses least, and no rule that noise could have made.

Notation
    s, c(s)     studies, and the workload of each; what is to be carried over is carried from workloads to workloads
    r           recipes; u_sr (n, R) what r gains over TensorFlow's default in study s (log-ratio)
    k           conditions; M_ks ∈ {0, 1} (K, n) whether k holds in s
    π           the policy so far: u_sπ what it gains in s
    g_ckr       mean over {s : c(s) = c, M_ks} of u_sr - u_sπ: what the rule (k, r) adds in workload c
    I_kr        Σ_c p_ck g_ckr / C,  p_ck the share of c's studies in which k holds: what it adds in all
    t_kr        √C_k ḡ_kr / s̃_kr  over the C_k workloads in which k holds,  s̃² = (d₀ s₀² + Σ_c g²_ckr) / (d₀ + C_k)

The list grows by exceptions: a new rule stands before those that are there, and holds for what it says only. At each
step the rules (k, r) are those that gain what matters, and whose t is beyond what the largest t of such rules is in
95 % of worlds in which every workload's differences have random signs; of these, the one that adds most, or a simpler
one that adds as much but for a standard error (Breiman et al. 1984, Classification and regression trees, section 3.4).
So noise makes no rule in 95 % of such worlds, however many rules are
looked at. Half of the 5 % are for rules without a condition, which are few and plausible: recommended settings are
such; the other half for the many with one. And a few workloads, whose signs agree by chance too often, make none
either: s̃ is about 0 and not about the mean, so that t is at most √(C_k + d₀), about as the strength of that evidence
is, and a handful of workloads cannot set the mark for all. A rule that has lost studies to an exception is put to the
same test again on those that it has left.

Sources: regret instead of accuracy as what trees are grown for: Bertsimas & Kallus (2020), From predictive to
prescriptive analytics, Management Science 66; the largest t under random signs: Westfall & Young (1993),
Resampling-based multiple testing, ch. 2; lists of exceptions: Compton & Jansen (1990), A philosophical basis for
knowledge acquisition (ripple-down rules).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tuner.stats.estimate import Array

Mask = NDArray[np.bool_]
Single = NDArray[np.float32]
Index = NDArray[np.intp]
_BLOCK = 2_000  # rules whose t is computed at once
_ROUNDING = 1e-3
_MIN_SD = 1e-3  # no gain is known better


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnPlan:
    """How rules are learned.

    A rule needs `min_workloads_per_rule`, and a gain of `min_gain` (log-ratio) where it holds. `level` is the
    probability of a false rule beside the true ones, found from `n_sign_flips` random signs, or from all where there
    are no more. `tie_tolerance` (log-ratio) is what a simpler rule may add less in any case. What a rule sets has to
    have been measured itself in `min_measured_share` of the studies in which it holds: the rest may be believed. There
    are `max_rules` at most.
    """

    min_workloads_per_rule: int = 3
    min_gain: float = 0.02
    level: float = 0.05
    n_sign_flips: int = 400
    tie_tolerance: float = 0.001
    min_measured_share: float = 0.5
    max_rules: int = 6
    prior_df: float = 4.0
    seed: int = 0

    @property
    def min_workloads(self) -> int:
        """Return of how many workloads a table has to be to give any rule, where its rules may have conditions.

        Of 2^C worlds one is the one that was seen: it stands out at half of the level from C on with
        level / 2 · (2^C - 1) ≥ 1.
        """
        return math.ceil(math.log2(1 + 2 / self.level))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is learned from: u (n, R), masks (K, n), the workload of each study, and how simple things are.

    Recipe 0 is to leave everything as it is. `sd` is what u is usually known to within.
    """

    u: Array
    measured: Mask
    """Where what a recipe sets was measured itself (n, R)."""
    masks: Mask
    workloads: Index
    recipe_cost: Index
    mask_cost: Index
    plain: Mask
    """Conditions (K,) that ask for nothing, or for the build alone."""
    sd: float

    def part(self, studies: Mask) -> Problem:
        """Return the same of some of the studies."""
        return replace(
            self,
            u=self.u[studies],
            measured=self.measured[studies],
            masks=self.masks[:, studies],
            workloads=self.workloads[studies],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleIndex:
    """A rule: its condition and its recipe, as indices."""

    mask: int
    recipe: int


def learn(problem: Problem, plan: LearnPlan) -> list[RuleIndex]:
    """Return the rules, the first of which that holds is the one to follow; none if nothing stands out."""
    rng = np.random.default_rng(plan.seed)
    rules: list[RuleIndex] = []
    earlier_lists: list[list[RuleIndex]] = []
    while len(rules) < plan.max_rules and len(problem.u) and rules not in earlier_lists:
        earlier_lists.append(rules)
        new_rule = _next(problem, policy(problem, rules), plan, rng)
        if new_rule is None:
            break
        rules = _refit(problem, [new_rule, *rules], plan, rng)
    return rules


def first_matching(masks: Mask, rules: Sequence[RuleIndex]) -> Index:
    """Return the number of the rule that holds in each study, len(rules) where none does, shape (n,)."""
    number = np.full(masks.shape[1], len(rules))
    for i in reversed(range(len(rules))):
        number[masks[rules[i].mask]] = i
    return number


def policy(problem: Problem, rules: Sequence[RuleIndex]) -> Array:
    """Return what following the rules gains in each study, shape (n,)."""
    recipes = np.array([*(rule.recipe for rule in rules), 0])[first_matching(problem.masks, rules)]
    return np.asarray(problem.u[np.arange(len(recipes)), recipes])


@dataclass(frozen=True, kw_only=True)
class _Gains:
    """What each rule adds by workload: g (C, K, R), zero where it does not hold; the shares p (C, K)."""

    g: Array
    share: Array

    @cached_property
    def counts(self) -> Array:
        """Return C_k, shape (K,)."""
        return np.asarray((self.share > 0).sum(axis=0), dtype=float)

    @cached_property
    def mean(self) -> Array:
        """Return ḡ, shape (K, R)."""
        return np.asarray(self.g.sum(axis=0) / np.maximum(self.counts, 1)[:, None])


def _gains(problem: Problem, base: Array) -> _Gains:
    difference = problem.u - base[:, None]
    names, member = np.unique(problem.workloads, return_inverse=True)
    g = np.empty((len(names), len(problem.masks), difference.shape[1]))
    share = np.empty(g.shape[:2])
    for c in range(len(names)):
        rows = np.flatnonzero(member == c)
        holds = problem.masks[:, rows].astype(float)
        n_holding = holds.sum(axis=1)
        np.matmul(holds / np.maximum(n_holding, 1)[:, None], difference[rows], out=g[c])
        share[c] = n_holding / len(rows)
    return _Gains(g=g, share=share)


def _next(problem: Problem, base: Array, plan: LearnPlan, rng: np.random.Generator) -> RuleIndex | None:
    """Return the rule to put before those that make up the policy `base`; None if nothing stands out."""
    gains = _gains(problem, base)
    enough = (gains.counts >= plan.min_workloads_per_rule)[:, None] & _is_measured(problem, plan)
    if not enough.any():
        return None
    g = gains.g.astype(np.float32)
    counts = gains.counts.astype(np.float32)[:, None]
    t = _t_of(g.sum(axis=0), np.einsum("ckr,ckr->kr", g, g), counts, problem.sd, plan)
    critical_t = np.full(enough.shape, np.inf)
    plain = problem.plain[:, None]
    tiers = [tier for tier in (enough & plain, enough & ~plain) if tier.any()]
    for tier in tiers:
        level = plan.level / len(tiers)
        rule_counts = np.broadcast_to(counts, tier.shape)[tier]
        critical_t[tier] = _largest_t(g[:, tier], rule_counts, problem.sd, replace(plan, level=level), rng)
    # One of the sign patterns is the observed one; a rounding error must not put it beyond itself.
    significant = (t > critical_t + _ROUNDING) & (gains.mean >= plan.min_gain)
    if not significant.any():
        return None
    return _simplest(problem, gains, np.argwhere(significant), plan)


def _is_measured(problem: Problem, plan: LearnPlan) -> Mask:
    """Return whether what each rule sets was measured in enough of the studies in which it holds, shape (K, R)."""
    masks = problem.masks.astype(np.float32)
    share = masks @ problem.measured.astype(np.float32) / np.maximum(masks.sum(axis=1, keepdims=True), 1)
    return np.asarray(share >= plan.min_measured_share)


def _t_of(sums: Single, squares: Single, counts: Single, sd: float, plan: LearnPlan) -> Single:
    """Return t from Σ g and Σ g² over C workloads."""
    n = np.maximum(counts, 1)
    variance = (np.float32(plan.prior_df * max(sd, _MIN_SD) ** 2) + squares) / (np.float32(plan.prior_df) + n)
    return np.asarray(sums / np.sqrt(n * variance))


def _largest_t(g: Single, counts: Single, sd: float, plan: LearnPlan, rng: np.random.Generator) -> float:
    """Return what the largest t of rules g (C, N), of so many workloads each (N,), is below in 1 - `level` of worlds.

    Signs change the sum of a rule's gains, and not the sum of their squares: t = s · g / √(C s̃²) with signs s, which is
    at most Σ |g| / √(C s̃²). So rules come in blocks, those with the highest bounds first, and once all that are left
    are bounded by the quantile that was reached, it is the quantile of all.
    """
    size = np.abs(g).sum(axis=0)
    # Rules that cannot reach the least gain under any signs are skipped.
    able = np.flatnonzero(size >= plan.min_gain * counts)
    bound = _t_of(size[able], (g[:, able] ** 2).sum(axis=0), counts[able], sd, plan)
    order = np.argsort(-bound)
    signs = _signs(len(g), plan.n_sign_flips, rng)
    largest = np.full(signs.shape[1], -np.inf)
    quantile = -np.inf
    for begin in range(0, len(order), _BLOCK):
        block = order[begin : begin + _BLOCK]
        if bound[block[0]] <= quantile:
            break
        part = able[block]
        unit = bound[block] / size[part]  # what one unit of gain adds to t
        t = (g[:, part] * unit).T @ signs
        t[t < (plan.min_gain * counts[part] * unit)[:, None]] = -np.inf
        np.maximum(largest, t.max(axis=0), out=largest)
        quantile = float(np.quantile(largest, 1 - plan.level, method="higher"))
    return quantile


def _signs(workloads: int, flips: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return the signs of each workload, ±1, in so many worlds; in every possible one where there are no more."""
    if 2**workloads <= flips:
        worlds = (np.arange(2**workloads)[None, :] >> np.arange(workloads)[:, None]) & 1
        return (2 * worlds - 1).astype(np.float32)
    return rng.choice(np.array([-1, 1], dtype=np.float32), size=(workloads, flips))


def _simplest(problem: Problem, gains: _Gains, candidates: Index, plan: LearnPlan) -> RuleIndex:
    """Return the candidate that adds most, or the simplest that adds as much for all that can be told."""
    k, r = candidates.T
    added = (gains.g[:, k, r] * gains.share[:, k]).T
    best = int(np.argmax(added.mean(axis=1)))
    lost = added[best] - added
    n = lost.shape[1]
    error = lost.std(axis=1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(len(lost))
    alike = lost.mean(axis=1) <= np.maximum(error, plan.tie_tolerance)
    cost = problem.mask_cost[k] + problem.recipe_cost[r]
    # Of the simplest, the one that adds most; to a rounding, so that equal ones come in the order of their numbers.
    order = np.lexsort((r, k, -np.round(added.mean(axis=1), 6), cost))
    first = next(i for i in order if alike[i])
    return RuleIndex(mask=int(k[first]), recipe=int(r[first]))


def _refit(problem: Problem, rules: list[RuleIndex], plan: LearnPlan, rng: np.random.Generator) -> list[RuleIndex]:
    """Choose each rule's recipe again for where it has come to hold, and drop those that noise could make there."""
    remaining = list(rules)
    for rule in rules:
        i = remaining.index(rule)
        covered = first_matching(problem.masks, remaining) == i
        without = remaining[:i] + remaining[i + 1 :]
        refitted = None
        if covered.any():
            refitted = _next(_region(problem, covered), policy(problem, without)[covered], plan, rng)
        remaining = (
            without
            if refitted is None
            else [*remaining[:i], replace(rule, recipe=refitted.recipe), *remaining[i + 1 :]]
        )
    return remaining


def _region(problem: Problem, covered: Mask) -> Problem:
    """Return some of the studies as a problem with one condition, that always holds."""
    everywhere = np.ones((1, int(covered.sum())), dtype=bool)
    return replace(
        problem.part(covered), masks=everywhere, mask_cost=np.zeros(1, dtype=np.intp), plain=np.ones(1, dtype=bool)
    )
