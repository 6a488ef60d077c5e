"""How functions of this package are compiled: only the entry is called from Python and kept in numba's cache."""

from __future__ import annotations

from numba import njit

inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")  # type: ignore[call-overload]
"""A function of its own; LLVM may inline it."""

once = njit(inline="always", error_model="numpy")
"""A function with one or two callers, put into them before types are found: a third less time to compile."""

entry = njit(cache=True, nogil=True, error_model="numpy")
"""Called from Python."""
