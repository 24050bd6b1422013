"""What a loop must compute in float64, and how far from that its kernels may be.

A sum of products is off by a multiple of float32's rounding of its magnitudes, summed, however
small the sum itself is where they cancel: no bound that knows the result alone fits both a sum
that cancels and a kernel that forgets a summand. So the truth of a product comes with what its
stores would be if every sum were that far off, epilogue and all, and a kernel may be as far away.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernelwright.tools.codegen.ir import Access, Loop, ReduceKind, Stmt, results
from kernelwright.tools.codegen.ir.contraction import contraction_of
from kernelwright.tools.types import DType

Buffers = Mapping[str, torch.Tensor]
# Roundings, of the summed magnitudes, that a right sum of products may be off by: sums one after
# the other of normal products are off by up to 1.8 among two thousand, of 500 as of 8000 products.
ROUNDINGS = 4.0


class Truth(dict[str, torch.Tensor]):
    """What every buffer should hold, by name; `slack` is how far right sums may move that."""

    def __init__(self, written: Buffers, slack: Buffers) -> None:
        super().__init__(written)
        self.slack = slack


def truth(loop: Loop, buffers: Buffers) -> Truth:
    """What the loop's stores write, in float64, over the whole grid."""
    run = _Run(loop, buffers)
    written = run.written(0.0)
    product = contraction_of(loop)
    if product is None:
        return Truth(written, {})
    eps = torch.finfo(torch.float64 if product.dtype is DType.FLOAT64 else torch.float32).eps
    # Factors of eleven significant bits are off by so much each.
    eps = 2.0**-12 if product.is_tf32 else eps
    # Sums that may be kept in fp16 are off by that type's rounding.
    eps = torch.finfo(torch.float16).eps / 2 if product.sums is DType.FLOAT16 else eps
    # Of products of eight bits a tensor core keeps about fourteen bits until they are promoted.
    eps = 2.0**-13 if product.precision is DType.FLOAT8_E4M3FN else eps
    moved = [run.written(sign * ROUNDINGS * eps) for sign in (1.0, -1.0)]
    slack = {
        name: torch.stack([(one[name] - true).abs() for one in moved]).amax(0).nan_to_num(0.0)
        for name, true in written.items()
    }
    return Truth(written, slack)


class _Run:
    """A loop over the whole grid; what comes before its first sum is computed once."""

    def __init__(self, loop: Loop, buffers: Buffers) -> None:
        self.loop, self.buffers = loop, buffers
        axes = (*loop.outer, *loop.inner)
        self.device = next(iter(buffers.values())).device
        self.shape, self.kept = tuple(a.size for a in axes), len(loop.outer)
        self.at = {
            axis.name: torch.arange(axis.size, device=self.device).reshape(
                [-1 if k == i else 1 for k in range(len(axes))]
            )
            for i, axis in enumerate(axes)
        }
        folds = (i for i, stmt in enumerate(loop.body) if stmt.op in ("reduce", "scan"))
        first = next(folds, len(loop.body))
        self.before: dict[str, torch.Tensor] = {}
        for stmt in loop.body[:first]:
            self._compute(stmt, self.before)
        self.rest = loop.body[first:]
        # The first sum and the sum of its magnitudes: of a product, nearly all there is to compute.
        self.first: tuple[torch.Tensor, ...] = ()

    def written(self, off: float) -> dict[str, torch.Tensor]:
        """What the stores write where sums are moved by `off` times their summands' magnitudes."""
        values = dict(self.before)
        for stmt in self.rest:
            if stmt.op in ("reduce", "scan"):
                self._fold(stmt, values, off)
            else:
                self._compute(stmt, values)
        written: dict[str, torch.Tensor] = {}
        for store in self.loop.stores:
            target = written.setdefault(
                store.access.buffer, self.buffers[store.access.buffer].double().clone()
            )
            place, value = self._place(store.access, values), values[store.value].double()
            where, value = torch.broadcast_tensors(place, value)
            target[where.reshape(-1)] = value.reshape(-1)
        return written

    def _place(self, access: Access, values: Buffers) -> torch.Tensor:
        total = torch.full([1] * len(self.shape), access.offset, device=self.device)
        for stride in access.strides:
            by = self.at[stride.by] if stride.by in self.at else values[stride.by].long()
            total = total + stride.step * by
        return total

    def _compute(self, stmt: Stmt, values: dict[str, torch.Tensor]) -> None:
        if stmt.access is not None:
            true = torch.tensor(True, device=self.device)
            inside = values[stmt.args[0]].bool() if stmt.args else true
            place = torch.where(inside, self._place(stmt.access, values), 0)
            flat = self.buffers[stmt.access.buffer][place]
            values[stmt.name] = torch.where(inside, _wide(flat), 0)
        elif stmt.op == "const":
            values[stmt.name] = _wide(torch.tensor(stmt.value, device=self.device))
        elif stmt.op == "index":
            values[stmt.name] = self.at[stmt.args[0]]
        else:
            values[stmt.name] = _pointwise(stmt, [values[name] for name in stmt.args])

    def _fold(self, stmt: Stmt, values: dict[str, torch.Tensor], off: float) -> None:
        if stmt is self.rest[0] and stmt.reduce is ReduceKind.SUM:
            found: tuple[torch.Tensor, ...] = (self._moved(stmt, off),)
        else:
            full = values[stmt.args[0]].expand(self.shape).reshape(*self.shape[: self.kept], -1)
            if stmt.op == "scan":
                values[stmt.name] = _scanned(stmt, full).reshape(self.shape)
                return
            found = _reduced(stmt, full, off)
        ones = [1] * (len(self.shape) - self.kept)
        for name, value in zip(results(stmt), found, strict=True):
            values[name] = value.reshape(*self.shape[: self.kept], *ones)

    def _moved(self, stmt: Stmt, off: float) -> torch.Tensor:
        """The first sum; what it is moved by is computed when it is asked for, and once."""
        wanted = 2 if off else 1
        if len(self.first) < wanted:
            full = self.before[stmt.args[0]].expand(self.shape)
            full = full.reshape(*self.shape[: self.kept], -1)
            self.first = (full.sum(-1), full.abs().sum(-1)) if off else (full.sum(-1),)
        return self.first[0] + off * self.first[1] if off else self.first[0]


