"""Foreign code in real guests on the CPU: honest code passes, and each lie has its own reason."""

import base64
import shutil
import subprocess

import pytest

from kernelwright.tools.evaluate.foreign.host.judges import ForeignJudge
from kernelwright.tools.evaluate.messages import Foreign, ForeignRequest
from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.types import Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns) + 0.5)
"""

HONEST = f"""{HEAD}
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True) * self.weight
"""

KERNEL = r"""
#include <math.h>
extern "C" void softmax(const float* x, const float* w, float* y, long rows, long columns) {
  for (long r = 0; r < rows; r++) {
    const float* a = x + r * columns;
    float* b = y + r * columns;
    float most = a[0];
    double sum = 0;
    for (long c = 1; c < columns; c++) most = a[c] > most ? a[c] : most;
    for (long c = 0; c < columns; c++) { b[c] = expf(a[c] - most); sum += b[c]; }
    for (long c = 0; c < columns; c++) b[c] = (float)(b[c] / sum) * w[c];
  }
}
"""


async def test_honest_library_calls_pass_and_are_called_that(judged):
    found = await judged(HONEST)
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.method.startswith("library rearrangement")
    assert found.verification.allclose_1e4
    assert found.verification.allclose_1e2
    assert found.prepare_ms is not None


@pytest.fixture
def library(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    (tmp_path / "softmax.cpp").write_text(KERNEL)
    made = tmp_path / "softmax.so"
    command = ["g++", "-O2", "-shared", "-fPIC", str(tmp_path / "softmax.cpp"), "-o", str(made)]
    subprocess.run(command, check=True)
    return made


@pytest.mark.exhaustive
async def test_a_kernel_of_its_own_is_seen_to_do_the_work(judged, library):
    # Behind a wall only its own folder exists for a guest, so the library comes with the file.
    text = base64.b64encode(library.read_bytes())
    found = await judged(f"""import base64, ctypes, pathlib
{HEAD}
        made = pathlib.Path("softmax.so").absolute()
        made.write_bytes(base64.b64decode({text!r}))
        self.kernel = ctypes.CDLL(str(made)).softmax

    def forward(self, x):
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.weight, y)]
        self.kernel(*pointers, ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]))
        return y
