"""Whether what people call a technique moves the playbook's own ideas."""

import pytest

from kernelwright.agents.assistant.parsing.steering import in_playbook_words, widened
from kernelwright.agents.shared.facts import Steering, speaks_of
from kernelwright.profiles.load import all_hardware
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.types import DType, Graph, InputSpec, Node, Ref, Scalar, Task, TensorSpec

SPEC = TensorSpec(shape=(4096, 1024), dtype=DType.FLOAT32)


@pytest.fixture(scope="module")
def texts() -> dict[str, list[tuple[str, ...]]]:
    """The words of every option that the playbook has for a softmax, by device."""
    nodes = (
        Node(name="x", op="input", out=(SPEC,)),
        Node(
            name="y",
            op="aten._softmax.default",
            args=(Ref(node="x"), Scalar(value=-1), Scalar(value=False)),
            out=(SPEC,),
        ),
    )
    task = Task(
        name="softmax", path="s.py", source="", source_sha256="0", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=SPEC),), outputs=(SPEC,),
        graph=Graph(nodes=nodes, inputs=("x",), outputs=("y",)),
        bytes_moved=2 * SPEC.size_bytes, flops=SPEC.numel,
    )  # fmt: skip
    devices = {"cpu": "cpu", "gpu": "l40s"}
    return {
        name: [option.texts for option in repertoire_for(task, all_hardware()[stem]).options()]
        for name, stem in devices.items()
    }


@pytest.mark.parametrize(
    ("device", "command"),
    [
        ("gpu", "vectorized loads"),
        ("cpu", "vectorized loads"),
        ("cpu", "simd"),
        ("gpu", "float4 loads"),
        ("gpu", "shared memory"),
        ("gpu", "smem"),
        ("gpu", "registers"),
        ("gpu", "keeping it in registers"),
        ("gpu", "warp shuffles"),
        ("gpu", "online softmax"),
        ("gpu", "single pass"),
        ("cpu", "recomputing"),
        ("cpu", "caching"),
        ("gpu", "more parallelism"),
        ("gpu", "streaming"),
    ],
)
def test_a_hint_reaches_the_ideas_that_it_means(
    texts: dict[str, list[tuple[str, ...]]], device: str, command: str
) -> None:
    words = in_playbook_words(command)
    assert any(speaks_of(word, option) for word in words for option in texts[device])


def test_a_ban_of_shared_memory_leaves_the_other_ideas(
    texts: dict[str, list[tuple[str, ...]]],
) -> None:
    bans = widened(Steering(bans=("shared memory",))).bans
    left = [text for text in texts["gpu"] if not any(speaks_of(ban, text) for ban in bans)]
    assert 0 < len(left) < len(texts["gpu"])
    assert not any("shared" in " ".join(text) for text in left)


def test_other_words_stay_as_they_are() -> None:
    assert in_playbook_words("half precision") == ("half precision",)
    assert in_playbook_words("idea 3") == ("idea 3",)
    assert widened(Steering(pins=("idea 3",), hints=("smem",))) == Steering(
        pins=("idea 3",), hints=("smem", "shared")
    )
