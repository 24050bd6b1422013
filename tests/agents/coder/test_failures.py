from kernelwright.agents.coder.repairs import compiler_errors, excerpt, findings
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    Evaluation,
    OutputError,
    Verdict,
    Verification,
)

KERNEL = 'int unused;\nextern "C" void f(const float* x) {\n    y = 1;\n}\n'
PLAN = "def forward(x):\n    y = x.view(3)\n    return y\n"


def candidate() -> Candidate:
    return new_candidate("cpp", KERNEL, PLAN)


def judged(verdict: Verdict, reason: str, **more: object) -> Evaluation:
    errors = more.pop("errors", ())
    found = Verification.model_validate({"verdict": verdict, "reason": reason, "errors": errors})
    return Evaluation.model_validate({"candidate": "c", "verification": found, **more})


def test_a_compile_error_comes_with_its_message_and_the_line() -> None:
    log = "kernel.cpp: In function 'f':\nkernel.cpp:3:5: error: 'y' was not declared\nother words"
    found = findings(candidate(), judged(Verdict.COMPILE_ERROR, "'y'", compiler_log=log))
    assert found.errors == "kernel.cpp:3:5: error: 'y' was not declared"
    assert ">    3      y = 1;" in found.places
    assert found.verdict == "compile error"


def test_a_log_without_an_error_line_is_shown_as_it_is() -> None:
    found = findings(candidate(), judged(Verdict.COMPILE_ERROR, "", compiler_log="killed"))
    assert found.errors == "killed"


def test_nvrtc_names_lines_in_its_own_way() -> None:
    errors, lines = compiler_errors('kernel.cu(7): error: identifier "k" is undefined\n1 error')
    assert lines == (7,)
    assert errors[0].startswith("kernel.cu(7)")


def test_a_refused_launch_shows_the_line_of_the_plan() -> None:
    reason = "plan line 2: RuntimeError: shape '[3]' is invalid"
    found = findings(candidate(), judged(Verdict.LAUNCH_ERROR, reason))
    assert ">    2      y = x.view(3)" in found.places


def test_a_breach_of_the_kernels_rules_shows_the_line_of_the_kernel() -> None:
    reason = "line 1: unused is static [signature]"
    found = findings(candidate(), judged(Verdict.INVALID_PLAN, reason))
    assert ">    1  int unused;" in found.places


def test_a_wrong_result_says_where_it_was_right_and_what_the_kernel_costs() -> None:
    error = OutputError(
        output=0, distribution="task", error=1e-7, reference_error=1e-7, error_ratio=1.25
    )
    report = CompileReport(kernel="f", registers=255, spill_bytes=64)
    found = findings(
        candidate(),
        judged(Verdict.WRONG_RESULT, "output 0: wrong", errors=(error,), reports=(report,)),
    )
    assert found.passed == "'task' (error 1.2 times PyTorch's own)"
    assert found.resources == "f: 255 registers a thread, 64 bytes spilled"
    assert found.reason == "output 0: wrong"


def test_an_excerpt_marks_lines_and_shows_gaps() -> None:
    text = "\n".join(f"line {n}" for n in range(1, 30))
    shown = excerpt(text, (2, 20), around=1).splitlines()
    assert shown[1] == ">    2  line 2"
    assert "      ..." in shown
    assert excerpt(text, (99,)) == ""
