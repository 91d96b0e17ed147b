"""ONNX Runtime as a framework: `.onnx` files, and whatever TensorFlow exports, by way of tf2onnx.

Its knobs are options of the session that a model is loaded into. Semantics and sources: ONNX Runtime's documentation,
Thread management; `onnxruntime_session_options_config_keys.h` (spinning, affinities); `inference_session.cc` (a pool of
one is none, a parallel session without a second pool is sequential, and a sequential one binds its threads to cores
where no count is set). On a GPU: the options of its CUDA provider, with the defaults that its documentation gives (CUDA
Execution Provider, Configuration Options).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tuner.devices.device import Device
from tuner.devices.gpu import KIND as GPU
from tuner.devices.nvidia import NVIDIA
from tuner.errors import BadInputError
from tuner.frameworks import framework, probing
from tuner.frameworks.converted import ConvertedFramework
from tuner.frameworks.onnxruntime.child.session import CONFIG, CPU_PROVIDER, CUDA_OPTIONS, CUDA_PROVIDER, MODES
from tuner.machine.host import Machine
from tuner.space import experiment
from tuner.space.auditing import Audit, AuditAnswer, AuditCase
from tuner.space.baseline import Baseline, of_instances
from tuner.space.carrier import Option
from tuner.space.common import BATCH_SIZE, OF_PROCESSES, TF32, one_or_all
from tuner.space.deployment import Deployment
from tuner.space.experiment import Experiment, Observation, Reach, observed
from tuner.space.knob import Knob
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import SWITCH, Numbers, Value, Words

SEQUENTIAL, PARALLEL = "sequential", "parallel"
CORES, UNBOUND = "cores", "none"
_THREADS = Numbers(counts_threads=True)
SUBJECT = probing.ProbedPackage(
    title="ONNX Runtime", package="onnxruntime", install="onnxruntime", folder=Path(__file__).parent / "child"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxRuntimeBuild(probing.ProbedBuild):
    """An ONNX Runtime build. It can be forked: its threads start with a session, and none exists before a fork."""

    subject = SUBJECT
    onnxruntime: str
    providers: list[str]
    """Its execution providers, in its own order of preference."""
    converters: dict[str, str]
    """The versions of what makes an ONNX file of TensorFlow's export, by name; none of what is not installed."""
    cpus: int
    """The CPUs of the affinity mask under which the experiments ran."""
    observations: list[Observation]
    """The raw experiments, see below."""

    @property
    def default_threads(self) -> int | None:
        """Return the threads that a session has when nothing is set, as the probe saw it; None if it saw nothing."""
        unset = observed(self.observations, None)
        return None if unset is None else 1 + int(unset["created"])

    @property
    def binds_by_default(self) -> bool:
        """Return whether a session binds its threads when nothing is set, as the probe saw it."""
        unset = observed(self.observations, None)
        return unset is not None and bool(unset["bound"])


# ---- which options reach a build -----------------------------------------------------------------------------------
# Each experiment is made in a fork of the target interpreter. Its observation holds the threads that the creation of a
# session started, how many of them are bound to some of the process's CPUs, and the CPU time that they took while
# nothing was asked of them: a thread that waits for work spins for a while before it sleeps, unless it is told not to.

_SPUN_S = 0.01
"""CPU time of idle threads from which on they were spinning: 25 to 60 ms with it and under 2 ms without, as seen."""


def _pool_reach(value: str, low: Observation, high: Observation) -> Reach:
    created = f"with 2 and {value}, a session starts {low['created']} and {high['created']} threads"
    return Reach(answer=high["created"] - low["created"] == int(value) - 2, evidence=created)


def _mode_reach(value: str, low: Observation, high: Observation) -> Reach:
    created = f"parallel and {value}: a session starts {low['created']} and {high['created']} threads"
    return Reach(answer=high["created"] < low["created"], evidence=created)


def _spinning_reach(_: str, low: Observation, high: Observation) -> Reach:
    asleep, awake = low["idle_cpu_s"], high["idle_cpu_s"]
    evidence = f"with spinning off and on, idle threads used {1000 * asleep:.0f} and {1000 * awake:.0f} ms of CPU time"
    # On a machine that is busy otherwise, threads may not have come to it.
    return Reach(answer=True if asleep < _SPUN_S < awake else None, evidence=evidence)


