"""How fast torch.compile is, made again and again: it draws its settings by timing them.

    python benchmarks/timing/compile_again.py FILE... [--makings 4] [--out FILE]

Each module is compiled in the default mode and with max-autotune, several times in one process,
kernels' settings chosen anew each time as a new process would, and timed by `triton`'s own
`do_bench` on an idle device; a line a making. Nothing of ours is timed or imported. It is why the
judge makes these baselines several times and holds candidates against the fastest.
"""

import argparse
import importlib.util
import json
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache
from triton.testing import do_bench

MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}


def loaded(path: Path) -> tuple[nn.Module, list[torch.Tensor]]:
    """The file's module and its inputs on the device."""
    spec = importlib.util.spec_from_file_location("task", path)
    assert spec is not None
    assert spec.loader is not None
    task = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(task)
    kinds = [
        value
        for value in vars(task).values()
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == "task"
    ]
    torch.manual_seed(0)
    return kinds[-1](*task.get_init_inputs()).cuda(), [x.cuda() for x in task.get_inputs()]


def main() -> None:
    """Compile, time, forget, and again."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--makings", type=int, default=4)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    config.autotune_local_cache = False
    rows = []
    for file in given.files:
        module, inputs = loaded(file)
        for name, mode in MODES.items():
            taken = []
            for _ in range(given.makings):
                compiled = torch.compile(module, mode=mode)
                with torch.no_grad():
                    call = partial(compiled, *inputs)
                    call()
                    taken.append(float(do_bench(call, 50, 100, return_mode="median")))
                torch._dynamo.reset()
                PyCodeCache.cache_clear()
            rows.append({"file": file.stem, "mode": name, "ms": [round(ms, 4) for ms in taken]})
            print(json.dumps(rows[-1]), flush=True)
    if given.out:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
