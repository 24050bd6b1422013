"""A worker's main loop: a request in, stages on the way, one reply out.

`RequestHandler` answers each kind of request with the module that does it. An unexpected exception
is answered too, as `Broken`: the parent raises it where a person of ours can see it.

`needs_of` says what judging a task takes in memory, known from its sizes before anything is
allocated. `least_bytes` is certain; the others are estimates of worst moments, after which the
judge chunks, shelves on the host or times with fewer sets of inputs. Only what cannot fit in any
way is refused.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, assert_never

import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.foreign.guest_link import ForeignSession
from kernelwright.tools.evaluate.foreign.guest_runner import LackingError
from kernelwright.tools.evaluate.foreign.ladder import ForeignLadder
from kernelwright.tools.evaluate.messages import (
    REQUEST,
    Answer,
    Audited,
    AuditRequest,
    BackwardRequest,
    BackwardSeen,
    BaselineMeasured,
    BaselineRequest,
    Broken,
    BuildRequest,
    BuiltElsewhere,
    CeilingsMeasured,
    CeilingsRequest,
    DispatchRequest,
    DispatchSeen,
    ForeignRequest,
    HoldoutRequest,
    Judged,
    JudgeRequest,
    Lacking,
    LaunchesRecorded,
    Message,
    OpenProfilerRequest,
    OutlineRequest,
    OutlineSeen,
    Profiled,
    ProfileRequest,
    Ready,
    RecordRequest,
    Rehearsed,
    RehearseRequest,
    Reply,
    Request,
    ShapesTried,
    Stage,
    Traced,
    TraceRequest,
)
from kernelwright.tools.evaluate.process_setup import Meter, no_new_processes, resolve_vector_math
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.baselines import BaselineFailedError, compiled
from kernelwright.tools.evaluate.timing.conditions import Company
from kernelwright.tools.evaluate.timing.stopwatch import input_sets
from kernelwright.tools.evaluate.verify.holdout import held_out
from kernelwright.tools.evaluate.verify.memory import (
    available_bytes,
    candidate_bytes,
    io_bytes,
    peak_bytes,
    truth_bytes,
)
from kernelwright.tools.evaluate.verify.reasons import poisoned
from kernelwright.tools.evaluate.verify.reference_runtime import Draw
from kernelwright.tools.evaluate.wire import UNASKED, frame, opened, receive_blocking
from kernelwright.tools.evaluate.worker.comparing import timed_baseline
from kernelwright.tools.evaluate.worker.compiled import (
    Placed,
    compile_only,
    import_compiler,
    place,
    take_over,
)
from kernelwright.tools.evaluate.worker.ladder import Ladder
from kernelwright.tools.evaluate.worker.profiling import (
    not_timed,
    open_profiler,
    profiled,
    recorded,
)
from kernelwright.tools.evaluate.worker.task_runtime import TaskRuntime
from kernelwright.tools.hardware import peaks
from kernelwright.tools.tasks import import_exporter, rehearse, trace
from kernelwright.tools.types import Baseline, MemoryNeeds, Refusal, RefusedError, Task

_GB = 1e9
_FLUSH_CACHES = 2


def needs_of(task: Task, hardware: Hardware, rules: Rules) -> MemoryNeeds:
    """The needs of a task on the device of this process."""
    inputs, outputs = io_bytes(task)
    weights = sum(weight.tensor.size_bytes for weight in task.weights)
    cache = int(hardware.cache_mib * 2**20)
    sets = input_sets(max(task.bytes_moved, 1), cache, rules.input_sets_max)
    # The candidate has weights and outputs of its own; the inputs can wait on the host.
    least = inputs + 2 * weights + 2 * outputs
    return MemoryNeeds(
        least_bytes=least,
        eager_bytes=max(peak_bytes(task.graph), inputs + weights + outputs),
        candidate_bytes=2 * weights + candidate_bytes(task),
        truth_bytes=truth_bytes(task),
        timing_bytes=2 * weights + sets * inputs + 2 * outputs,
        flush_bytes=_FLUSH_CACHES * cache,
        available_bytes=available_bytes(hardware.kind, rules.memory_fraction),
    )


def refusal_for(task: Task, needs: MemoryNeeds, device: str) -> Refusal | None:
    """Why the task cannot be judged on the device; None where it can, at once or in parts."""
    if needs.least_bytes <= needs.available_bytes:
        return None
    return Refusal(
        sentence=(
            f"{task.name} needs {needs.least_bytes / _GB:.1f} GB for its inputs, weights and "
            f"outputs alone, and a candidate's beside them, but {device} has "
            f"{needs.available_bytes / _GB:.1f} GB to spare; name smaller inputs."
        ),
        exit_status=3,
    )


def in_parts(needs: MemoryNeeds) -> str:
    """A note where not everything fits at once; "" where it does."""
    if needs.judge_bytes <= needs.available_bytes:
        return ""
    return (
        f"judged in parts: all at once would take {needs.judge_bytes / _GB:.1f} GB, and "
        f"{needs.available_bytes / _GB:.1f} GB are there"
    )


Announce = Callable[[Stage], None]

# Where each step of building a baseline stands in the account; the first two are beside a search.
_PARTS = {"place": "beside: place", "compile": "beside: build", "whole": "baselines: build"}


class RequestHandler:
    """Answers each kind of request, and keeps the runtime of the last task.

    `retire` says why the worker must end.
    """

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._task_runtime: TaskRuntime | None = None
        self._session: ForeignSession | None = None
        self.retire = ""
        self._full = False
        self.meter = Meter()
        self._taken: set[Path] = set()
        self._placed: list[Placed] = []

    def answer(self, request: Request) -> Answer:
        """The answer to one request. Exceptions are Kernelwright's own faults."""
        try:
            return self._answer(request)
        finally:
            if self._task_runtime is not None:
                gc.collect()  # plans stand in cycles, and hold the memory they were judged in
            leave_the_device_to_others()

    def _answer(self, request: Request) -> Answer:
        match request:
            case TraceRequest():
                self.meter.begin("read")
                import_exporter()
                with no_new_processes():
                    return Traced(result=trace(request.source, request.path, request.policy))
            case RehearseRequest():
                import_compiler() if request.compiler else rehearse()
                return Rehearsed()
            case CeilingsRequest():
                self.meter.begin("ceilings")
                company = Company()
                ceilings = peaks(request.hardware)
                share = company.share() if request.hardware.kind == "cpu" else None
                alone = ceilings.model_copy(update={"others_share": share})
                return CeilingsMeasured(ceilings=alone)
            case AuditRequest():
                return self._audit(request)
            case DispatchRequest():
                return self._dispatch(request)
            case OutlineRequest():
                return self._outline(request)
            case BackwardRequest():
                return self._backward(request)
            case BuildRequest():
                return self._build(request)
            case BaselineRequest():
                return self._baseline(request)
            case JudgeRequest():
                return self._judge(request)
            case OpenProfilerRequest():
                return open_profiler()
            case ProfileRequest():
                return self._profile(request)
            case ForeignRequest():
                return self._foreign(request)
            case HoldoutRequest():
                return self._hold_out(request)
            case RecordRequest():
                return self._record(request)
        assert_never(request)

    def _audit(self, request: AuditRequest) -> Audited:
        task, hardware, rules = request.task, request.hardware, request.rules
        self._say("the reference runs", rules.reference_s, "reference")
        self.meter.begin("audit")
        try:
            needs = needs_of(task, hardware, rules)
            if (refusal := refusal_for(task, needs, hardware.name)) is not None:
                return Audited(refusal=refusal)
            task_runtime = self._at(task, hardware, rules, request.seed)
            task_runtime.runtime.check_draws()
            task_runtime.runtime.check_sizes()
            found = task_runtime.findings
        except RefusedError as refused:
            return Audited(refusal=refused.refusal)
        except (MemoryError, RuntimeError) as error:
            self._full = isinstance(error, torch.OutOfMemoryError)
            return Audited(refusal=_cannot_run(task, error, hardware))
        finally:
            self._retire_if_needed(hardware.kind)
        parts = in_parts(needs)
        return Audited(badges=found.badges, notes=(*found.notes, *([parts] if parts else [])))

    def _dispatch(self, request: DispatchRequest) -> DispatchSeen:
        task, hardware, rules = request.task, request.hardware, request.rules
        self._say("the reference is profiled", rules.reference_s, "reference")
        needs = None
        try:
            needs = needs_of(task, hardware, rules)
            kernels, runs = self._at(task, hardware, rules, request.seed).dispatched()
        except (RefusedError, MemoryError, RuntimeError) as error:
            words = " ".join(str(error).split())[:300] or "out of memory"
            return DispatchSeen(needs=needs, failure=words)
        finally:
            self.retire = poisoned(hardware.kind)
        return DispatchSeen(kernels=kernels, runs=runs, needs=needs)

    def _backward(self, request: BackwardRequest) -> BackwardSeen:
        task, hardware, rules = request.task, request.hardware, request.rules
        self._say("the reference's backward is traced", rules.reference_s, "reference")
        try:
            return BackwardSeen(backward=self._at(task, hardware, rules, request.seed).backward())
        except (RefusedError, MemoryError, RuntimeError) as error:
            return BackwardSeen(failure=" ".join(str(error).split())[:300] or "out of memory")
        finally:
            self.retire = poisoned(hardware.kind)

    def _outline(self, request: OutlineRequest) -> OutlineSeen:
        task, hardware, rules = request.task, request.hardware, request.rules
        self._say("the reference is run operator by operator", rules.reference_s, "reference")
        try:
            return OutlineSeen(outline=self._at(task, hardware, rules, request.seed).outline())
        except (RefusedError, MemoryError, RuntimeError) as error:
            return OutlineSeen(failure=" ".join(str(error).split())[:300] or "out of memory")
        finally:
            self.retire = poisoned(hardware.kind)

    def _build(self, request: BuildRequest) -> BuiltElsewhere | BaselineMeasured:
        name, rules, complete = request.name, request.rules, True
        self._say(f"{name} is built", rules.baseline_s, "reference", name)
        self.meter.begin(f"{_PARTS[request.step]} {name}")
        try:
            runtime = self._at(request.task, request.hardware, rules, request.seed).runtime
            if request.step == "place":
                self._placed = place(request.task, runtime.device)
            elif request.step == "compile":
                complete = compile_only(runtime.reference.module, self._placed)
                self._placed = []
                torch.cuda.empty_cache()
            else:
                compiled(runtime, name)(runtime.draw(Draw("task", request.seed)))
        except Exception as error:  # torch.compile raises nearly every class there is
            words = " ".join(str(error).split())[:300] or type(error).__name__
            return BaselineMeasured(baseline=Baseline(name=name, failure=words))
        finally:
            self.retire = poisoned(request.hardware.kind)
        return BuiltElsewhere(complete=complete)

    def _baseline(self, request: BaselineRequest) -> BaselineMeasured:
        self._say(f"{request.name} runs", request.rules.baseline_s, "reference", request.name)
        try:
            self.meter.begin("baselines: inputs")
            self._take_over(request.compiled)
            task_runtime = self._at(request.task, request.hardware, request.rules, request.seed)
            _ = task_runtime.harness
            return BaselineMeasured(baseline=timed_baseline(task_runtime, request.name, self.meter))
        except (BaselineFailedError, RefusedError) as failed:
            return BaselineMeasured(baseline=Baseline(name=request.name, failure=str(failed)))
        except (MemoryError, RuntimeError) as error:
            self._full = isinstance(error, torch.OutOfMemoryError)
            words = " ".join(str(error).split())[:300] or "out of memory"
            return BaselineMeasured(baseline=Baseline(name=request.name, failure=words))
        finally:
            self._retire_if_needed(request.hardware.kind)

    def _judge(self, request: JudgeRequest) -> Judged:
        self._say("the reference is built", request.rules.reference_s, "reference")
        self.meter.begin(f"{request.effort}: reference")
        self._take_over(request.compiled)
        task_runtime = self._at(request.task, request.hardware, request.rules, request.seed)
        try:
            ladder = Ladder(task_runtime, request, self._announce, self.meter)
            return Judged(evaluation=ladder.climb())
        finally:
            self.retire = poisoned(request.hardware.kind)

    def _profile(self, request: ProfileRequest) -> Profiled:
        self._say("the candidate is profiled", request.rules.profile_s, "candidate")
        self.meter.begin("profile: times")
        try:
            task_runtime = self._at(request.task, request.hardware, request.rules, request.seed)
            return profiled(task_runtime, request)
        except (RefusedError, MemoryError, RuntimeError) as error:
            return not_timed(error)
        finally:
            self.retire = poisoned(request.hardware.kind)

    def _foreign(self, request: ForeignRequest) -> Judged | Lacking:
        try:
            if request.broker is None:
                raise ValueError("a judge of foreign code inherits its guest broker's socket")
            if self._session is None:
                self._session = ForeignSession(request.broker)
            return Judged(evaluation=ForeignLadder(request, self._session, self._announce).climb())
        except LackingError as lacks:
            return Lacking(words=str(lacks))
        finally:
            self.retire = poisoned(request.hardware.kind)

    def _hold_out(self, request: HoldoutRequest) -> ShapesTried:
        rules = request.rules
        self.meter.begin("certify: other shapes")
        task_runtime = self._at(request.task, request.hardware, rules, request.seed)
        try:
            found = held_out(
                task_runtime.runtime,
                request.candidate,
                request.built,
                request.seed,
                announce=lambda words: self._say(words, rules.candidate_s, "candidate"),
                settle=lambda: self._say("the reference runs", rules.reference_s, "reference"),
            )
            return ShapesTried(words=found.words)
        finally:
            self.retire = poisoned(request.hardware.kind)

    def _record(self, request: RecordRequest) -> LaunchesRecorded:
        self._say("its launches are recorded", request.rules.candidate_s, "candidate")
        try:
            task_runtime = self._at(request.task, request.hardware, request.rules, request.seed)
            return recorded(task_runtime, request)
        except (RefusedError, MemoryError, RuntimeError) as error:
            return LaunchesRecorded(problem=" ".join(str(error).split())[:200] or "out of memory")

    def _take_over(self, folders: Sequence[Path]) -> None:
        take_over([folder for folder in folders if folder not in self._taken])
        self._taken.update(folders)

    def _at(self, task: Task, hardware: Hardware, rules: Rules, seed: int) -> TaskRuntime:
        """The runtime of this task, a new one when the last request was about another."""
        known = self._task_runtime
        if known is None or known.task != task or known.runtime.rules != rules:
            # Its memory, what stands in cycles included, is free before the next one asks for any.
            self._task_runtime = known = None
            gc.unfreeze()
            gc.collect()
            gc.freeze()  # what is left, modules above all, is looked through at the next task only
            self._task_runtime = known = TaskRuntime(task, hardware, rules, seed)
        return known

    def _retire_if_needed(self, device: str) -> None:
        """After a request that may have harmed the device, or filled it."""
        self.retire = poisoned(device) or ("the device's memory was full" if self._full else "")

    def _say(
        self,
        words: str,
        limit_s: float,
        blame: Literal["candidate", "reference", "judge"],
        baseline: str = "",
    ) -> None:
        self._announce(Stage(words=words, limit_s=limit_s, blame=blame, baseline=baseline))


