"""Who reads why a build failed learns what the compiler said, not how it was called."""

import pytest

from kernelwright.tools.evaluate.foreign.guest_link import GuestFailedError
from kernelwright.tools.evaluate.foreign.guest_runner import rejected
from kernelwright.tools.evaluate.foreign.messages import Failed
from kernelwright.tools.tasks.loading.user_file import load_module
from kernelwright.tools.tasks.refusals import complaints, why_not_built
from kernelwright.tools.types import RefusedError, Verdict

BROKEN = """
import subprocess
from pathlib import Path

source = Path(__file__).with_name("broken.cpp")
source.write_text("int twice(int given) {\\n    return 2 * givn;\\n}\\n")
command = ["g++", "-isystem", "/usr/include", "-c", str(source)]
done = subprocess.run(command, capture_output=True, text=True)
# As torch.utils.cpp_extension says it, which would need ninja.
said = f"[1/2] {' '.join(command)}\\nFAILED: broken.o\\n{' '.join(command)}\\n{done.stderr}"
raise RuntimeError(f"Error building extension 'broken': {said}")
"""


def test_a_file_whose_extension_does_not_build_is_refused_with_the_compilers_words(tmp_path):
    with pytest.raises(RefusedError) as refused:
        load_module(BROKEN, str(tmp_path / "task.py"))
    sentence = refused.value.refusal.sentence
    assert "Error building extension 'broken': broken.cpp:2:16: error:" in sentence
    assert "givn" in sentence
    assert str(tmp_path) not in sentence
    assert "-isystem" not in sentence


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (
            'nvcc -c /tmp/x/cuda.cu\n/tmp/x/cuda.cu(12): error: identifier "lanes" is undefined\n\n'
            '1 error detected in the compilation of "/tmp/x/cuda.cu".\n',
            ('cuda.cu(12): error: identifier "lanes" is undefined',),
        ),
        (
            "ptxas error   : Entry function 'go' uses too much shared data (0x20000 bytes)\n"
            "ptxas fatal   : Ptx assembly aborted due to errors\n",
            (
                "ptxas error   : Entry function 'go' uses too much shared data (0x20000 bytes)",
                "ptxas fatal   : Ptx assembly aborted due to errors",
            ),
        ),
        (
            "/usr/bin/ld: /tmp/x/main.o: in function `go':\n"
            "main.cpp:(.text+0x9): undefined reference to `other()'\n"
            "collect2: error: ld returned 1 exit status\n",
            ("main.cpp:(.text+0x9): undefined reference to `other()'",),
        ),
        ("/bin/sh: 1: /opt/cuda/bin/nvcc: not found\n", ("sh: 1: nvcc: not found",)),
        ("collect2: error: ld returned 1 exit status\n", ("collect2: error: ld returned 1 exit "
         "status",)),
        (
            "a.cpp:1:1: error: first\n    1 | int x\n      | ^~~\na.cpp:1:1: error: first\n"
            "    1 | int x\nb.cpp:2:1: fatal error: gone.h: No such file or directory\n"
            "c.cpp:3:1: error: third\n",
            (
                "a.cpp:1:1: error: first, at `int x`",
                "b.cpp:2:1: fatal error: gone.h: No such file or directory",
            ),
        ),
    ],
    ids=["nvcc", "ptxas", "linker", "shell", "nothing else", "two at most, each once"],
)  # fmt: skip
def test_each_compilers_complaints_are_found(log, told):
    assert complaints(log) == told


def test_what_is_no_build_or_says_nothing_keeps_its_words():
    assert why_not_built("main.cpp:2: error: not of a build") == ""
    assert why_not_built("Error building extension 'x': [1/2] c++ -Werror=all -o main.o") == ""


def test_a_build_that_fails_in_the_first_call_is_a_compile_error_too():
    words = "RuntimeError: Error building extension 'x': main.cpp:1:1: error: no"
    failed = GuestFailedError(Failed(how="forward", words=words))
    found = rejected(failed, "it was called")
    assert (found.verdict, found.reason) == (Verdict.COMPILE_ERROR, words)


def test_a_package_that_does_not_import_is_not_said_to_be_missing(tmp_path):
    inner = "raise RuntimeError('operator torchvision::nms does not exist')"
    words = "Could not import module 'GPT2Model'"
    source = f"try:\n    {inner}\nexcept RuntimeError as why:\n"
    source += f'    raise ModuleNotFoundError("{words}") from why'
    with pytest.raises(RefusedError) as refused:
        load_module(source, str(tmp_path / "m.py"))
    assert refused.value.refusal.exit_status == 3
    sentence = "An import fails in line 4: Could not import module 'GPT2Model' (RuntimeError: "
    assert refused.value.refusal.sentence.startswith(sentence)
    assert "nms does not exist" in refused.value.refusal.sentence
