"""A simulated machine: no framework, no waiting.

It stands in for a real launcher where the logic around trials is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial.outcome import ExitStatus, ReadyReport, Slice, Status, TrialFailure


@dataclass(kw_only=True)
class ScriptedLauncher:
    """Processes whose rate is `rate(setting)` items/s, times lognormal noise of standard deviation `noise`.

    Besides the noise of slices, processes of one setting differ by `process_noise`, and the whole machine drifts by a
    sine of amplitude `drift` and period `drift_period_s`. `failures` says how a setting ends, `outputs` what it
    computes, `scatter` by how much more than others its processes differ.
    """

    rate: Callable[[Setting], float]
    noise: float = 0.0
    process_noise: float = 0.0
    drift: float = 0.0
    drift_period_s: float = 120.0
    start_s: float = 4.0
    seed: int = 0
    failures: Mapping[Setting, Status] = field(default_factory=dict)
    outputs: Callable[[Setting], float] = lambda _: 1.0
    scatter: Callable[[Setting], float] = lambda _: 1.0
    clock_s: float = 0.0
    launched: list[Setting] = field(default_factory=list)
    live: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def launch(self, setting: Setting, deployment: Deployment) -> ScriptedProcess:
        """Return a process; the `deployment` is not looked at."""
        del deployment
        self.launched.append(setting)
        self.live += 1
        return ScriptedProcess(self, setting)

    def now(self) -> float:
        """Return the scripted time."""
        return self.clock_s

    def drift_factor(self) -> float:
        """Return the factor on every rate at this moment."""
        return math.exp(self.drift * math.sin(2 * math.pi * self.clock_s / self.drift_period_s))


class ScriptedProcess:
    """One scripted process."""

    def __init__(self, host: ScriptedLauncher, setting: Setting) -> None:
        self._host = host
        self._setting = setting
        self._process_factor = math.exp(host.rng.normal(0.0, host.process_noise * host.scatter(setting)))
        self._closed = False
        self.peak_memory_bytes: int | None = None

    def set_batch_size(self, batch_size: int) -> ReadyReport:
        """Go on with another batch size, or fail as scripted."""
        self._setting = self._setting.with_values(batch_size=batch_size)
        return self._facts(context_s=0.0, load_s=0.0)

    @property
    def answers_on(self) -> Sequence[int]:
        """Return none: there is nothing to wait for."""
        return ()

    def ready(self) -> ReadyReport:
        """Take the start's time, or fail as scripted."""
        self._host.clock_s += self._host.start_s
        return self._facts(context_s=2.5, load_s=1.5)

    def _facts(self, *, context_s: float, load_s: float) -> ReadyReport:
        status = self._host.failures.get(self._setting)
        if status is not None:
            self.close()
            raise TrialFailure(status, f"scripted {status}", "scripted log")
        sample = {"inputs": "", "outputs": {"output_0": [self._host.outputs(self._setting)]}}
        return ReadyReport(
            import_s=0.0,
            context_s=context_s,
            load_s=load_s,
            first_step_s=0.5,
            warm_up=self.slice(0.5),
            effective={},
            sample=sample,
        )

    def slice(self, duration_s: float) -> Slice:
        """Take whole steps of scripted time."""
        host = self._host
        noise = math.exp(host.rng.normal(0.0, host.noise))
        step_s = self._setting.batch_size / (
            host.rate(self._setting) * self._process_factor * host.drift_factor() * noise
        )
        n_steps = max(1, math.ceil(duration_s / step_s))
        start_s, host.clock_s = host.clock_s, host.clock_s + n_steps * step_s
        # The steps of several processes overlap: that of each lasts as many times as long.
        own_s = step_s * int(self._setting.to_dict().get("instances", 1))
        return Slice(start_s=start_s, elapsed_s=n_steps * step_s, n_steps=n_steps, step_s=(own_s,) * min(n_steps, 400))

    def pause(self) -> None:
        """Nothing runs in between."""

    def resume(self) -> None:
        """Nothing was stopped."""

    def close(self) -> ExitStatus:
        """End the process."""
        if not self._closed:
            self._closed = True
            self._host.live -= 1
        return ExitStatus(returncode=0, peak_memory_bytes=None)