def _affinity_reach(value: str, low: Observation, high: Observation) -> Reach:
    evidence = f"without and with {value}, {low['bound']} and {high['bound']} of its threads are bound to CPUs"
    return Reach(answer=low["bound"] == 0 < high["bound"], evidence=evidence)


_INTRA_OP = Experiment(name="intra_op_num_threads", low="2", contrast=lambda _: "4", interpret=_pool_reach)
_INTER_OP = Experiment(name="inter_op_num_threads", low="2", contrast=lambda _: "4", interpret=_pool_reach)
_EXECUTION_MODE = Experiment(
    name="execution_mode", low="parallel", contrast=lambda _: "sequential", interpret=_mode_reach
)
_INTRA_OP_AFFINITY = Experiment(
    name="intra_op_affinity", low="none", contrast=lambda _: "cores", interpret=_affinity_reach
)
_INTRA_OP_SPINNING = Experiment(
    name="session.intra_op.allow_spinning", low="0", contrast=lambda _: "1", interpret=_spinning_reach
)
_INTER_OP_SPINNING = Experiment(
    name="session.inter_op.allow_spinning", low="0", contrast=lambda _: "1", interpret=_spinning_reach
)
AFFINITIES = _INTRA_OP_AFFINITY.name

# ---- the knobs ----------------------------------------------------------------------------------------------------


def _own(machine: Machine, build: OnnxRuntimeBuild, _: int) -> Value:
    """Return the threads of a pool when nothing is set: as the probe saw it, else one a physical core."""
    probed_threads = build.default_threads if build.cpus == machine.logical_cpus else None
    return probed_threads if probed_threads is not None else machine.physical_cores


def _own_affinity(machine: Machine, build: OnnxRuntimeBuild, default_batch: int) -> Value:
    """Return how threads are bound when nothing is set; a pool of one has none to bind."""
    return CORES if build.binds_by_default and int(_own(machine, build, default_batch)) > 1 else UNBOUND


def _is_parallel(values: Mapping[str, Value]) -> bool:
    """Return whether there is a second pool."""
    return values["execution_mode"] == PARALLEL


def _binds(values: Mapping[str, Value]) -> bool:
    """Return whether there are threads to bind: as by default, only where one operator runs at a time."""
    return not _is_parallel(values) and int(values["intra_op_num_threads"]) > 1


def _cuda(name: str, meaning: str, values: Numbers | Words, default: Value) -> Knob:
    """Return the knob of an option of the provider for GPUs, which is called as that is."""
    return Knob(
        name=name,
        meaning=meaning,
        values=values,
        carrier=Option(name),
        in_every_setting=False,
        default=lambda *_: default,
        audit=_cuda_option_audit(name),
        devices=(GPU,),
    )


def _option_audit(knob: str, name: str) -> Audit:
    """Return the audit of an option that starts no threads, by what the session tells of it."""

    def audit(case: AuditCase) -> AuditAnswer:
        reported = case.effective["options"].get(name)
        return reported == str(case.values[knob]), f"the session reports {name}={reported}"

    return audit


def _cuda_option_audit(name: str) -> Audit:
    """Return the audit of an option of the provider for GPUs, by what the session tells of it; words are upper case."""

    def audit(case: AuditCase) -> AuditAnswer:
        reported = case.effective["options"].get(name)
        if reported is None:
            return None, f"the session does not report {name}"
        return reported == str(case.values[name]).upper(), f"the session reports {name}={reported}"

    return audit


def _affinity_audit(case: AuditCase) -> AuditAnswer:
    """Audit whether threads are bound, by the CPUs that those of the session may use."""
    own_mask, masks = case.effective["mask"], case.effective["pools"]["framework"]
    evidence = ", ".join(f"{n} on CPUs {mask}" for mask, n in masks.items()) or "none"
    if own_mask.isdigit() or not masks:
        return None, f"threads of the session: {evidence}; the process may use CPUs {own_mask}"
    is_bound = own_mask not in masks
    is_mixed = not is_bound and len(masks) > 1
    expected = case.values["intra_op_affinity"] == "cores"
    return is_bound == expected and not is_mixed, f"threads of the session: {evidence}"


