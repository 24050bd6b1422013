from kernelwright.agents.llm.json_text import Block, blocks, without_thinking

KERNEL = '// tune: N in 1, 2\nextern "C" __global__ void f(float* x) { x[0] = 1; }'
PLAN = 'def forward(x):\n    launch("f", grid=1, block=1, args=(x,))\n    return x'
BOTH = (Block(language="cuda", text=KERNEL), Block(language="python", text=PLAN))


def test_kernel_and_plan_are_two_blocks() -> None:
    text = f"First the kernel.\n\n```cuda\n{KERNEL}\n```\n\nThen:\n```Python\n{PLAN}\n```\nDone."
    assert blocks(text) == BOTH


def test_a_block_that_was_not_closed_ends_at_the_next_or_with_the_text() -> None:
    assert blocks(f"```cuda\n{KERNEL}\n```python\n{PLAN}") == BOTH


def test_a_wrapper_around_blocks_is_no_block() -> None:
    inner = f"```cuda\n{KERNEL}\n```\n\n```python\n{PLAN}\n```"
    assert blocks(f"```markdown\n# Answer\n{inner}\n```\nThat is it.") == BOTH
    assert blocks(f"````markdown\n{inner}\n````") == BOTH
    assert blocks(f"```\n{inner}\n```\nThat is it.") == BOTH


def test_indented_tilde_and_trailing_fences_are_read() -> None:
    text = f"1. kernel: ```cuda\n{KERNEL}```\n\n~~~python title=plan\n{PLAN}\n~~~"
    assert blocks(text) == BOTH


def test_backticks_within_a_stronger_fence_belong_to_it() -> None:
    assert blocks("````text\n```\nnot code\n```\n````")[0].text == "```\nnot code\n```"


def test_drafts_in_the_thinking_are_not_blocks() -> None:
    text = f"<think>```cuda\ndraft\n```</think>```cuda\n{KERNEL}\n```\n```python\n{PLAN}\n```"
    assert blocks(text) == BOTH
    assert without_thinking("<think>a</think>b <THINKING>c</THINKING>d") == ("b d", "a\n\nc")
    assert without_thinking("a thought</think>the answer") == ("the answer", "a thought")


def test_no_fence_is_no_block() -> None:
    assert blocks("Use `x` and ``y``.\n\n    indented") == ()
    assert blocks("```cuda\n\n```") == ()
    assert blocks("") == ()
