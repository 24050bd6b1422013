"""`learn unpack`, `serve` and `answer`: a model made ready, handed on, and asked about a file."""

from pathlib import Path

from kernelwright.graphs.run_view.events import ratio
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.languages import language_named
from kernelwright.tools.learning.contract.launches import candidate_of, interface
from kernelwright.tools.learning.contract.prompts import question
from kernelwright.tools.learning.judging import Worth
from kernelwright.tools.learning.training.adapter import save_adapter, save_merged
from kernelwright.tools.learning.training.policy import Policy, Sampling
from kernelwright.tools.learning.training.serving import ways_to_serve
from kernelwright.tools.types import Refusal, Task, TracePolicy
from kernelwright.ui.cli.learn.judges import Seat, done, judging
from kernelwright.ui.cli.learn.models import model_of, unpacked
from kernelwright.ui.complaints import Complaint, existing_target, refused
from kernelwright.ui.terminal.output import console, remarks


def unpack(file: Path, out: Path) -> None:
    """Turn a GGUF file into a model's folder."""
    policy = unpacked(file, out)
    token = policy.tokenizer.convert_ids_to_tokens(policy.end)
    console().print(f"{out}, a turn ends with {token}", markup=False, soft_wrap=True)


def serve(model: Path, adapter: Path | None, out: Path, *, adapter_only: bool) -> None:
    """Merge an adapter into its model and say who serves it."""
    if adapter is None:
        raise Complaint("give --adapter; a model without one is served as it is")
    policy = model_of(model, adapter)
    if adapter_only:
        save_adapter(policy, out, halved=True)
        console().print(f"{out}: the adapter in bfloat16", markup=False, soft_wrap=True)
        return
    save_merged(policy, out)
    for name, command in ways_to_serve(out):
        console().print(f"{name}: {command}", markup=False, soft_wrap=True)


def answer(
    file: Path,
    model: Path,
    adapter: Path | None,
    out: Path,
    *,
    samples: int,
    sampling: Sampling,
    seed: int,
    target: str,
    executor: str,
) -> None:
    """Ask a model for a file's kernel, judge what it says, and keep the fastest right answer."""
    path = existing_target(file)
    policy = model_of(model, adapter)
    worth, kept = done(_answered(path, policy, out, samples, sampling, seed, target, executor))
    right = sum(one.is_correct for one in worth)
    console().print(f"{right} of {samples} answers are right", markup=False)
    if kept is not None:
        speed = f", {ratio(kept.speedup)} beside PyTorch" if kept.speedup else ""
        console().print(f"the fastest: {out}{speed}", markup=False, soft_wrap=True)
        hint = f"kernelwright optimize {file} --start-from {out}"
        console().print(f"search on from it: {hint}", markup=False, soft_wrap=True)


async def _answered(
    path: Path,
    policy: Policy,
    out: Path,
    samples: int,
    sampling: Sampling,
    seed: int,
    target: str,
    executor: str,
) -> tuple[list[Worth], Worth | None]:
    async with judging(executor, target, None, seed=seed) as seat:
        task = await seat.executor.trace(path, TracePolicy())
        if isinstance(task, Refusal):
            raise refused(task)
        texts = _texts(task, policy, seat, samples, sampling, seed)
        worth = await seat.judge.judged(task, texts)
        good = [(one.speedup, at) for at, one in enumerate(worth) if one.speedup is not None]
        if not good:
            return worth, None
        _, at = max(good)
        _keep(task, texts[at], seat, out)
        return worth, worth[at]


def _texts(
    task: Task, policy: Policy, seat: Seat, samples: int, sampling: Sampling, seed: int
) -> list[str]:
    names = interface(task)
    if names is None:
        raise Complaint(
            f"{task.name} takes or returns what the short contract does not cover; "
            "search it instead: kernelwright optimize"
        )
    remarks().print(f"asking {policy.name}", style="dim", markup=False)
    asked = question(task, names, seat.judge.language)
    (drawn,) = policy.sampled([asked], samples, sampling, seed)
    return [one.text for one in drawn]


def _keep(task: Task, text: str, seat: Seat, out: Path) -> None:
    """Write a candidate as `check` and `optimize --start-from` read it."""
    names = interface(task)
    assert names is not None
    try:
        candidate = candidate_of(text, names, seat.judge.language)
    except ContractError as error:
        raise AssertionError("it was judged right") from error
    suffix = language_named(candidate.language).spec.suffixes[0]
    out.mkdir(parents=True, exist_ok=True)
    (out / f"kernel{suffix}").write_text(candidate.kernel, encoding="utf-8")
    (out / "plan.py").write_text(candidate.plan, encoding="utf-8")