def _pool_audit(name: str) -> Audit:
    """Return the audit of a pool's size: by what the session tells, and by the threads that came with it.

    A session starts one thread less than a pool has, for the caller is one of them; the second pool is there only
    where operators may run at once.
    """
    audit_option = _option_audit(name, name)

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


_ALL = (
    Knob(
        name="intra_op_num_threads",
        meaning="threads inside one operator",
        values=_THREADS,
        carrier=Option(_INTRA_OP.name),
        default=_own,
        audit=_pool_audit("intra_op_num_threads"),
        experiment=_INTRA_OP,
        contrast_values=one_or_all,
        n_threads=lambda values: int(values["intra_op_num_threads"]),
    ),
    Knob(
        name="inter_op_num_threads",
        meaning="operators that may run at once, if the mode is parallel",
        values=_THREADS,
        carrier=Option(_INTER_OP.name),
        default=_own,
        audit=_pool_audit("inter_op_num_threads"),
        experiment=_INTER_OP,
        contrast_values=lambda machine: (2, max(4, machine.physical_cores)),
        has_effect=_is_parallel,
        n_threads=lambda values: int(values["inter_op_num_threads"]) if _is_parallel(values) else 0,
    ),
    Knob(
        name="execution_mode",
        meaning="whether operators run one at a time (sequential) or several at once (parallel)",
        values=Words(words=(SEQUENTIAL, PARALLEL)),
        carrier=Option(_EXECUTION_MODE.name),
        default=lambda *_: SEQUENTIAL,
        audit=_option_audit("execution_mode", _EXECUTION_MODE.name),
        experiment=_EXECUTION_MODE,
        contrast_values=lambda _: (SEQUENTIAL, PARALLEL),
    ),
    Knob(
        name="intra_op_affinity",
        meaning="whether each thread of the first pool is bound to a physical core (cores) or none is (none)",
        values=Words(words=(CORES, UNBOUND)),
        carrier=Option(AFFINITIES, without=UNBOUND),
        default=_own_affinity,
        has_effect=_binds,
        audit=_affinity_audit,
        experiment=_INTRA_OP_AFFINITY,
        contrast_values=lambda _: (UNBOUND, CORES),
    ),
    Knob(
        name="intra_op_spinning",
        meaning="whether idle threads of the first pool spin (1) or sleep (0)",
        values=SWITCH,
        carrier=Option(_INTRA_OP_SPINNING.name),
        default=lambda *_: 1,
        audit=_option_audit("intra_op_spinning", _INTRA_OP_SPINNING.name),
        experiment=_INTRA_OP_SPINNING,
        contrast_values=lambda _: (0, 1),
    ),
    BATCH_SIZE,
    Knob(
        name="inter_op_spinning",
        meaning="whether idle threads of the second pool spin (1) or sleep (0)",
        values=SWITCH,
        carrier=Option(_INTER_OP_SPINNING.name),
        in_every_setting=False,
        default=lambda *_: 1,
        has_effect=_is_parallel,
        audit=_option_audit("inter_op_spinning", _INTER_OP_SPINNING.name),
        experiment=_INTER_OP_SPINNING,
    ),
    _cuda(
        "cudnn_conv_algo_search",
        "how cuDNN's algorithm of a convolution is chosen: by trying all, by its rules, or always the same one",
        Words(words=("exhaustive", "heuristic", "default")),
        "exhaustive",
    ),
    _cuda(
        "cudnn_conv_use_max_workspace",
        "whether a convolution may take as much memory as it likes (1) or 32 MiB (0)",
        SWITCH,
        1,
    ),
    _cuda("prefer_nhwc", "whether channels come last in memory, as tensor cores want them (1)", SWITCH, 0),
    TF32,
    *OF_PROCESSES,
)


