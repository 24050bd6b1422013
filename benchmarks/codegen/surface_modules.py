"""The loops whose settings are measured exhaustively: one small module each, sizes beside it.

They are chosen to differ in what decides their speed: how much stays on chip, how reads and writes
lie to each other, whether bytes or operations are the floor, how many blocks there are to spread.
Each is a file as a person would write it, so that tracing and lowering are a search's own. Sizes
are such that a call takes 20 to 500 microseconds on a current data-centre GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_FILE = """import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, {names}):
        {body}
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Module:
    """What stands in the file: the result, its inputs' shapes, what the constructor makes."""

    result: str
    inputs: Mapping[str, str]
    dtype: str = "float32"
    made: str = "pass"
    body: str = "pass"

    @property
    def text(self) -> str:
        """The file."""
        cast = f", dtype=torch.{self.dtype}" if self.dtype != "float32" else ""
        half = ".half()" if self.dtype == "float16" else ""
        made = self.made.replace(";", half + "\n        ") + (half if self.made != "pass" else "")
        return _FILE.format(
            made=made,
            names=", ".join(self.inputs),
            body=self.body,
            result=self.result,
            inputs=", ".join(f"torch.randn({shape}{cast})" for shape in self.inputs.values()),
        )


def _attention(heads: str, causal: bool) -> Module:
    return Module(
        f"F.scaled_dot_product_attention(q, k, v, is_causal={causal})",
        {"q": heads, "k": heads, "v": heads},
        dtype="float16",
    )


MODULES: Mapping[str, Module] = {
    "gated": Module("F.silu(x) * y + x", {"x": "4096, 11008", "y": "4096, 11008"}, "float16"),
    "row_sum_long": Module("x.sum(dim=1)", {"x": "64, 1048576"}),
    "middle_max": Module("x.amax(dim=1)", {"x": "64, 512, 768"}),
    "column_mean": Module("x.mean(dim=0)", {"x": "16384, 2048"}),
    "whole_sum": Module("(x * x).sum()", {"x": "32, 1048576"}),
    "arg_max": Module("x.argmax(dim=1)", {"x": "2048, 16384"}),
    "layer_norm": Module("F.layer_norm(x, (1024,), self.w, self.b)", {"x": "16384, 1024"},
                         made="self.w = nn.Parameter(torch.randn(1024));"
                              "self.b = nn.Parameter(torch.randn(1024))"),
    "rms_norm": Module("x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)",
                       {"x": "8192, 4096"}, "float16"),
    "group_norm": Module("F.group_norm(x, 8)", {"x": "32, 64, 64, 64"}),
    "instance_norm": Module("F.instance_norm(x)", {"x": "32, 32, 128, 128"}),
    "batch_norm": Module("F.batch_norm(x, None, None, training=True)", {"x": "64, 64, 64, 64"}),
    "layer_norm_long": Module("F.layer_norm(x, (65536,))", {"x": "512, 65536"}, "float16"),
    "softmax": Module("torch.softmax(x, dim=1)", {"x": "8192, 2048"}),
    "softmax_long": Module("torch.softmax(x, dim=1)", {"x": "512, 65536"}),
    "log_softmax_middle": Module("torch.log_softmax(x, dim=1)", {"x": "32, 128, 4096"}),
    "cumsum_long": Module("torch.cumsum(x * y, dim=1)", {"x": "128, 131072", "y": "128, 131072"}),
    "transpose_add": Module("(x + y.t()).contiguous()", {"x": "4096, 4096", "y": "4096, 4096"}),
    "permute_scale": Module("(x.permute(0, 2, 3, 1) * 2.0).contiguous()", {"x": "32, 96, 56, 56"}),
    "max_pool": Module("F.max_pool2d(x, 3, stride=2, padding=1)", {"x": "32, 64, 112, 112"}),
    "matmul_fp32": Module("x @ y", {"x": "1024, 1024", "y": "1024, 1024"}),
    "matmul_tall": Module("torch.relu(x @ y)", {"x": "8192, 512", "y": "512, 256"}),
    "matmul_fp16": Module("x @ y", {"x": "2048, 2048", "y": "2048, 2048"}, "float16"),
    "linear_gelu_fp16": Module("F.gelu(F.linear(x, self.w, self.b))", {"x": "4096, 1024"},
                               "float16",
                               made="self.w = nn.Parameter(torch.randn(4096, 1024) / 32);"
                                    "self.b = nn.Parameter(torch.randn(4096))"),
    "batched_fp16": Module("torch.bmm(x, y)", {"x": "64, 512, 256", "y": "64, 256, 512"},
                           "float16"),
    "matmul_deep": Module("x @ y", {"x": "256, 16384", "y": "16384, 256"}),
    "conv_3x3": Module("torch.relu(self.c(x))", {"x": "16, 64, 56, 56"},
                       made="self.c = nn.Conv2d(64, 64, 3, padding=1)"),
    "conv_fp16": Module("self.c(x)", {"x": "16, 128, 28, 28"}, "float16",
                        made="self.c = nn.Conv2d(128, 256, 3, padding=1)"),
    "conv_strided": Module("self.c(x)", {"x": "32, 64, 56, 56"},
                           made="self.c = nn.Conv2d(64, 128, 3, stride=2, padding=1)"),
    "depthwise": Module("self.c(x)", {"x": "32, 96, 56, 56"},
                        made="self.c = nn.Conv2d(96, 96, 3, padding=1, groups=96)"),
    "attention": _attention("4, 16, 1024, 64", causal=False),
    "attention_causal": _attention("2, 16, 2048, 128", causal=True),
}  # fmt: skip
