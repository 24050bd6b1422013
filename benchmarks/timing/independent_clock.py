"""Times an exported module beside PyTorch, by the field's own clock; nothing of ours is imported.

    python benchmarks/timing/independent_clock.py EXPORT [--rounds 5] [--out FILE]

EXPORT is a folder that `kernelwright export` wrote: its `module.py` is what is timed, beside its
`reference.py` eager and compiled. Two figures for each, in turns, medians over the rounds:

  queued     `triton.testing.do_bench`: calls in a queue, each behind a cache that was overwritten
  single     the device drained before the call, two events around it, the cache overwritten before

Inputs are the reference's own, the same for all. It is what `two_clocks.py` holds the judge's
figures against, and is started by it without this repository on Python's path.
"""

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch


def loaded(path: Path, name: str) -> ModuleType:
    """A file as a module of that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def ways(folder: Path) -> dict[str, Callable[[], object]]:
    """The export, eager and torch.compile as calls on the same inputs."""
    evidence = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    entry = evidence["task"]["entry"]
    reference, exported = loaded(folder / "reference.py", "reference"), None
    sys.path.insert(0, str(folder))
    exported = loaded(folder / "module.py", "exported")
    torch.manual_seed(0)
    arguments = getattr(reference, "get_init_inputs", list)()
    plain = getattr(reference, entry)(*arguments).cuda().eval()
    ours = getattr(exported, entry)(*arguments).cuda().eval()
    ours.load_state_dict(plain.state_dict())
    inputs = [x.cuda() for x in reference.get_inputs()]
    compiled = torch.compile(plain)
    with torch.no_grad():
        close = torch.allclose(ours(*inputs).float(), plain(*inputs).float(), rtol=2e-2, atol=2e-2)
    assert close, "the export and its reference differ"
    return {
        "export": lambda: ours(*inputs),
        "eager": lambda: plain(*inputs),
        "compile": lambda: compiled(*inputs),
    }


def queued_ms(call: Callable[[], object]) -> float:
    """The field's convention, by the field's own function."""
    from triton.testing import do_bench

    return float(do_bench(call, warmup=50, rep=150, return_mode="median"))


def single_ms(call: Callable[[], object], samples: int = 60) -> float:
    """A single call on an idle device, its launches included."""
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    taken = []
    for _ in range(samples):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda.synchronize()
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken)


def main() -> None:
    """Time in turns, print the medians and the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("export", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    with torch.no_grad():
        calls = ways(given.export)
        for call in calls.values():
            for _ in range(5):
                call()
        for number in range(given.rounds):
            order = list(calls) if number % 2 == 0 else list(reversed(calls))
            for name in order:
                each = found.setdefault(name, {"queued": [], "single": []})
                each["queued"].append(queued_ms(calls[name]))
                each["single"].append(single_ms(calls[name]))
    ms = {n: {c: statistics.median(v) for c, v in each.items()} for n, each in found.items()}
    ratios = {
        name: {
            clock: statistics.median(
                a / b for a, b in zip(found[name][clock], found["export"][clock], strict=True)
            )
            for clock in ("queued", "single")
        }
        for name in ("eager", "compile")
    }
    told = {"ms": ms, "ratios": ratios, "torch": torch.__version__}
    text = json.dumps(told, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
