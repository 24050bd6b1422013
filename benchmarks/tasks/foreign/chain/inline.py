import tempfile
from pathlib import Path

from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor chain(torch::Tensor given) {
  auto x = given.contiguous();
  auto y = torch::empty_like(x);
  const float *in = x.data_ptr<float>();
  float *out = y.data_ptr<float>();
#pragma omp parallel for simd
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = in[i];
    out[i] = std::tanh(v) / (1.0f + std::exp(-v)) + v;
  }
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("chain", &chain); }
"""


def build():
    place = Path(tempfile.mkdtemp(), "chain_extension.cpp")
    place.write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fopenmp"]
    return load("chain_extension", [str(place)], extra_cflags=flags, extra_ldflags=["-fopenmp"])


class ModelNew(nn.Module):
    """Builds its extension when it is constructed."""

    def __init__(self):
        super().__init__()
        self._extension = build()

    def forward(self, x):
        return self._extension.chain(x)