# It looks for the cores where it runs: the numbers of CPUs differ from one container to the next.
_AFFINITY_LINES = """
# intra_op_affinity: a physical core for each thread but the caller's, which keeps the first
cores = {}
for cpu in sorted(os.sched_getaffinity(0)):
    with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as siblings:
        cores.setdefault(siblings.read(), []).append(str(cpu + 1))  # ONNX Runtime counts CPUs from 1
groups = [",".join(cpus) for cpus in cores.values()]
threads = [groups[i % len(groups)] for i in range(1, {n})]
options.add_session_config_entry("session.intra_op_thread_affinities", ";".join(threads))
""".strip().splitlines()


def _parallel(machine: Machine) -> dict[str, Value]:
    """Return parallel execution; with a single core ONNX Runtime itself falls back to the sequential one."""
    if machine.usable_cores == 1:
        return {}
    return {"execution_mode": PARALLEL, "inter_op_num_threads": machine.usable_cores, "intra_op_affinity": UNBOUND}


def threads_on(cores: int) -> dict[str, Value]:
    """Return the knobs of a process that has so many cores to itself: its mask keeps it to them."""
    return {"intra_op_num_threads": cores, "intra_op_affinity": UNBOUND}


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name="ort-default",
        source="ONNX Runtime documentation, Thread management: one thread per physical core, each bound to its core",
        rule=lambda _: {},
    ),
    Baseline(
        name="ort-explicit",
        source="ONNX Runtime documentation, Thread management: one thread per usable core, set explicitly, none bound",
        rule=lambda machine: {"intra_op_num_threads": machine.usable_cores, "intra_op_affinity": UNBOUND},
        at_best_batch=True,
    ),
    Baseline(
        name="ort-parallel",
        source="ONNX Runtime documentation, Thread management: for models with many branches",
        rule=_parallel,
    ),
    *of_instances(threads_on),
)


# ---- whether it can use a GPU ---------------------------------------------------------------------------------------

_NOT_LOADED = re.compile(r"error: (lib[^:\s]+): cannot open shared object file")
_FAILED = re.compile(r"CUDA failure \d+: ([^;\n]+)")
_NEEDS = re.compile(r"Require (cuDNN [^,]+(?:,| and) CUDA [\d*]+(?:\.[\d*]+)*)")
_INSTALL = "install onnxruntime-gpu there in place of onnxruntime"


def why_no_gpu(facts: Mapping[str, Any]) -> BadInputError:
    """Return why no GPU is used, from what the target interpreter told (`child.probe.devices`)."""
    missing = list(dict.fromkeys(_NOT_LOADED.findall(facts["log"])))
    needs = _NEEDS.search(facts["log"])
    if missing:
        of_build = f"; this build needs {needs[1]}" if needs else ""
        return _none(
            f"{', '.join(missing)} cannot be loaded{of_build}",
            "install onnxruntime-gpu[cuda,cudnn] there, or add the folder of these libraries to LD_LIBRARY_PATH",
        )
    failed = _FAILED.search(facts["log"])
    if failed:
        return _none(f"CUDA does not start: {failed[1].strip()}", "compare with the driver that nvidia-smi shows")
    return _none("it gives no reason", "see what it logs when a session asks for CUDAExecutionProvider")


def _none(reason: str, hint: str) -> BadInputError:
    return BadInputError(f"ONNX Runtime sees no GPU: {reason}", hint)


