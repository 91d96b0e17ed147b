"""tftune finds, proves and explains the parallelism settings of a TensorFlow workload.

The functions and types of `tuner.api` can be used from here; they are loaded when they are first asked for, because the
processes that are measured import this package, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuner.errors import BadInputError, TunerError
from tuner.inherited import unchanged

if TYPE_CHECKING:
    from tuner.api.comparison import Check, Comparison, Frameworks, check, compare, compare_frameworks
    from tuner.api.load import LoadTest, Sizing, load_test, size, stored_load_test
    from tuner.api.model import OperatorProfile, Prediction, RuntimeOverhead, overhead, predict, profile
    from tuner.api.rules import Recommendation, Rules, learn_rules, load_rules, recommend
    from tuner.api.search import search
    from tuner.api.study import Study, list_studies, load_study

__version__ = "0.1.0"
__all__ = [
    "BadInputError",
    "Check",
    "Comparison",
    "Frameworks",
    "LoadTest",
    "OperatorProfile",
    "Prediction",
    "Recommendation",
    "Rules",
    "RuntimeOverhead",
    "Sizing",
    "Study",
    "TunerError",
    "check",
    "compare",
    "compare_frameworks",
    "learn_rules",
    "list_studies",
    "load_rules",
    "load_study",
    "load_test",
    "overhead",
    "predict",
    "profile",
    "recommend",
    "search",
    "size",
    "stored_load_test",
]


_MODULES = {
    "Check": "comparison",
    "Comparison": "comparison",
    "Frameworks": "comparison",
    "LoadTest": "load",
    "OperatorProfile": "model",
    "Prediction": "model",
    "Recommendation": "rules",
    "Rules": "rules",
    "RuntimeOverhead": "model",
    "Sizing": "load",
    "Study": "study",
    "check": "comparison",
    "compare": "comparison",
    "compare_frameworks": "comparison",
    "learn_rules": "rules",
    "list_studies": "study",
    "load_rules": "rules",
    "load_study": "study",
    "load_test": "load",
    "overhead": "model",
    "predict": "model",
    "profile": "model",
    "recommend": "rules",
    "search": "search",
    "size": "load",
    "stored_load_test": "load",
}
"""Where each name of the API is defined, below `tuner.api`."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tuner' has no attribute '{name}'")
    with unchanged():
        return getattr(import_module(f"tuner.api.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