def leave_the_device_to_others() -> None:
    """Give back memory that only torch's allocator still holds: baselines are built elsewhere."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        with contextlib.suppress(RuntimeError):  # a lost context has nothing to give
            torch.cuda.empty_cache()


def _cannot_run(task: Task, error: Exception, hardware: Hardware) -> Refusal:
    words = " ".join(str(error).split())[:300] or "out of memory"
    return Refusal(sentence=f"{task.name} does not run on {hardware.name}: {words}.")


def serve(connection: socket.socket) -> None:
    """Answer requests until the parent closes the connection."""
    resolve_vector_math()
    process, token = os.getpid(), UNASKED

    def send(message: Message) -> None:
        # A fork that some code made goes on from wherever it was; it has no say here.
        if os.getpid() != process:
            os._exit(0)
        connection.sendall(frame(token + message.model_dump_json().encode()))

    handler = RequestHandler(lambda stage: send(stage))
    send(Ready(pid=process))
    while True:
        token, asked = opened(receive_blocking(connection))
        request = REQUEST.validate_json(asked)
        send(_reply(handler, request))


def _reply(handler: RequestHandler, request: Request) -> Reply:
    try:
        answer: Answer = handler.answer(request)
    except Exception as error:
        answer = Broken(
            words=f"{type(error).__name__} in a worker answering {request.kind!r}: {error}",
            detail=traceback.format_exc(),
        )
    return Reply(answer=answer, retire=handler.retire, phases=handler.meter.taken())
