"""The simulator: known answers of small graphs, Amdahl's limits, and the effects of machines, each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import BadInputError
from tuner.machine.cpulist import parse_list
from tuner.machine.spec import parse_spec
from tuner.model.costs import Costs, costs_of, hops, lines, missed, moving_s
from tuner.model.executor import Pools, Simulated, simulate
from tuner.model.hardware import Hardware, Terms, hardware_of
from tuner.model.profile import Profile, Roof, Traced, profile
from tuner.model.tasks import tasks_of

MS = 1e-3
PLAIN = Terms(
    fork_s=0.0, asleep_s=0.0, wake_s=0.0, hand_s=0.0, grain_s=1e-9, eigen_switch=0.0, openmp_switch=0.0, eta=0.0
)
"""Nothing but division of work."""
MANY = Hardware(cores=24, smt=1, sockets=1, quota=None, one_bytes_s=1e10, most_bytes_s=1e11, cache_bytes=32 * 2**20)


def costs(times_s: Sequence[float], *, serial: float = 0.0, n_bytes: float = 0.0, terms: Terms = PLAIN) -> Costs:
    """Return the costs of operators that take so long with one thread, whatever the batch."""
    n = len(times_s)
    return Costs(
        fixed_s=np.array(times_s),
        per_item_s=np.zeros(n),
        fixed_bytes=np.full(n, n_bytes),
        bytes_per_item=np.zeros(n),
        seen=np.ones(n) if n_bytes else np.zeros(n),
        serial=np.full(n, serial),
        library=np.zeros(n, dtype=bool),
        runs=np.ones(n),
        fork_s=terms.fork_s,
        terms=terms,
    )


def run(
    inputs: Sequence[Sequence[int]],
    own: Costs,
    pools: Pools,
    hardware: Hardware = MANY,
    *,
    dispatch_s: float = 0.0,
    terms: Terms = PLAIN,
) -> Simulated:
    """Return a simulated step of operators on the shared pool."""
    tasks = tasks_of(inputs, list(own.time_s(1, 1, hardware).time_s))

    def alone(n: float) -> object:
        return own.time_s(n, 1, hardware).summed(tasks.part, len(tasks))

    return simulate(tasks, alone, pools, hardware, dispatch_s=dispatch_s, terms=terms)  # type: ignore[arg-type]


CHAIN = [[], [0], [1], [2]]
TOWERS = [[], [0], [1], [0], [3], [2, 4]]  # a fork, two operators on each side, a join
TIMES = [1 * MS, 2 * MS, 3 * MS, 4 * MS]


# ---- tasks ----------------------------------------------------------------------------------------------------


def test_a_chain_is_one_task_and_a_fork_and_its_join_are_four() -> None:
    assert len(tasks_of(CHAIN, TIMES)) == 1
    towers = tasks_of(TOWERS, [1.0] * 6)
    assert len(towers) == 4
    assert sorted(towers.n_needed) == [0, 1, 1, 2]
    assert sorted(towers.n_operators) == [1, 1, 2, 2]


def test_what_is_made_for_one_operator_is_part_of_its_task() -> None:
    tasks = tasks_of([[], [0], [0, 1], [2]], [1.0, 1e-6, 1.0, 1.0], runs=[1, 1, 1, 5])
    assert len(tasks) == 2
    assert sorted(tasks.n_operators) == [1, 7]
    assert tasks.part[1] == tasks.part[2] == tasks.part[3] != tasks.part[0]


def test_cheap_operators_at_the_beginning_are_run_breadth_first_by_one_thread() -> None:
    """Three operators of 2 us; the first product needs two of them, so that the third runs while it does."""
    us = 1e-6
    inputs = [[], [0], [0], [1], [2, 3]]
    times_s = [2 * us, 2 * us, 2 * us, MS, MS]
    tasks = tasks_of(inputs, times_s)
    first, rest = int(tasks.part[0]), int(tasks.part[2])
    assert tasks.part[1] == first != rest
    assert tasks.is_cheap[first]
    assert tasks.is_cheap[rest]
    assert set(tasks.next[first]) == {rest, int(tasks.part[3])}
    one, two = (run(inputs, costs(times_s), Pools(inter_op=n, intra_op=1)).makespan_s for n in (1, 2))
    assert one == pytest.approx(6 * us + 2 * MS)
    assert two == pytest.approx(4 * us + 2 * MS)
    # Each costly operator begins when what it needs is there, and not when all is.
    lookups = [[], [0], [0], [0], [1], [2], [3], [4, 5, 6]]
    last = run(lookups, costs([us] * 4 + [MS] * 4), Pools(inter_op=4, intra_op=1)).makespan_s
    assert last == pytest.approx(4 * us + 2 * MS)
    # A costly operator that needs nothing runs beside the cheap ones; a step of cheap ones is one task.
    beside = [[], [], [1], [0, 2]]
    assert run(beside, costs([MS, us, us, MS]), Pools(inter_op=2, intra_op=1)).makespan_s == pytest.approx(2 * MS)
    assert len(tasks_of([[], [0], [0], [1, 2]], [us] * 4)) == 1
    # What runs in a loop is none of them, and ends none of the pieces.
    looped = tasks_of(inputs, times_s, runs=[1, 1, 9, 1, 1])
    assert looped.part[2] == looped.part[4]


def test_a_cheap_task_takes_no_threads_from_the_pool() -> None:
    """While one thread reads, a product has the whole pool."""
    us = 1e-6
    reads = [[], *([0] for _ in range(500)), [0], [501, *range(1, 501)]]
    times_s = [2 * us] * 501 + [8 * MS, us]
    assert run(reads, costs(times_s), Pools(inter_op=2, intra_op=8)).makespan_s == pytest.approx(1 * MS, rel=0.02)


def test_a_loop_is_entered_once() -> None:
    tasks = tasks_of([[], [0, 3], [1], [2], [2]], [1.0] * 5)
    assert sum(tasks.n_operators) == 5
    assert run([[], [0, 3], [1], [2], [2]], costs([MS] * 5), Pools(inter_op=1, intra_op=1)).makespan_s == (
        pytest.approx(5 * MS)
    )


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 11), max_size=3), st.sampled_from([1e-6, 1e-5, MS])), min_size=1, max_size=12
    )
)
def test_whatever_the_graph_every_operator_runs_once(links: list[tuple[list[int], float]]) -> None:
    inputs = [[j % len(links) for j in each] for each, _ in links]
    times_s = [seconds for _, seconds in links]
    tasks = tasks_of(inputs, times_s)
    assert sum(tasks.n_operators) == len(inputs)
    assert all(following > task for task, each in enumerate(tasks.next) for following in each)
    one, two = (run(inputs, costs(times_s), Pools(inter_op=n, intra_op=1)).makespan_s for n in (1, 2))
    assert one == pytest.approx(sum(times_s))
    assert one / 2 - 1e-12 <= two <= one + 1e-12


def test_another_slot_sleeps_until_something_is_handed_to_it() -> None:
    """Of a fork the slot that made it goes on with one side, and the other side begins when a thread has woken."""
    two = Pools(inter_op=2, intra_op=1)
    own = costs([MS, 2 * MS, 2 * MS, MS])
    inputs = [[], [0], [0], [1, 2]]
    assert run(inputs, own, two).makespan_s == pytest.approx(4 * MS)
    woken = run(inputs, own, two, terms=replace(PLAIN, wake_s=0.5 * MS))
    assert woken.makespan_s == pytest.approx(4.5 * MS)
    # With one slot nobody is woken.
    alone = Pools(inter_op=1, intra_op=1)
    assert run(inputs, own, alone, terms=replace(PLAIN, wake_s=0.5 * MS)).makespan_s == pytest.approx(6 * MS)


def test_a_slot_that_hands_a_task_over_begins_later_itself() -> None:
    inputs: list[list[int]] = [[], [0], [0], [1, 2]]
    own, two = costs([MS] * 4), Pools(inter_op=2, intra_op=1)
    assert run(inputs, own, two, terms=replace(PLAIN, hand_s=0.3 * MS)).makespan_s == pytest.approx(3.3 * MS)
    both = replace(PLAIN, hand_s=0.3 * MS, wake_s=0.5 * MS)
    assert run(inputs, own, two, terms=both).makespan_s == pytest.approx(3.5 * MS)
    # There is nobody to hand it to.
    alone = Pools(inter_op=1, intra_op=1)
    assert run(inputs, own, alone, terms=replace(PLAIN, hand_s=0.3 * MS)).makespan_s == pytest.approx(4 * MS)


def test_a_slot_that_ends_takes_what_waits_without_waking() -> None:
    """Three that need nothing, on two slots: the second slot wakes once, and the third is taken by who is free."""
    step = run([[], [], []], costs([MS] * 3), Pools(inter_op=2, intra_op=1), terms=replace(PLAIN, wake_s=0.2 * MS))
    assert step.makespan_s == pytest.approx(2 * MS)


def test_cheap_operators_are_run_where_they_are_found() -> None:
    """A hundred of a microsecond, each used twice: no other slot takes any, whatever they are dispatched for."""
    n = 100
    inputs: list[list[int]] = [[] for _ in range(n)] + [list(range(n)), list(range(n))]
    cheap = costs([1e-6] * n + [MS, MS])
    one, two = (run(inputs, cheap, Pools(inter_op=k, intra_op=1), dispatch_s=10e-6) for k in (1, 2))
    assert one.makespan_s == pytest.approx(n * 11e-6 + 2 * (MS + 10e-6))
    assert two.makespan_s == pytest.approx(n * 11e-6 + MS + 10e-6)
    dear = costs([10e-6] * n + [MS, MS])
    assert run(inputs, dear, Pools(inter_op=2, intra_op=1)).makespan_s == pytest.approx(n / 2 * 10e-6 + MS)


# ---- known answers --------------------------------------------------------------------------------------------


def test_one_thread_takes_the_sum_of_all_operators() -> None:
    for inputs, n in ((CHAIN, 4), (TOWERS, 6)):
        step = run(inputs, costs([2 * MS] * n), Pools(inter_op=1, intra_op=1), dispatch_s=0.1 * MS)
        assert step.makespan_s == pytest.approx(n * 2.1 * MS)


def test_slots_do_nothing_for_a_chain_and_halve_two_towers() -> None:
    one, two = (Pools(inter_op=n, intra_op=1) for n in (1, 2))
    assert run(CHAIN, costs(TIMES), two).makespan_s == pytest.approx(run(CHAIN, costs(TIMES), one).makespan_s)
    own = costs([MS] * 6)
    assert run(TOWERS, own, one).makespan_s == pytest.approx(6 * MS)
    together = run(TOWERS, own, two)
    assert together.makespan_s == pytest.approx(4 * MS)
    assert (together.most_running, together.mean_running) == (2, pytest.approx(6 / 4))


@pytest.mark.parametrize("serial", [0.0, 0.1, 0.5, 1.0])
def test_threads_help_as_amdahl_says(serial: float) -> None:
    for n in (1, 2, 8, 24):
        step = run(CHAIN, costs(TIMES, serial=serial), Pools(inter_op=1, intra_op=n))
        assert step.makespan_s == pytest.approx(10 * MS * (serial + (1 - serial) / n))


def test_more_threads_divide_a_part_of_what_two_do_not() -> None:
    terms = replace(PLAIN, eta=0.5)
    for n, left in ((1, 1.0), (2, 1.0), (8, 0.75), (16, 0.5 + 0.5 * 5 / 16)):
        step = run(CHAIN, costs(TIMES, serial=0.4, terms=terms), Pools(inter_op=1, intra_op=n), terms=terms)
        assert step.makespan_s == pytest.approx(10 * MS * (0.4 * left + 0.6 / n))
    # What two do not divide at all, no number of threads does.
    whole = run(CHAIN, costs(TIMES, serial=1.0, terms=terms), Pools(inter_op=1, intra_op=16), terms=terms)
    assert whole.makespan_s == pytest.approx(10 * MS)


def test_each_operator_pays_for_hops_between_threads() -> None:
    """To the first thread, from one to the other by halves, and back to the one that waits."""
    terms = replace(PLAIN, fork_s=0.01 * MS)
    own = costs(TIMES, terms=terms)
    for n, n_hops in ((1, 0), (2, 3), (16, 6)):
        for waking in (1.0, 2.0):
            step = run(CHAIN, own, Pools(inter_op=1, intra_op=n), replace(MANY, waking=waking), terms=terms)
            assert step.makespan_s == pytest.approx(10 * MS / n + len(TIMES) * n_hops * waking * 0.01 * MS)


def test_all_cores_at_work_make_each_slower() -> None:
    busy = replace(MANY, cores=16, busy_loss=0.3)
    assert [busy.slower(n) for n in (0.5, 1, 8.5, 16, 99)] == pytest.approx([1.0, 1.0, 1.15, 1.3, 1.3])
    assert replace(busy, quota=1.0).slower(16) == 1.0


def test_two_that_run_at_once_share_the_pool_and_no_more_is_done_than_there_are_cores() -> None:
    own = costs([0.0, MS, MS, MS, MS, 0.0])
    alone = run(TOWERS, own, Pools(inter_op=1, intra_op=8)).makespan_s
    assert run(TOWERS, own, Pools(inter_op=2, intra_op=8)).makespan_s == pytest.approx(alone)  # perfect division
    few = replace(MANY, cores=2)
    assert run(TOWERS, own, Pools(inter_op=2, intra_op=8), few).makespan_s == pytest.approx(2 * MS)
    # What cannot be divided gains by a neighbour.
    serial = costs([0.0, MS, MS, MS, MS, 0.0], serial=0.5)
    assert (
        run(TOWERS, serial, Pools(inter_op=2, intra_op=8)).makespan_s
        < 0.7 * run(TOWERS, serial, Pools(inter_op=1, intra_op=8)).makespan_s
    )


def test_streams_fill_what_a_chain_leaves_idle() -> None:
    own = costs(TIMES, serial=1.0)
    two = run(CHAIN, own, Pools(inter_op=2, intra_op=1, streams=2))
    assert two.makespan_s == pytest.approx(10 * MS)
    waiting = run(CHAIN, own, Pools(inter_op=1, intra_op=1, streams=2))
    assert waiting.makespan_s == pytest.approx(20 * MS)


# ---- the machine ----------------------------------------------------------------------------------------------


def test_a_second_thread_of_a_core_is_worth_a_quarter_of_it() -> None:
    smt = replace(MANY, cores=4, smt=2)
    four, eight = (run(CHAIN, costs(TIMES), Pools(inter_op=1, intra_op=n), smt).makespan_s for n in (4, 8))
    assert four / eight == pytest.approx(1.25)


def test_what_is_not_divided_lends_its_cores_to_nobody() -> None:
    """Threads beyond the cores share them in what is divided; an average over the whole operator would hide that."""
    smt = replace(MANY, cores=8, smt=2)
    own = costs(TIMES, serial=0.1)
    eight, sixteen = (run(CHAIN, own, Pools(inter_op=1, intra_op=n), smt).makespan_s for n in (8, 16))
    assert eight == pytest.approx(10 * MS * (0.1 + 0.9 / 8))
    assert sixteen == pytest.approx(10 * MS * (0.1 + 0.9 / 10))
    half = costs(TIMES, serial=0.5)
    two, four = (run(CHAIN, half, Pools(inter_op=1, intra_op=n), replace(MANY, cores=2)).makespan_s for n in (2, 4))
    assert (two, four) == (pytest.approx(10 * MS * 0.75), pytest.approx(10 * MS * 0.75))


def test_a_quota_is_a_limit_on_the_time_of_all_threads() -> None:
    half = replace(MANY, cores=2, quota=1.0)
    one, two = (run(CHAIN, costs(TIMES), Pools(inter_op=1, intra_op=n), half).makespan_s for n in (1, 2))
    assert one == pytest.approx(10 * MS)
    assert two == pytest.approx(10 * MS * (1 + PLAIN.throttle))
    # A thread that is alone in its process keeps nobody waiting.
    alone = run(CHAIN, costs(TIMES), Pools(inter_op=1, intra_op=1), replace(half, quota=0.5))
    assert alone.makespan_s == pytest.approx(20 * MS)
    # What two threads waste is paid for.
    own = replace(costs(TIMES), fork_s=0.5 * MS)
    one, two = (run(CHAIN, own, Pools(inter_op=1, intra_op=n), half).makespan_s for n in (1, 2))
    assert two > 1.15 * one


def test_what_a_cache_holds_takes_no_memory_from_others() -> None:
    own = costs([0.0] * 6, n_bytes=1e6)
    own.fixed_bytes[[0, 5]] = 0.0
    narrow = replace(MANY, most_bytes_s=1.5e10)
    one, two = (run(TOWERS, own, Pools(inter_op=n, intra_op=1), narrow).makespan_s for n in (1, 2))
    assert one == pytest.approx(2 * two)


def test_memory_is_shared_by_what_runs_at_once() -> None:
    narrow = replace(MANY, most_bytes_s=1e10, cache_bytes=1.0)
    own = costs([0.0, 0.0, 0.0, 0.0, 0.0, 0.0], n_bytes=1e7)
    own.fixed_bytes[[0, 5]] = 0.0
    one, two = (run(TOWERS, own, Pools(inter_op=n, intra_op=1), narrow).makespan_s for n in (1, 2))
    assert one == pytest.approx(two, rel=1e-3) == pytest.approx(4 * MS, rel=1e-3)
    wide = run(TOWERS, own, Pools(inter_op=2, intra_op=1), replace(narrow, most_bytes_s=1e11)).makespan_s
    assert wide == pytest.approx(2 * MS, rel=1e-3)


def test_what_a_cache_holds_moves_faster_and_the_memory_of_another_socket_slower() -> None:
    n_bytes = np.array([1e6, 1e9])
    small, large = moving_s(n_bytes, missed(n_bytes, MANY), 1.0, MANY)
    assert small == pytest.approx(1e6 / 4e10)
    assert large == pytest.approx(1e9 / 1e10, rel=0.05)
    sockets = replace(MANY, sockets=2)
    own = moving_s(n_bytes, missed(n_bytes, sockets), 12.0, sockets)[1]
    both = moving_s(n_bytes, missed(n_bytes, sockets), 13.0, sockets)[1]
    assert both > 1.2 * own


def test_teams_of_more_threads_than_cpus_lose_more_than_a_pool() -> None:
    own = costs([0.0, MS, MS, MS, MS, 0.0])
    own.library[:] = True
    few = replace(MANY, cores=4)
    tasks = tasks_of(TOWERS, list(own.rest_s(1)))

    def makespan_s(pools: Pools) -> float:
        def alone(n: float) -> object:
            threads = pools.team or n
            operators = own.time_s(threads, 1, few)
            if pools.blocktime_s:
                operators = replace(operators, busy_s=operators.time_s * threads)
            return operators.summed(tasks.part, len(tasks))

        return simulate(tasks, alone, pools, few, dispatch_s=0.0).makespan_s  # type: ignore[arg-type]

    pool, teams = Pools(inter_op=2, intra_op=8), Pools(inter_op=2, intra_op=8, team=8)
    # By a tenth or so: teams of four times as many threads as CPUs were measured to lose 0 to 19 %.
    assert 1.05 < makespan_s(teams) / makespan_s(pool) < 1.2
    # Threads of a team that has nothing to do take CPUs from one that has.
    own.fixed_s[:] = [0.0, MS, MS, 3 * MS, 3 * MS, 0.0]
    lopsided = Pools(inter_op=2, intra_op=1, team=4, blocktime_s=0.2)
    assert makespan_s(lopsided) > 1.05 * makespan_s(replace(lopsided, blocktime_s=0.0))


# ---- costs from a profile -------------------------------------------------------------------------------------


def traced(threads: int, nodes: Sequence[tuple[str, float]], batch_size: int) -> Traced:
    """Return what a process told of square operators in a chain."""
    side = 64
    described = [
        [name, op, [[i - 1, 0]] if i else [], [["float32", [batch_size, side, side]]], {}, 1, time_s]
        for i, (name, time_s) in enumerate(nodes)
        for op in ["Tanh"]
    ]
    total_s = sum(time_s for _, time_s in nodes)
    return Traced(
        threads=threads,
        step_s=1.05 * total_s,
        plain_s=1.05 * total_s,
        traced_s=1.1 * total_s,
        busy_s=total_s,
        roof=Roof(flops=1e11, bytes_s=1e10),
        nodes=described,
    )


def made(batch_size: int, fixed_s: float, per_item_s: float, serial: float) -> Profile:
    """Return the profile of operators of known costs with 1, 2 and 4 threads."""
    one_s = fixed_s + per_item_s * batch_size
    return profile(
        [traced(n, [(f"op{i}", one_s * (serial + (1 - serial) / n)) for i in range(3)], batch_size) for n in (1, 2, 4)]
    )


@pytest.mark.parametrize(("fixed_s", "per_item_s", "serial"), [(0.0, MS, 0.0), (2 * MS, MS, 0.2), (5 * MS, 0.0, 0.9)])
def test_costs_give_back_what_was_profiled_and_what_lies_between(
    fixed_s: float, per_item_s: float, serial: float
) -> None:
    own = costs_of({b: made(b, fixed_s, per_item_s, serial) for b in (2, 16)}, MANY, PLAIN)
    for batch_size in (2, 8, 16, 32):
        for n in (1, 2, 4):
            expected_s = (fixed_s + per_item_s * batch_size) * (serial + (1 - serial) / n)
            time_s = own.time_s(n, batch_size, MANY).time_s
            assert time_s == pytest.approx(np.full(3, expected_s), rel=0.1)


def test_waking_threads_is_told_apart_from_what_is_not_divided() -> None:
    """The first costs the same at every batch size, the second grows with it."""
    fork_s, serial = 50e-6, 0.1

    def made_at(batch_size: int) -> Profile:
        one_s = MS * batch_size
        times_s = {n: one_s * (serial + (1 - serial) / n) + fork_s * float(hops(n)) for n in (1, 2, 4)}
        return profile([traced(n, [(f"op{i}", times_s[n]) for i in range(3)], batch_size) for n in times_s])

    own = costs_of({b: made_at(b) for b in (1, 8)}, MANY, PLAIN)
    assert own.fork_s == pytest.approx(fork_s, rel=0.3)
    assert own.serial == pytest.approx(np.full(3, serial), abs=0.05)


def test_where_memory_explains_all_at_one_batch_the_rest_at_another_is_kept() -> None:
    """Twice the time of memory at one item, 1.2 times at eight: the rest is there at both."""
    narrow = replace(MANY, one_bytes_s=2e9, most_bytes_s=1e10, cache_bytes=1.0)
    memory_s = {b: 2 * 4 * 64 * 64 * b / 2e9 for b in (1, 8)}
    seconds = {1: 2.0 * memory_s[1], 8: 1.2 * memory_s[8]}
    profiles = {b: profile([traced(1, [(f"op{i}", seconds[b]) for i in range(3)], b)]) for b in (1, 8)}
    own = costs_of(profiles, narrow, PLAIN)
    for batch_size, expected_s in seconds.items():
        assert own.time_s(1, batch_size, narrow).time_s[1:] == pytest.approx(np.full(2, expected_s), rel=0.05)
    # More than eightfold at eight items is no line: the larger time counts.
    slopes = lines(np.array([1.0, 8.0]), np.array([[0.0], [120e-6]]), scale=np.array([[10e-6], [200e-6]]))[1]
    assert 8 * slopes[0] > 80e-6


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_line_through_two_points_is_found_again(intercept: float, slope: float) -> None:
    x = np.array([1.0, 8.0])
    y = (intercept + slope * x)[:, None]
    assert [float(each[0]) for each in lines(x, y)] == pytest.approx([intercept, slope], abs=1e-6)


def test_a_line_has_no_negative_part() -> None:
    falling, below = lines(np.array([1.0, 2.0]), np.array([[2.0, 0.1], [1.0, 2.0]]))
    assert (falling >= 0).all()
    assert (below >= 0).all()
    assert [float(each[0]) for each in lines(np.array([4.0, 8.0]), np.array([[np.nan], [4.0]]))] == [0.0, 0.5]


# ---- machines in words ----------------------------------------------------------------------------------------


def test_a_machine_in_words_is_numbered_as_linux_does() -> None:
    machine = parse_spec("sockets=2,cores=28,smt=2").machine()
    assert (machine.sockets, machine.physical_cores, machine.logical_cpus) == (2, 56, 112)
    assert machine.numa_nodes == {"0": "0-27,56-83", "1": "28-55,84-111"}
    assert parse_list(machine.cores[0]) == {0, 56}
    assert parse_spec("cores=4,quota=1.5").machine().usable_cpus == 2
    assert machine.id != parse_spec("sockets=2,cores=28").machine().id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected e.g."),
        ("56", "expected e.g."),
        ("sockets=2", "does not name cores"),
        ("cores=0", "a whole number from 1"),
        ("cores=2.5", "a whole number from 1"),
        ("cores=nan", "a whole number from 1"),
        ("cores=four", "a whole number from 1"),
        ("cores=4,cores=8", "twice"),
        ("cores=4,core=8", "did you mean cores"),
        ("cores=4,quota=9", "4 CPUs"),
        ("cores=4,quota=0", "a number from 0.01"),
        ("cores=4,bandwidth=0", "a number from 1 to 10000, in GB/s"),
        ("cores=4,memory=512MB", "in GiB"),
        ("cores=4GB", "a whole number from 1"),
        ("cores=4,memory=inf", "to 65536"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInputError) as error:
        parse_spec(text).machine()
    assert message in f"{error.value.message}; {error.value.hint}"


def test_a_machine_elsewhere_is_taken_to_have_eight_threads_worth_of_memory_a_socket() -> None:
    hardware = hardware_of(parse_spec("sockets=2,cores=28,smt=2").machine(), {1: 1e10, 2: 1.5e10}, is_here=False)
    assert (hardware.cores, hardware.cpus, hardware.most_bytes_s) == (56, 112, pytest.approx(1.6e11))
    here = hardware_of(parse_spec("cores=2").machine(), {1: 1e10, 2: 1.5e10}, is_here=True)
    assert here.most_bytes_s == pytest.approx(1.5e10)
    assert hardware.part(4).cores == 14
    assert hardware.limited(28).sockets == 1
    fast = hardware_of(parse_spec("cores=28").machine(), {1: 1e10}, is_here=False, socket_bytes_s=4e11)
    assert (fast.one_bytes_s, fast.most_bytes_s) == (1e10, pytest.approx(2.8e11))
    slow = hardware_of(parse_spec("cores=28").machine(), {1: 1e11}, is_here=False, socket_bytes_s=1e11)
    assert (slow.one_bytes_s, slow.most_bytes_s) == (pytest.approx(1.25e10), pytest.approx(1e11))


def test_capacity_grows_with_threads_up_to_the_cpus() -> None:
    smt = replace(MANY, cores=4, smt=2)
    assert [smt.capacity(n, 0.0) for n in (1, 4, 8, 16)] == pytest.approx([1, 4, 5, 5])
    assert smt.capacity(16, 0.5) == pytest.approx(5 / 1.5)
    assert replace(smt, smt=4).capacity(16, 0.0) == pytest.approx(5)  # nothing is known of a third thread
    uneven = replace(smt, cores=14, smt=20 / 14)  # six cores with two threads, and eight with one
    assert (uneven.cpus, uneven.capacity(20, 0.0)) == (20, pytest.approx(15.5))
    assert uneven.limited(4, 1.0).cpus == 4
    # More processes than cores share them.
    assert (smt.part(8).cores, smt.part(8).quota) == (1, 0.5)
    assert replace(smt, quota=2.0).part(2).quota == 1.0
