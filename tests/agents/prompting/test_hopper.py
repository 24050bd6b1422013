"""The kernels that prompts give as examples are candidates, and become what they say."""

import asyncio
import re

import pytest

from kernelwright.agents.prompting.templates import craft
from kernelwright.agents.toolbox.code_words import serialised
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    language_named,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.languages.cuda.inspection import cubin_evidence
from kernelwright.tools.types import Candidate

EXAMPLE = re.compile(r"```cuda\n(.*?)```\n```python\n(.*?)```", re.DOTALL)


def examples(architecture: str) -> list[Candidate]:
    found = EXAMPLE.findall(craft("cuda", architecture))
    return [new_candidate("cuda", kernel, plan) for kernel, plan in found]


@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        ("sm_80", 1),
        pytest.param("sm_89", 1, marks=pytest.mark.exhaustive),
        ("sm_90a", 2),
    ],
)
def test_each_example_keeps_the_contract_and_compiles_without_spills_or_waits(
    architecture: str, count: int
) -> None:
    candidates = examples(architecture)
    assert len(candidates) == count
    for candidate in candidates:
        language_named("cuda").check(candidate.kernel)
        validate_plan(candidate.plan, parse_kernel(candidate.kernel, "cuda"))
        built = asyncio.run(
            compile_candidate(candidate, architecture=architecture, timeout_s=120.0)
        )
        assert isinstance(built, Built), built
        assert not serialised(built.log)
        assert all(report.spill_bytes == 0 for report in built.reports)
        read = {item.name: item.value for item in asyncio.run(cubin_evidence(built.artifact))}
        assert read["product.tensor_instructions"] >= 4


def test_hoppers_example_is_fed_by_the_copy_engine() -> None:
    built = asyncio.run(
        compile_candidate(examples("sm_90a")[1], architecture="sm_90a", timeout_s=120.0)
    )
    assert isinstance(built, Built), built
    read = {item.name: item.value for item in asyncio.run(cubin_evidence(built.artifact))}
    assert read["product.bulk_copies"] >= 2


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", None])
def test_other_devices_are_not_told_of_hopper(architecture: str | None) -> None:
    assert "group_wait" not in craft("cuda", architecture)


def test_older_devices_are_not_told_of_what_they_lack() -> None:
    assert "FactorTile" in craft("cuda", "sm_80")
    assert "FactorTile" not in craft("cuda", "sm_75")


def test_a_cpu_is_not_told_of_gpus() -> None:
    assert "wgmma" not in craft("cpp", "sm_90a")