def _wide(flat: torch.Tensor) -> torch.Tensor:
    if flat.is_floating_point():
        return flat.double()  # of eight bits as well, exactly
    return flat if flat.dtype is torch.bool else flat.long()


def _scanned(stmt: Stmt, full: torch.Tensor) -> torch.Tensor:
    found = getattr(torch, f"cum{stmt.scan}")(full, -1)
    return found if stmt.scan in ("sum", "prod") else found.values


def _reduced(stmt: Stmt, full: torch.Tensor, off: float) -> tuple[torch.Tensor, ...]:
    kind = stmt.reduce
    if kind is ReduceKind.MOMENTS:
        mean = full.mean(-1, keepdim=True)
        return mean, (full - mean).square().sum(-1)
    if kind is ReduceKind.SOFTMAX:
        top = full.amax(-1, keepdim=True)
        return top, (full - top).exp().sum(-1)
    if kind in (ReduceKind.MAX, ReduceKind.MIN):
        return (getattr(torch, f"a{kind}")(full, -1),)
    if kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN):
        # The first of equals, which torch does not promise.
        best = full.amax(-1, True) if kind is ReduceKind.ARGMAX else full.amin(-1, True)
        return (((full == best) | full.isnan()).long().argmax(-1),)
    found = getattr(torch, str(kind))(full, -1)
    return (found + off * full.abs().sum(-1) if off else found,)


_SPELLED = {
    "where": lambda a, b, c: torch.where(a.bool(), b, c),
    "fma": lambda a, b, c: a * b + c,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
}


def _pointwise(stmt: Stmt, args: list[torch.Tensor]) -> torch.Tensor:
    kind = {"bool": torch.bool, "int64": torch.int64}.get(stmt.dtype.value, torch.float64)
    if stmt.op in ("cast", "tf32"):
        return args[0].to(kind)
    if stmt.op in _SPELLED:
        return _SPELLED[stmt.op](*args)
    return getattr(torch, stmt.op)(*args).to(kind)


def check(got: Buffers, wanted: Truth, loop: Loop) -> None:
    """Compare with the truth within a few roundings of what is stored, and of sums of products.

    Raises:
        AssertionError: Where anything is further away.
    """
    for store in loop.stores:
        name, dtype = store.access.buffer, store.access.dtype
        found, true = got[name].double(), wanted[name]
        if not dtype.is_floating:
            torch.testing.assert_close(found, true, rtol=0, atol=0, msg=f"{loop.name}.{name}")
            continue
        eps = torch.finfo(getattr(torch, dtype.value)).eps
        scale = true[true.isfinite()].abs().max().item() if true.isfinite().any() else 1.0
        # Errors are of the float32 (or float64) arithmetic, then of the rounding to the output.
        arithmetic = 1e-13 if dtype is DType.FLOAT64 else 4e-6
        if name in wanted.slack:
            _check_sums(found, true, (eps + arithmetic) * true.abs() + wanted.slack[name], name)
            continue
        torch.testing.assert_close(
            found, true, rtol=eps + arithmetic, atol=arithmetic * scale + 1e-300, equal_nan=True
        )


def _check_sums(found: torch.Tensor, true: torch.Tensor, most: torch.Tensor, name: str) -> None:
    """Element by element, as every sum has a bound of its own."""
    same = (found == true) | (found.isnan() & true.isnan())
    wrong = ~(same | ((found - true).abs() <= most + 1e-300))
    if wrong.any():
        off = ((found - true).abs() / most.clamp_min(1e-300))[wrong].nan_to_num(float("inf"))
        raise AssertionError(
            f"{name}: {int(wrong.sum())} of {wrong.numel()} elements are further off than sums "
            f"of products may be, the worst by {off.max().item():.3g} times as much"
        )
