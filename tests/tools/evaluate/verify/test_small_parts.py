"""The parts of the judge that need no worker: ties, memory foreseen, floors, labels, frames."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.finalists import cautious, suspicious
from kernelwright.tools.evaluate.messages import JudgeRequest, Stage
from kernelwright.tools.evaluate.messages.wire import (
    TOKEN_BYTES,
    ForgedError,
    frame,
    opened,
    receive,
    receive_blocking,
)
from kernelwright.tools.evaluate.profiling.coverage import coverage
from kernelwright.tools.evaluate.rules import Rules, fresh_seed
from kernelwright.tools.evaluate.sandbox.walled import Ended
from kernelwright.tools.evaluate.sandbox.worker import evaluation_of, verdict_of
from kernelwright.tools.evaluate.timing.conditions import conditions, reasons
from kernelwright.tools.evaluate.timing.speed_of_light import reads_partly
from kernelwright.tools.evaluate.timing.stopwatch import input_sets
from kernelwright.tools.evaluate.verify.indices import evaluate, tied
from kernelwright.tools.evaluate.verify.memory import peak_double_bytes
from kernelwright.tools.evaluate.verify.nulls import passing_nulls
from kernelwright.tools.evaluate.verify.precision import candidate_precision
from kernelwright.tools.languages import Built, new_candidate
from kernelwright.tools.types import (
    Comparison,
    Conditions,
    DType,
    Evaluation,
    Graph,
    InputSpec,
    Node,
    Ref,
    Scalar,
    Task,
    TensorSpec,
    Verdict,
    Verification,
)

MATRIX = TensorSpec(shape=(4, 6), dtype=DType.FLOAT32)
POSITIONS = TensorSpec(shape=(4,), dtype=DType.INT64)
HERE = Conditions(device="cpu", l2_flushed=False, input_sets=1)


def graph(*nodes: Node, output: str, inputs: tuple[str, ...] = ("x",)) -> Graph:
    start = tuple(Node(name=name, op="input", out=(MATRIX,)) for name in inputs)
    return Graph(nodes=(*start, *nodes), inputs=inputs, outputs=(output,))


def node(name: str, op: str, *args: object, out: TensorSpec = MATRIX) -> Node:
    listed = tuple(Ref(node=a) if isinstance(a, str) else Scalar(value=a) for a in args)  # type: ignore[arg-type]
    return Node(name=name, op=op, args=listed, out=(out,))


def task(of: Graph) -> Task:
    return Task(
        name="t", path="t.py", source="", source_sha256="0", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=MATRIX),),
        outputs=of.node(of.outputs[0]).out, graph=of, bytes_moved=192, flops=24,
    )  # fmt: skip


ARGMAX = graph(node("i", "aten.argmax.default", "x", 1, out=POSITIONS), output="i")
COMPUTED = graph(
    node("y", "aten.mul.Tensor", "x", 0.1),
    node("i", "aten.argmax.default", "y", 1, out=POSITIONS),
    output="i",
)


@pytest.mark.parametrize("of", [ARGMAX, COMPUTED], ids=["of-an-input", "of-a-computation"])
def test_another_position_is_right_only_where_the_values_tie(of: Graph) -> None:
    x = torch.zeros(4, 6)
    x[:, 2] = x[:, 5] = 3.0
    first, last = torch.full((4,), 2), torch.full((4,), 5)
    assert tied(of, 0, last, first, [x], {})
    assert not tied(of, 0, torch.full((4,), 1), first, [x], {})
    assert not tied(of, 0, torch.full((4,), 99), first, [x], {})


def test_integers_that_are_no_positions_have_no_ties() -> None:
    plain = graph(node("i", "aten.sum.default", "x", out=POSITIONS), output="i")
    assert not tied(plain, 0, torch.ones(4), torch.zeros(4), [torch.ones(4, 6)], {})


def test_a_graph_without_its_constants_is_not_worked_out() -> None:
    unknown = graph(node("y", "aten.add.Tensor", "x", "c"), output="y")
    assert evaluate(unknown, "y", [torch.ones(4, 6)], {}) is None


def test_memory_is_foreseen_from_what_is_alive_at_once() -> None:
    chain = graph(
        node("a", "aten.exp.default", "x"),
        node("b", "aten.exp.default", "a"),
        node("c", "aten.exp.default", "b"),
        output="c",
    )
    assert peak_double_bytes(chain) == 3 * MATRIX.numel * 8


def test_a_floor_is_no_bound_where_inputs_are_read_in_part() -> None:
    assert reads_partly(graph(node("y", "aten.gather.default", "x"), output="y"))
    assert not reads_partly(graph(node("y", "aten.exp.default", "x"), output="y"))


@pytest.mark.parametrize(
    ("call", "cache", "most", "sets"),
    [(10, 100, 8, 7), (100, 100, 8, 3), (10**4, 100, 8, 2), (100, 100, 1, 1), (100, 100, 0, 1)],
)
def test_input_sets_pass_through_the_cache_if_they_fit(
    call: int, cache: int, most: int, sets: int
) -> None:
    assert input_sets(call, cache, most) == sets


def test_null_answers_that_pass_are_named() -> None:
    zeros, ramp = torch.zeros(9), torch.arange(9.0)
    assert not passing_nulls([ramp], [ramp.double()], [torch.randn(9)], 4)
    (zero, mean) = passing_nulls([zeros], [zeros.double()], [torch.randn(9)], 4)
    assert "zeros" in zero
    assert "mean" in mean
    (same,) = passing_nulls([ramp], [ramp.double()], [ramp.clone()], 4)
    assert "input 0" in same


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("float half_of = x[0] * 0.5f; // half precision? no", "fp32"),
        ("_Float16 h = x[0]; y[0] = h;", "fp16"),
        ("__nv_bfloat16 h = x[0]; y[0] = h;", "bf16"),
        ('asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32");', "tf32"),
    ],
)
def test_a_lower_precision_in_the_source_is_labelled(text: str, precision: str) -> None:
    kernel = f'extern "C" void f(const float* x) {{ {text} }}'
    candidate = new_candidate("cpp", kernel, "def forward(x):\n    return x\n")
    assert candidate_precision(task(ARGMAX), candidate) == precision


class Plan:
    """What a runner is to coverage: something whose launches can be watched."""

    def watch(self, around: Callable[[Callable[[], None]], None]) -> None:
        self.around = around

    def launch(self, seconds: float) -> None:
        self.around(lambda: time.sleep(seconds))


def test_coverage_sees_library_operators_and_ignores_views() -> None:
    x, plan = torch.randn(512, 512), Plan()
    assert coverage(lambda: x.view(-1)[3:].unsqueeze(0), plan, "cpu") == (0.0, "no work at all")
    share, method = coverage(lambda: torch.mm(x, x), plan, "cpu")
    assert share < 0.05
    assert method == "library rearrangement (mm)"
    share, method = coverage(lambda: plan.launch(0.002), plan, "cpu")
    assert (share, method) == (1.0, "own kernels")


def test_coverage_counts_work_and_not_the_time_between() -> None:
    x, plan = torch.randn(64, 64), Plan()

    def mostly_waiting() -> None:
        plan.launch(1e-5)
        time.sleep(0.01)
        torch.linalg.matrix_power(x, 64)

    share, method = coverage(mostly_waiting, plan, "cpu")
    assert share < 0.95
    assert "mm" in method


def comparison(ratio: float) -> Comparison:
    return Comparison(
        baseline="eager", candidate_ms=1.0, baseline_ms=ratio, ratio=ratio, ci95_low=ratio,
        ci95_high=ratio, pairs=3, candidate_samples_ms=(1.0,), baseline_samples_ms=(ratio,),
        conditions=HERE,
    )  # fmt: skip


def evaluation(ratio: float, verdict: Verdict = Verdict.CORRECT) -> Evaluation:
    checked = Verification(verdict=verdict, reason="")
    return Evaluation(candidate="c", verification=checked, comparisons=(comparison(ratio),))


def test_too_good_is_measured_twice_and_the_worse_counts() -> None:
    assert suspicious(evaluation(12.0), Rules())
    assert not suspicious(evaluation(9.0), Rules())
    kept = cautious(evaluation(30.0), evaluation(3.0)).comparisons[0]
    assert kept.ratio == 3.0
    assert "30" in kept.conditions.notes[-1]
    wrong = cautious(evaluation(30.0), evaluation(3.0, Verdict.STALE_RESULT))
    assert wrong.verdict is Verdict.STALE_RESULT


@pytest.mark.parametrize(
    ("how", "status", "verdict"),
    [
        ("timed_out", None, Verdict.TIMED_OUT),
        ("out_of_memory", -9, Verdict.OUT_OF_MEMORY),
        ("exited", -signal.SIGSEGV, Verdict.ILLEGAL_ACCESS),
        ("exited", -signal.SIGABRT, Verdict.CRASHED),
        ("exited", 1, Verdict.CRASHED),
    ],
)
def test_the_end_of_a_worker_has_a_verdict(how: str, status: int | None, verdict: Verdict) -> None:
    ended = Ended.model_validate({"how": how, "status": status, "stage": None})
    assert verdict_of(ended) is verdict
    assert ended.words


def test_what_the_reference_did_is_not_blamed_on_a_candidate(cpu: Hardware, tmp_path) -> None:
    kernel = 'extern "C" void f(const float* x) {}'
    candidate = new_candidate("cpp", kernel, "def forward(x):\n    return x\n")
    built = Built(language="cpp", artifact=tmp_path, functions=("f",))
    request = JudgeRequest(
        task=task(ARGMAX), hardware=cpu, rules=Rules(), candidate=candidate, built=built,
        effort="screen", seed=0,
    )  # fmt: skip
    stage = Stage(words="the reference runs", limit_s=1, blame="reference")
    ended = Ended(how="exited", status=-signal.SIGSEGV, stage=stage)
    found = evaluation_of(request, ended, "here")
    assert found.verdict is Verdict.CRASHED
    assert "damaged memory" in found.verification.reason


async def test_frames_arrive_whole_on_both_sides() -> None:
    left, right = socket.socketpair()
    with right:
        reader, writer = await asyncio.open_connection(sock=left)
        payload, token = b"x" * 300_000, b"t" * TOKEN_BYTES
        sending = asyncio.create_task(asyncio.to_thread(right.sendall, frame(token + payload)))
        assert opened(await receive(reader)) == (token, payload)
        await sending
        writer.write(frame(token + b"answer"))
        await writer.drain()
        assert await asyncio.to_thread(receive_blocking, right) == token + b"answer"
        writer.close()
        with pytest.raises(EOFError):
            await asyncio.to_thread(receive_blocking, right)


async def test_a_frame_longer_than_any_honest_one_is_refused() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"\xff" * 8)
    with pytest.raises(ForgedError, match="announced"):
        await receive(reader)


def test_seeds_follow_from_what_they_are_for() -> None:
    assert fresh_seed(1, "a") == fresh_seed(1, "a")
    assert len({fresh_seed(1, i) for i in range(100)}) == 100
    assert 0 <= fresh_seed("x") < 2**31


def test_throttling_is_told_in_words_and_idling_is_not_throttling() -> None:
    pynvml = pytest.importorskip("pynvml")
    mask = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle
    assert reasons(pynvml, mask) == ("sw_power_cap",)
    assert reasons(pynvml, 0) == ()


def test_conditions_of_a_cpu_name_threads_and_load() -> None:
    found = conditions("cpu", flushed=True, sets=3)
    assert found.threads == torch.get_num_threads()
    assert found.load_average is not None
    assert found.sm_clock_mhz is None
