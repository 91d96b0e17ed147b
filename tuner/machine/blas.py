"""The threads of the library that multiplies matrices in this process: one, as our matrices have some dozen rows.

More of them only wait for each other, and take time from what else runs: in a container with a quota, or beside other
processes, a fit takes twice as long with them.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks at what is loaded, which takes some milliseconds


def one_blas_thread() -> AbstractContextManager[object]:
    """Return what keeps matrix products in this process to one thread, while it is entered."""
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited
