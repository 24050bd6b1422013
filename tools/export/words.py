"""VERIFICATION.md: what was verified, how and on what, and what was not."""

from kernelwright.tools.evaluate.findings import timed, verified
from kernelwright.tools.export.material import Material
from kernelwright.tools.languages import language_of
from kernelwright.tools.types import Conditions


def verification(material: Material) -> str:
    """The file's text."""
    from kernelwright.tools.export.render import environment

    evaluation = material.evaluation
    comparisons = evaluation.comparisons
    return (
        environment()
        .get_template("verification.md.j2")
        .render(
            material=material,
            task=material.task,
            candidate=material.candidate,
            verification=evaluation.verification,
            apart=material.apart,
            verified=verified(evaluation.verification),
            timed=timed(evaluation),
            comparisons=comparisons,
            conditions=condition_words(comparisons[0].conditions) if comparisons else [],
            reads=_reads(material),
            unverified=language_of(material.candidate)
            .export(material.hardware.architecture)
            .not_verified,
        )
    )


def condition_words(found: Conditions) -> list[str]:
    """The conditions of a measurement, one a line."""
    lines = [f"device: {found.device}", f"input sets rotated: {found.input_sets}"]
    lines.append(f"last-level cache flushed between runs: {'yes' if found.l2_flushed else 'no'}")
    known = {
        "threads": found.threads,
        "SM clock (MHz)": found.sm_clock_mhz,
        "memory clock (MHz)": found.memory_clock_mhz,
        "temperature (°C)": found.temperature_c,
        "power (W)": found.power_w,
        "other processes on the device": found.other_processes,
        "load average": found.load_average,
    }
    lines += [f"{name}: {value}" for name, value in known.items() if value is not None]
    lines += [f"throttled: {reason}" for reason in found.throttle_reasons]
    return lines + list(found.notes)


def _reads(material: Material) -> list[str]:
    """The inputs and weights that it was verified for, in words."""
    lines = []
    for spec in material.task.inputs:
        if spec.tensor is None:
            lines.append(f"`{spec.name}` = `{spec.scalar!r}`")
            continue
        layout = "contiguous" if spec.tensor.strides is None else f"strides {spec.tensor.strides}"
        lines.append(f"`{spec.name}`: {spec.tensor.shape}, {spec.tensor.dtype.value}, {layout}")
    for weight in material.task.weights:
        kind = "buffer" if weight.is_buffer else "parameter"
        lines.append(
            f"`{weight.name}` ({kind}): {weight.tensor.shape}, {weight.tensor.dtype.value}"
        )
    return lines
