"""What the C++ compiler says of loops whose make is known."""

import asyncio

import pytest

from kernelwright.tools.languages import language_of, new_candidate

PLAN = "def forward(x):\n    return x\n"
INDEPENDENT = """
extern "C" void scale(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f;
}
"""
RECURRENT = """
extern "C" void decay(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    float s = 0.0f;
    for (int64_t i = 0; i < n; ++i) { s = s * 0.5f + x[i]; y[i] = s; }
}
"""


@pytest.fixture
def read():
    def found(kernel):
        source = f'#include "kernelwright.hpp"\n{kernel}'
        candidate = new_candidate("cpp", source, PLAN)
        return {
            item.name: item for item in asyncio.run(language_of(candidate).inspect(candidate, None))
        }

    return found


def test_an_independent_loop_is_vectorised(read):
    found = read(INDEPENDENT)
    assert found["vectorised_loops"].value >= 1
    assert found["missed_loops"].value == 0
    assert found["vector_bits"].value >= 128
    assert found["packed_share"].value > 0


def test_a_recurrence_stays_scalar_and_the_compiler_says_so(read):
    found = read(RECURRENT)
    assert found["vectorised_loops"].value == 0
    assert found["missed_loops"].value >= 1
    assert "report: " in found["missed_loops"].source  # and why
    assert found["packed_share"].value == 0


def test_a_kernel_that_does_not_compile_has_a_reason_for_what_is_missing(read):
    (missing,) = read('extern "C" void broken(float* y) { y[0] = nothing; }').values()
    assert missing.value is None
    assert "loops" in missing.source
