"""How ONNX Runtime's knobs are judged: by the options that its session tells, and by the threads that it started."""

from __future__ import annotations

from tuner.space.judging import Case, Judge, Judgement


def option(knob: str, name: str) -> Judge:
    """Return the judge of an option that starts no threads, by what the session tells of it."""

    def judge(case: Case) -> Judgement:
        told = case.effective["options"].get(name)
        return told == str(case.values[knob]), f"the session says {name}={told}"

    return judge


def pool(name: str) -> Judge:
    """Return the judge of a pool's size: by what the session tells, and by the threads that came with it.

    A session starts one thread less than a pool has, for the caller is one of them; the second pool is there only
    where operators may run at once.
    """
    told = option(name, name)

    def judge(case: Case) -> Judgement:
        created = case.effective["context"]["created"]
        right, evidence = told(case)
        if not right or created is None:
            return right, evidence
        wanted = int(case.values["intra_op_num_threads"]) - 1
        if case.values["execution_mode"] == "parallel":
            wanted += int(case.values["inter_op_num_threads"]) - 1
        return created == wanted, f"{evidence}, and it started {created} threads"

    return judge