class OnnxRuntime(ConvertedFramework):
    """Its execution providers for CPUs, and for NVIDIA's GPUs."""

    knobs: Mapping[str, Knob] = {knob.name: knob for knob in _ALL}  # not changed
    baselines = BASELINES
    build = OnnxRuntimeBuild
    switches = ("ORT_", "LD_", "PYTHON")
    files: Mapping[str, str] = {".onnx": "onnx"}  # not changed
    conversion = 3
    devices = ("cpu", "gpu")
    makers = (NVIDIA,)
    timing_prefixes = (*framework.LOADER_AND_ALLOCATORS, "ORT_")

    def threads_on(self, cores: int) -> dict[str, Value]:
        """Return so many threads, which the process's mask keeps to its cores."""
        return threads_on(cores)

    def probe(self, python: Path, env: Mapping[str, str]) -> framework.Build:
        """Return the build of an interpreter, and what the experiments of its knobs show."""
        cpus = sorted(os.sched_getaffinity(0))
        plan = experiment.plan(self.catalogue.experiments, cpus)
        return self.found(python, env, looks=[cpus], plan=plan, cpus=len(cpus))

    def reach(self, build: framework.Build) -> dict[str, Reach]:
        """Return which options reach a build, by the experiments of its probe."""
        return experiment.reach(self.catalogue.experiments, cast("OnnxRuntimeBuild", build).observations)

    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        """Return what to tell of a build."""
        return [
            f"ONNX Runtime {build['onnxruntime']}, Python {build['python']}",
            f"execution providers: {', '.join(build['providers'])}",
        ]

    def seen_devices(
        self, python: Path, env: Mapping[str, str], build: framework.Build, device: Device
    ) -> tuple[str, ...]:
        """Return what it calls the GPU that it can use; raises BadInputError that explains why it cannot.

        Without one it falls back to the CPU, and says why in its log alone.
        """
        if device.kind != "gpu":
            return ()
        if CUDA_PROVIDER not in cast("OnnxRuntimeBuild", build).providers:
            raise _none("it was built without CUDA", _INSTALL)
        facts, _ = probing.run_probe(python, env, SUBJECT, {}, function="devices")
        if CUDA_PROVIDER not in facts["providers"]:
            raise why_no_gpu(facts)
        return (CUDA_PROVIDER,)

    def initial_design(self, space: Space) -> list[Setting]:
        """Return, as far as they are new points of the space: sleeping threads, two pools, and one thread."""
        values = space.reference.to_dict()
        share = max(1, int(values["intra_op_num_threads"]) // 2)
        candidates: list[dict[str, Value]] = [
            {"execution_mode": SEQUENTIAL, "intra_op_spinning": 0},
            {
                "execution_mode": PARALLEL,
                "inter_op_num_threads": 2,
                "intra_op_num_threads": share,
                "intra_op_affinity": UNBOUND,
            },
            {"execution_mode": SEQUENTIAL, "intra_op_num_threads": 1, "intra_op_affinity": UNBOUND},
        ]
        return space.new_points(
            Setting.of(values | {k: v for k, v in each.items() if k in values}) for each in candidates
        )

    def session_code(self, deployment: Deployment) -> list[str]:
        """Return the lines of Python that make a session with its options; nothing where it has none."""
        options = deployment.options
        if not options:
            return []
        lines = ["import os", ""] if AFFINITIES in options else []
        lines += ["import onnxruntime", "", "options = onnxruntime.SessionOptions()"]
        for name, value in options.items():
            if name == AFFINITIES:
                n_threads = str(options.get("intra_op_num_threads", "len(groups)"))
                lines += [line.replace("{n}", n_threads) for line in _AFFINITY_LINES]
            elif name in CUDA_OPTIONS:
                continue
            elif name.startswith(CONFIG):
                lines.append(f'options.add_session_config_entry("{name}", "{value}")')
            elif name == "execution_mode":
                lines.append(f"options.{name} = onnxruntime.ExecutionMode.{MODES[str(value)]}")
            else:
                lines.append(f"options.{name} = {value}")
        cuda_options = {name: str(value).upper() for name, value in options.items() if name in CUDA_OPTIONS}
        if not cuda_options:
            return [*lines, 'session = onnxruntime.InferenceSession("model.onnx", options)']
        lines.append(f'providers = [("{CUDA_PROVIDER}", {cuda_options}), "{CPU_PROVIDER}"]')
        return [*lines, 'session = onnxruntime.InferenceSession("model.onnx", options, providers=providers)']

    def fixed_while_proving(self, knob: str) -> dict[str, Value]:
        """Return the mode in which several operators may run at once: without it, that pool has no threads."""
        return {"execution_mode": PARALLEL} if knob in ("inter_op_num_threads", "inter_op_spinning") else {}


FRAMEWORK = OnnxRuntime()
