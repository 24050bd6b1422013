
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
