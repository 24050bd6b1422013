"""What prompts show of a search, as text: task, device, limits, what was tried, steering.

Every card is a few lines of Markdown and says in words when it has nothing to show; foreign text
stands in fences that it cannot close. Times are milliseconds. A traced graph is one operation a
line (`y = add(x, w["bias"])  # float32[64, 128]`), and one of thousands of nodes is cut in the
middle, as its ends say most. Ideas with what they brought and candidates with their times are
tables, cut to what helps a planner: the newest ideas, the fastest implementation of each kind, the
last failures.

Not here: standing words such as the contract and the craft (`agents.prompting.templates`).
"""

import re
from collections.abc import Iterable, Sequence
from math import inf

from kernelwright.agents.shared.facts import Steering
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Standing, ranked, strategy_words
from kernelwright.tools.types import (
    Analysis,
    Arg,
    Candidate,
    CompileReport,
    DTypeArg,
    Evaluation,
    Evidence,
    Graph,
    Idea,
    InputSpec,
    LedgerEntry,
    ListArg,
    Node,
    Prediction,
    Rank,
    Ref,
    Scalar,
    Symptom,
    Task,
    TensorSpec,
    Verdict,
)
from kernelwright.tools.types.task import Precision

LEDGER_ROWS = 40
OLD_LEDGER_ROWS = 10
STANDING_ROWS = 12
FAILURES = 5
_REASON_CHARACTERS = 240


def ledger_table(ideas: Sequence[Idea], ledger: Sequence[LedgerEntry]) -> str:
    """Every idea tried, the newest last, with what it really did.

    Of many, the newest are shown, and of the older ones those that were fastest.
    """
    if not ideas:
        return "Nothing was tried yet."
    entries = {entry.idea: entry for entry in ledger}
    older, newer = ideas[:-LEDGER_ROWS], ideas[-LEDGER_ROWS:]
    fast = sorted(older, key=lambda idea: _reached_ms(entries.get(idea.id)))[:OLD_LEDGER_ROWS]
    kept = {idea.id for idea in fast}
    shown = [*(idea for idea in older if idea.id in kept), *newer]
    rows = [_ledger_row(idea, entries.get(idea.id)) for idea in shown]
    cut = [f"({len(ideas) - len(shown)} older ideas are not shown.)"] * (len(shown) < len(ideas))
    return "\n".join((*cut, table("idea|what|category|predicted|measured|gain", rows)))


def standings_table(standings: Sequence[Standing]) -> str:
    """The fastest correct candidates, one an implementation, and the last failures."""
    best: dict[tuple[str, str], Standing] = {}
    for item in ranked(standings):
        best.setdefault((item.candidate.kernel, item.candidate.plan), item)
    fastest = list(best.values())[:STANDING_ROWS]
    failed = [item for item in standings if item.evaluation.verdict is not Verdict.CORRECT]
    if not fastest and not failed:
        return "No candidate was judged yet."
    parts = []
    if fastest:
        header = "candidate|idea|by|time|error|declared|settings"
        parts.append(table(header, [_standing_row(item) for item in fastest]))
    if failed:
        parts += ["The last that failed:", *(f"- {_failure(item)}" for item in failed[-FAILURES:])]
    return "\n".join(parts)


def _reached_ms(entry: LedgerEntry | None) -> float:
    return entry.measured_ms if entry and entry.measured_ms is not None else inf


def _ledger_row(idea: Idea, entry: LedgerEntry | None) -> str:
    measured, gain = "not measured yet", "-"
    if entry is not None:
        some = f"{entry.correct} of {entry.candidates} candidates correct"
        measured = milliseconds(entry.measured_ms) if entry.measured_ms else f"failed: {some}"
        gain = f"{entry.gain:.3g}x" if entry.gain else "-"
    what = f"{idea.title}: {idea.mechanism}"
    return row(idea.id, what, idea.category, milliseconds(idea.predicted_ms), measured, gain)


def _standing_row(item: Standing) -> str:
    candidate, found = item.candidate, item.evaluation
    error = found.verification.error_ratio
    return row(
        candidate.id,
        candidate.idea,
        item.author if item.author != "coder" else candidate.origin,
        milliseconds(found.median_ms),
        "-" if error is None else f"{error:.2g}x",
        strategy_words(candidate.strategies),
        " ".join(f"{setting.name}={setting.value}" for setting in candidate.settings),
    )


def _failure(item: Standing) -> str:
    reason = " ".join(item.evaluation.verification.reason.split())
    verdict = item.evaluation.verdict.words
    idea = item.candidate.idea or "no idea"
    return f"{item.candidate.id} ({idea}): {verdict}: {shortened(reason, _REASON_CHARACTERS)}"


_CELL_CHARACTERS = 300


def fenced(language: str, text: str) -> str:
    """Text between fences that it cannot close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def milliseconds(value: float | None) -> str:
    """A time with its unit, or a dash."""
    return "-" if value is None else f"{value:.4g} ms"


def shortened(text: str, characters: int) -> str:
    """The beginning and the end of a text that is too long, and how much is missing between."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"


def table(header: str, rows: Iterable[str]) -> str:
    """A table of rows made by `row`; the header's cells are separated by `|`."""
    names = header.split("|")
    return "\n".join((row(*names), row(*("---" for _ in names)), *rows))


def row(*cells: str) -> str:
    """A line of a table; what would break the table is replaced, and long cells are cut."""
    plain = (
        shortened(" ".join(cell.split()).replace("|", "/"), _CELL_CHARACTERS) for cell in cells
    )
    return f"| {' | '.join(plain)} |"


GRAPH_LINES = 160
SOURCE_CHARACTERS = 12_000


def task_card(task: Task) -> str:
    """Inputs, outputs, weights, the traced graph and the reference's source."""
    lines = [f"`{task.entry}` of `{task.name}` ({task.entry_kind}).", "", "Inputs, in order:"]
    lines += [f"- {_input(spec)}" for spec in task.inputs]
    lines.append("Outputs: " + ", ".join(shown_spec(spec) for spec in task.outputs))
    if task.weights:
        lines.append("Weights, by state-dict name:")
        lines += [
            f'- `"{spec.name}"` {shown_spec(spec.tensor)}{" (buffer)" if spec.is_buffer else ""}'
            for spec in task.weights
        ]
    lines += [f"Note: {warning}" for warning in task.warnings]
    if task.allow:
        lines.append(allowed_words(task.allow))
    graph = "\n".join(graph_lines(task.graph, GRAPH_LINES))
    source = shortened(task.source, SOURCE_CHARACTERS)
    lines += ["", "What it computes, as traced (`w[...]` are weights):", "", fenced("", graph)]
    return "\n".join(
        (*lines, "", "Its source (the shapes above are what counts):", "", fenced("python", source))
    )


def allowed_words(allow: Sequence[Precision]) -> str:
    """Which precisions the person admits below the task's own, for whoever plans or writes."""
    named = ", ".join(allow)
    return (
        f"Precision: the person allows computing in {named} within the kernels, although the task "
        "asks for more. Inputs and outputs keep their types; the judge then takes that rounding "
        "for granted, and such a candidate competes with all others. No other lower precision is "
        "allowed: what computes in one is ranked apart and cannot win."
    )


def hardware_card(hardware: Hardware) -> str:
    """The device in one line a fact; what does not exist on it is left out."""
    known = (
        ("architecture", hardware.architecture, ""),
        ("multiprocessors", hardware.sm_count, ""),
        ("cores", hardware.cores, ""),
        ("vector width", hardware.simd_bits, " bits"),
        ("memory bandwidth", round(hardware.bandwidth_gb_s), " GB/s"),
        ("fp32 rate", round(hardware.fp32_tflops, 1), " TFLOP/s"),
        (
            "tensor core rate (dense fp16 or bf16; TF32 has half of it)",
            hardware.tensor_tflops,
            " TFLOP/s",
        ),
        ("last-level cache", hardware.cache_mib, " MiB"),
        ("level 1 cache a core", hardware.l1_kib_per_core, " KiB"),
        ("level 2 cache a core", hardware.l2_kib_per_core, " KiB"),
        ("shared memory a multiprocessor", hardware.shared_kib_per_sm, " KiB"),
        ("shared memory a block, at most", hardware.shared_kib_per_block, " KiB"),
        ("registers a multiprocessor", hardware.registers_per_sm, ""),
        ("threads a multiprocessor", hardware.threads_per_sm, ""),
        ("blocks a cluster, at most", hardware.cluster_size, ""),
        ("one launch", hardware.launch_us if hardware.kind == "cuda" else None, " us"),
    )
    measured = "rates as measured here" if hardware.measured else "rates as on the data sheet"
    facts = [f"- {name}: {value}{unit}" for name, value, unit in known if value is not None]
    return "\n".join((f"{hardware.name} ({measured})", *facts))


def roofline_card(task: Task, hardware: Hardware, floor_ms: float) -> str:
    """What bounds the task: bytes or arithmetic, and at which time."""
    by_memory = task.bytes_moved / (hardware.bandwidth_gb_s * 1e6)
    by_fp32 = task.flops / (hardware.fp32_tflops * 1e9)
    lines = [
        f"- it must move {task.bytes_moved / 1e6:.4g} MB (inputs, weights and outputs once): "
        f"{by_memory:.4g} ms at full bandwidth",
        f"- it computes {task.flops / 1e9:.4g} GFLOP: {by_fp32:.4g} ms at the fp32 rate"
        + (_by_tensor_cores(task.flops, hardware) if by_fp32 > by_memory else ""),
        f"- so it is bound by {'memory' if by_memory >= by_fp32 else 'arithmetic'}; "
        f"the floor, which nothing can undercut without algebra, is {floor_ms:.4g} ms",
    ]
    if task.bytes_moved < hardware.cache_mib * 2**20:
        lines.append("- all of it fits into the last-level cache, which is cold when timing begins")
    return "\n".join(lines)


def progress_card(floor_ms: float, baseline_ms: float | None, best: Standing | None) -> str:
    """Where the search stands: floor, the baseline to beat, the best so far."""
    lines = [f"- floor {milliseconds(floor_ms)}"]
    if baseline_ms:
        lines.append(f"- best of eager and torch.compile so far {milliseconds(baseline_ms)}")
    if best is None or best.evaluation.median_ms is None:
        return "\n".join((*lines, "- no correct candidate yet"))
    best_ms = best.evaluation.median_ms
    against = f", {baseline_ms / best_ms:.3g} times as fast as that" if baseline_ms else ""
    lines.append(
        f"- best candidate {best.candidate.id}: {milliseconds(best_ms)}{against}, "
        f"{floor_ms / best_ms:.0%} of the floor"
    )
    return "\n".join(lines)


def symptoms_card(symptoms: Sequence[Symptom]) -> str:
    """What bounds the best candidate, as far as it was read."""
    if not symptoms:
        return "Nothing telling was found, or nothing was profiled yet."
    return "\n".join(
        f"- {item.name}: {item.words}"
        + (f" (points to {', '.join(item.points_to)})" if item.points_to else "")
        for item in symptoms
    )


_RANKS = (Rank.MEASURED, Rank.DERIVED, Rank.STATIC, Rank.ESTIMATED)
READINGS = 40


def readings_card(candidate: str, readings: Sequence[Evidence]) -> str:
    """What is known of a candidate in numbers, the most trusted first; "" where nothing is."""
    found = [item for item in readings if item.value is not None and item.rank in _RANKS]
    shown = sorted(found, key=lambda item: _RANKS.index(item.rank))[:READINGS]
    rows = [
        row(candidate, item.name, f"{item.value:.6g}", item.unit, item.rank.value) for item in shown
    ]
    return table("candidate|reading|value|unit|rank", rows) if rows else ""


def analysis_card(analysis: Analysis | None) -> str:
    """The critic's last contrast, with how its predictions fared."""
    if analysis is None:
        return "The critic has not spoken yet."
    lines = [f"After round {analysis.round}: {analysis.implies}".rstrip()]
    lines += [f"- {item.words} ({'; '.join(item.numbers)})" for item in analysis.claims]
    if analysis.prefer:
        lines.append(f"- prefer: {', '.join(analysis.prefer)}")
    if analysis.avoid:
        lines.append(f"- avoid: {', '.join(analysis.avoid)}")
    lines += [f"- expects: {item.words}{_outcome(item)}" for item in analysis.predictions]
    if analysis.predictions_checked:
        held, checked = analysis.predictions_held, analysis.predictions_checked
        lines.append(f"- of its predictions so far {held} of {checked} held")
    if analysis.predictions_undecided:
        lines.append(f"- {analysis.predictions_undecided} more were within the noise: undecided")
    lines += [f"- {analysis.advice.words}"] if analysis.advice else []
    return "\n".join(lines)


def steering_card(steering: Steering) -> str:
    """What the person said."""
    lines = [f"- must be tried first: {text}" for text in steering.pins]
    lines += [f"- must not be tried: {text}" for text in steering.bans]
    lines += [f"- hint: {text}" for text in steering.hints]
    return "\n".join(lines) or "The person has said nothing."


def candidate_card(
    candidate: Candidate, evaluation: Evaluation | None = None, characters: int = 200_000
) -> str:
    """A candidate: what is known of it, its kernel and its plan, each of at most that length."""
    settings = ", ".join(f"{item.name}={item.value}" for item in candidate.settings)
    facts = [f"Candidate {candidate.id}", f"settings {settings}" if settings else ""]
    facts += [strategy_words(candidate.strategies), _measured(evaluation) if evaluation else ""]
    known = "; ".join(fact for fact in facts if fact)
    kernel = fenced(candidate.language, shortened(candidate.kernel, characters))
    plan = fenced("python", shortened(candidate.plan, characters))
    return "\n\n".join((known, kernel, plan))


def _measured(evaluation: Evaluation) -> str:
    words = [evaluation.verdict.words, milliseconds(evaluation.median_ms)]
    for report in evaluation.reports:
        known = ((report.registers, "registers"), (report.spill_bytes, "bytes spilled"))
        found = [f"{value} {name}" for value, name in known if value]
        words += [f"{report.kernel}: {', '.join(found)}"] if found else []
    return ", ".join(words)


def _input(spec: InputSpec) -> str:
    if spec.tensor is None:
        return f"`{spec.name}`: always {spec.scalar!r}"
    known = f"values {spec.minimum:.4g} to {spec.maximum:.4g}" if _ranged(spec) else ""
    domain = f"domain {spec.domain}" if spec.domain != "any" else ""
    return ", ".join(
        part for part in (f"`{spec.name}`: {shown_spec(spec.tensor)}", known, domain) if part
    )


def _ranged(spec: InputSpec) -> bool:
    return spec.minimum is not None and spec.maximum is not None


def _by_tensor_cores(flops: int, hardware: Hardware) -> str:
    if hardware.tensor_tflops is None:
        return ""
    return f", {flops / (hardware.tensor_tflops * 1e9):.4g} ms at the tensor cores' fp16 peak"


def _outcome(item: Prediction) -> str:
    if item.held is None:
        return "" if item.measured_ms is None else " (undecided: within the noise)"
    return " (it held)" if item.held else " (it did not hold)"


_QUIET = frozenset({"input", "weight", "constant"})


def graph_lines(graph: Graph, limit: int) -> tuple[str, ...]:
    """At most `limit` lines, and one that says how many were left out."""
    named = {node.name: _leaf(node) for node in graph.nodes if node.op in _QUIET}
    lines = [_line(node, named) for node in graph.nodes if node.op not in _QUIET]
    lines += [f"{item.target} <- {named.get(item.node, item.node)}" for item in graph.mutations]
    lines.append(f"return {', '.join(named.get(name, name) for name in graph.outputs)}")
    if len(lines) <= limit:
        return tuple(lines)
    head = limit * 2 // 3
    left_out = f"... {len(lines) - limit} operations left out ..."
    return (*lines[:head], left_out, *lines[len(lines) - (limit - head) :])


def shown_spec(spec: TensorSpec) -> str:
    """Type, shape, and strides where they are not the contiguous ones."""
    strides = f" strides {list(spec.strides)}" if spec.strides is not None else ""
    return f"{spec.dtype.value}{list(spec.shape)}{strides}"


def _line(node: Node, named: dict[str, str]) -> str:
    made = " and ".join(shown_spec(spec) for spec in node.out)
    args = [_shown(arg, named) for arg in node.args]
    args += [f"{name}={_shown(arg, named)}" for name, arg in node.kwargs]
    return f"{node.name} = {_operator(node.op)}({', '.join(args)})  # {made}"


def _operator(op: str) -> str:
    """`aten.add.Tensor` as `add`: overloads tell a person nothing that the arguments do not."""
    return op.removeprefix("aten.").split(".")[0]


def _leaf(node: Node) -> str:
    return f'w["{node.target}"]' if node.op == "weight" and node.target else node.name


def _shown(arg: Arg, named: dict[str, str]) -> str:
    match arg:
        case Ref(node=node):
            return named.get(node, node)
        case Scalar(value=value):
            return repr(value)
        case DTypeArg(value=dtype):
            return dtype.value
        case ListArg(items=items):
            return f"[{', '.join(_shown(item, named) for item in items)}]"


def resources(reports: tuple[CompileReport, ...]) -> str:
    """What each kernel of a candidate takes, in a line."""
    return "; ".join(words for report in reports if (words := _report(report)))


def _report(report: CompileReport) -> str:
    facts = [
        (report.registers, "registers a thread"),
        (report.spill_bytes, "bytes spilled"),
        (report.shared_bytes, "bytes of static shared memory a block"),
        (report.stack_bytes, "bytes of stack"),
    ]
    known = [f"{value} {words}" for value, words in facts if value]
    return f"{report.kernel}: {', '.join(known)}" if known else ""