""")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.method == "own kernels, reported by the guest"


@pytest.mark.exhaustive
async def test_it_is_timed_by_three_clocks_and_again_when_it_is_too_good(judged):
    found = await judged(
        HONEST, against=("eager",), rules=Rules(certify_s=0.2, quarantine_ratio=0.0)
    )
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    if not found.comparisons:  # a machine too busy for such short calls says so, and no more
        assert any("too noisy" in words for words in found.verification.not_verified)
        return
    (comparison,) = found.comparisons
    assert comparison.baseline == "eager"
    assert comparison.pairs >= Rules().pairs_min
    assert any("in separate processes" in note for note in comparison.conditions.notes)
    assert found.clocks is not None
    assert found.clocks.own_ms > 0
    assert found.clocks.protocol_ms > 0


@pytest.mark.exhaustive
async def test_the_judge_stays_but_no_candidate_meets_what_another_left(task, tmp_path):
    from kernelwright.tools.hardware import detect

    leaves = HONEST.replace("class ModelNew", "open('left', 'w').close()\n\nclass ModelNew")
    finds = HONEST.replace(
        "class ModelNew", "import os\nassert not os.path.exists('left')\n\nclass ModelNew"
    )
    foreign_judge = ForeignJudge(tmp_path, "cpu")
    request = ForeignRequest(
        task=task,
        hardware=detect("cpu"),
        rules=Rules(),
        foreign=Foreign(name="it", source=HONEST),
        seed=7,
    )
    try:
        for source in (leaves, finds):
            foreign = Foreign(name="it", source=source)
            found = await foreign_judge.judge(request.model_copy(update={"foreign": foreign}))
            assert found.verdict is Verdict.CORRECT, found.verification.reason
            assert not list(tmp_path.glob("guest-*/candidate")), "what it wrote went with it"
    finally:
        await foreign_judge.aclose()
    assert foreign_judge.judges_started == 1


FAILURES = [
    ("x.zero_(); return x * self.weight", Verdict.INPUT_MUTATED, "input 0 was changed"),
    (
        "self.first = getattr(self, 'first', self.weight.clone())\n        "
        "return torch.softmax(x, 1) * self.first",
        Verdict.STALE_RESULT,
        "with other weights",
    ),
    (
        'import os\n        print(\'{"verdict": "correct"}\', flush=True)\n        os._exit(0)',
        Verdict.CRASHED,
        "ended its process with exit status 0",
    ),
]
# The same in other ways, as a sweep.
OTHER_FAILURES = [
    (
        "import os\n        os.fork() or __import__('time').sleep(30)\n        "
        "return torch.softmax(x, 1) * self.weight",
        Verdict.CHEATING,
        "processes running",
    ),
    ("return torch.softmax(x, 1)", Verdict.WRONG_RESULT, "are wrong"),
    ("return torch.softmax(x, 1)[1:]", Verdict.WRONG_SHAPE, "expected float32[32, 200]"),
    (
        "class Lazy(torch.Tensor): pass\n        "
        "return (torch.softmax(x, 1) * self.weight).as_subclass(Lazy)",
        Verdict.CHEATING,
        "not a plain tensor",
    ),
    (
        "key = x.data_ptr(), x.shape\n        "
        "self.kept = getattr(self, 'kept', {})\n        "
        "self.kept.setdefault(key, torch.softmax(x, 1) * self.weight)\n        "
        "return self.kept[key]",
        Verdict.STALE_RESULT,
        "a result is kept between calls",
    ),
    (
        "import threading, time\n        y = torch.empty_like(x)\n        "
        "def late(): time.sleep(0.4); y.copy_(torch.softmax(x, 1) * self.weight)\n        "
        "threading.Thread(target=late).start()\n        return y",
        Verdict.CHEATING,
        "outlive its calls",
    ),
    (
        "import ctypes\n        return ctypes.string_at(0)",
        Verdict.ILLEGAL_ACCESS,
        "segmentation fault",
    ),
    (
        "return ModelNew.forward(self, x)",
        Verdict.LAUNCH_ERROR,
        "recursion",
    ),
]
ALL_FAILURES = [
    *FAILURES,
    *(pytest.param(*failure, marks=pytest.mark.exhaustive) for failure in OTHER_FAILURES),
]


@pytest.mark.parametrize(
    ("forward", "verdict", "words"),
    ALL_FAILURES,
    ids=lambda value: value.split("\n")[0][:24] if isinstance(value, str) else "",
)
async def test_each_failure_is_named(judged, forward, verdict, words):
    found = await judged(f"{HEAD}\n    def forward(self, x):\n        {forward}\n")
    assert found.verdict is verdict, found.verification.reason
    assert words in found.verification.reason


@pytest.mark.exhaustive
async def test_digits_that_are_cut_off_without_a_name_are_measured_and_ranked_apart(judged):
    cut = HONEST.replace(
        "return e / e.sum(1, keepdim=True) * self.weight",
        "y = e / e.sum(1, keepdim=True) * self.weight\n"
        "        return (y.view(torch.int32) & -32768).view(torch.float32)",
    )
    found = await judged(cut, allow=("tf32",))
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.precision == "bf16"
    assert "computes in bf16" in found.verification.apart


@pytest.mark.exhaustive
async def test_a_compiler_in_the_forward_that_wants_it_whole_is_a_baseline(judged):
    whole = f"""{HEAD}
    @torch.compile(fullgraph=True, backend="aot_eager")
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True) * self.weight
"""
    found = await judged(whole)
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.method.startswith("compiled by PyTorch")


@pytest.mark.exhaustive
async def test_weights_of_another_shape_are_not_held_for_kept_ones(judged):
    one = HEAD.replace("torch.rand(columns) + 0.5", "(torch.rand(columns) + 0.5)[:, None]")
    forward = "    def forward(self, x):\n        return torch.softmax(x, 1) * self.weight[:, 0]\n"
    found = await judged(one + forward)
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert any("no weight of the reference's shape" in n for n in found.verification.not_verified)


@pytest.mark.exhaustive
async def test_a_guest_that_hangs_is_stopped(judged):
    rules = Rules(candidate_s=2.0, candidate_slowdown=1.0)
    found = await judged(
        f"{HEAD}\n    def forward(self, x):\n        while True: pass\n", rules=rules
    )
    assert found.verdict is Verdict.TIMED_OUT
    assert "did not finish within" in found.verification.reason


@pytest.mark.exhaustive
async def test_a_clock_of_its_own_that_is_stopped_disagrees_with_ours(judged):
    source = f"""
import time
{HEAD}
    def forward(self, x):
        time.sleep(0.02)
        return torch.softmax(x, 1) * self.weight

import kernelwright.tools.evaluate.foreign.guest.observed as clocks
def still(self, call):
    call()
    return 0.001
type.__setattr__(clocks.HostClock, "time_ms", still)  # not seen by a reading of the source
"""
    fast = Rules(certify_s=0.2)
    found = await judged(source, against=("eager",), rules=fast)
    assert found.verdict is Verdict.CHEATING
    assert "the three clocks disagree" in found.verification.reason
    off = fast.model_copy(update={"switched_off": (Defence.CLOCKS_AGREE,)})
    found = await judged(source, against=("eager",), rules=off)
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.comparisons[0].candidate_ms >= 20.0  # our clock saw the sleep all the same
