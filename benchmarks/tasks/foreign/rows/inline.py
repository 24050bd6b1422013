import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor gated_norm(torch::Tensor x, torch::Tensor gate, torch::Tensor weight,
                         torch::Tensor bias, torch::Tensor scale, double eps) {
  auto in = x.contiguous();
  auto opened = gate.contiguous();
  auto y = torch::empty_like(in);
  const int64_t columns = in.size(-1);
  const int64_t rows = in.numel() / columns;
  const float *w = weight.data_ptr<float>(), *b = bias.data_ptr<float>();
  const float *s = scale.data_ptr<float>();
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float *row = in.data_ptr<float>() + r * columns;
    const float *g = opened.data_ptr<float>() + r * columns;
    float *out = y.data_ptr<float>() + r * columns;
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < columns; ++c) sum += row[c];
    const double mean = sum / columns;
    for (int64_t c = 0; c < columns; ++c) squares += (row[c] - mean) * (row[c] - mean);
    const double rate = 1.0 / std::sqrt(squares / columns + eps);
    for (int64_t c = 0; c < columns; ++c) {
      const float normed = float((row[c] - mean) * rate) * w[c] + b[c];
      out[c] = normed / (1.0f + std::exp(-g[c])) * s[c];
    }
  }
  return y;
}
"""

extension = load_inline(
    name="gated_norm_extension",
    cpp_sources=SOURCE,
    functions=["gated_norm"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, columns))

    def forward(self, x, gate):
        norm = self.norm
        return extension.gated_norm(x, gate, norm.weight, norm.bias, self.scale, norm.eps)
