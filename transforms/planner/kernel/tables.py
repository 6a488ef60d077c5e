"""Records by address: `seat_at(s.seats, i)` is record i of a table, to read and to write.

Numba passes an array as seven values and counts its references at every call; an address is one number and free. That
is what makes small functions affordable here (with arrays the same kernel compiled 10 × longer and ran 20 × slower).
replay_memory.py's `Memory` keeps the arrays alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import from_dtype
from numba.core import types
from numba.extending import intrinsic

from transforms.planner.kernel import layout

if TYPE_CHECKING:
    import numpy as np


def _table(dtype: np.dtype[np.void]) -> Any:
    """Function (address, index) → record."""
    record = from_dtype(dtype)

    @intrinsic
    def record_at(_context, address, index):  # noqa: ARG001
        def code(context, builder, _signature, arguments):
            start, place = arguments
            offset = builder.mul(place, ir.Constant(place.type, record.size))
            return builder.inttoptr(builder.add(start, offset), context.get_value_type(record))

        return record(types.int64, types.int64), code

    return record_at


kind_at = _table(layout.KIND)
replica_at = _table(layout.REPLICA)
seat_at = _table(layout.SEAT)
seat_kind_at = _table(layout.SEAT_KIND)
request_at = _table(layout.REQUEST)
lists_at = _table(layout.LISTS)
heap_at = _table(layout.HEAP)
class_at = _table(layout.CLASS)
event_at = _table(layout.EVENT)
sample_at = _table(layout.SAMPLE)
cache_at = _table(layout.CACHE)
share_at = _table(layout.SHARE)
cause_at = _table(layout.CAUSE)
pin_at = _table(layout.PIN)
real_at = _table(layout.REAL)
whole_at = _table(layout.WHOLE)
count_at = _table(layout.COUNT)
flag_at = _table(layout.FLAG)
