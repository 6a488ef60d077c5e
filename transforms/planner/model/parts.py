"""A part of a model: so many parameters, split over so many ranks, of which a token passes through so many."""

from __future__ import annotations

from dataclasses import dataclass

EVERY_RANK = 1 << 30
"""`split` of a part that tensor parallelism divides whatever its size."""


@dataclass(frozen=True)
class ExpertMatrices:
    """`count` experts of `matrices` matrices each, hidden × inner size, which engines lay out in their own way."""

    count: int
    matrices: int
    hidden: int
    inner: int


@dataclass(frozen=True)
class Part:
    """`parameters` of one kind. `modules` are the checkpoint's own names for it, which quantisation configs list."""

    name: str
    parameters: int
    split: int = EVERY_RANK
    """Ranks it is divided over at most: 1 is held whole by every rank, KV heads are repeated beyond their number."""
    is_linear: bool = True
    """Whether it is a matrix that quantisation may shrink."""
    modules: tuple[str, ...] = ()
    active_share: float = 1.0
    experts: ExpertMatrices | None = None
    """Shape of routed experts, whose layout depends on the engine and the GPU."""

    @property
    def active(self) -> int:
        """Parameters that one token passes through."""
        return round(self.parameters * self.active_share)


def norm(size: int) -> Part:
    """A normalisation of `size` parameters, on every rank, never quantised."""
    return Part("norm", size, split=1, is_linear=False)
