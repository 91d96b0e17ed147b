"""How ONNX Runtime's knobs are audited: by the options that its session tells, and by the threads that it started."""

from __future__ import annotations

from tuner.space.auditing import Audit, AuditAnswer, AuditCase


def option(knob: str, name: str) -> Audit:
    """Return the audit of an option that starts no threads, by what the session tells of it."""

    def audit(case: AuditCase) -> AuditAnswer:
        reported = case.effective["options"].get(name)
        return reported == str(case.values[knob]), f"the session says {name}={reported}"

    return audit


def cuda_option(name: str) -> Audit:
    """Return the audit of an option of the provider for GPUs, by what the session tells of it; words are upper case."""

    def audit(case: AuditCase) -> AuditAnswer:
        reported = case.effective["options"].get(name)
        if reported is None:
            return None, f"the session does not tell {name}"
        return reported == str(case.values[name]).upper(), f"the session says {name}={reported}"

    return audit


def affinity(case: AuditCase) -> AuditAnswer:
    """Audit whether threads are bound, by the CPUs that those of the session may use."""
    own_mask, masks = case.effective["mask"], case.effective["pools"]["framework"]
    evidence = ", ".join(f"{n} on CPUs {mask}" for mask, n in masks.items()) or "none"
    if own_mask.isdigit() or not masks:
        return None, f"threads of the session: {evidence}; the process may use CPUs {own_mask}"
    is_bound = own_mask not in masks
    is_mixed = not is_bound and len(masks) > 1
    expected = case.values["intra_op_affinity"] == "cores"
    return is_bound == expected and not is_mixed, f"threads of the session: {evidence}"


def pool(name: str) -> Audit:
    """Return the audit of a pool's size: by what the session tells, and by the threads that came with it.

    A session starts one thread less than a pool has, for the caller is one of them; the second pool is there only
    where operators may run at once.
    """
    audit_option = option(name, name)

    def audit(case: AuditCase) -> AuditAnswer:
        created = case.effective["context"]["created"]
        right, evidence = audit_option(case)
        if not right or created is None:
            return right, evidence
        expected_threads = int(case.values["intra_op_num_threads"]) - 1
        if case.values["execution_mode"] == "parallel":
            expected_threads += int(case.values["inter_op_num_threads"]) - 1
        return created == expected_threads, f"{evidence}; it started {created} threads"

    return audit
