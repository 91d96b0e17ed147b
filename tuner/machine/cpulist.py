"""The kernel's two spellings of a set of CPUs: lists (`0-3,8`) and hexadecimal masks (`ff,00000000`)."""

from __future__ import annotations

import functools

from tuner.child import effective

_MOST = 2**20  # CPUs: a text that names more is damaged, and would fill the memory

format_list = effective.spans
"""Return the shortest list without strides: `{0, 1, 2, 5}` gives `0-2,5`."""


@functools.lru_cache(maxsize=4096)
def parse_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list such as `0-3,8` or, with a stride, `0-62:2`; an empty text is the empty set.

    Raises ValueError for what is none.
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        span, _, stride = part.partition(":")
        first, _, last = span.partition("-")
        end = int(last or first) + 1
        if end > _MOST:
            raise ValueError(f"no machine has a CPU {end - 1}")
        cpus.update(range(int(first), end, int(stride or 1)))
    return frozenset(cpus)


def parse_mask(text: str) -> frozenset[int]:
    """Return the CPUs of a mask: groups of 32 bits in hexadecimal, the highest first."""
    bits = int(text.strip().replace(",", "") or "0", 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)
