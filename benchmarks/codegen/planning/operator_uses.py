"""Uses of operators, one for each way in which a plan may meet one, each as a module's file.

`x` is a tensor of one of the group's shapes, lying in one of several ways; what is made of it
stands between other operators, so that something is fused with it. Left out is what depends on
values or draws random numbers, which no module may. Not covered: operators of a GPU alone, and
those of eight bits.
"""

import random
from collections.abc import Iterator

MATRICES = """
torch.addbmm(x, x[None] * x.new_ones(2, 1, 1), x.new_ones(2, x.shape[1], x.shape[1]))
torch.addmm(x, x, x.T @ x) | torch.addmv(x[:, 0], x, x[0]) | torch.addr(x, x[:, 0], x[0]) | x @ x.T
x.mv(x[0]) | torch.dot(x[0], x[0]) * x | torch.outer(x[0], x[0]) | torch.kron(x, x[:2, :2])
torch.tensordot(x, x, ([0], [0])) | torch.einsum("ij,kj->ik", x, x) | torch.einsum("ij->j", x)
F.bilinear(x, x, self.w[None, :x.shape[1], :x.shape[1]].expand(3, -1, -1).contiguous())
F.linear(x, self.w[:, :x.shape[1]]) | F.linear(x, self.w[:, :x.shape[1]], self.b)
torch.chain_matmul(x, x.T, x) | torch.linalg.multi_dot([x, x.T, x]) | torch.inner(x, x)
torch.vdot(x[0], x[0]) + x | torch.cartesian_prod(x[0], x[0]) | torch.vander(x[0].clamp(-1, 1), 3)
torch.trapezoid(x, dim=1) | torch.cumulative_trapezoid(x, dim=1)
F.embedding_bag(at.view(3, 2), x, mode="sum") | F.embedding_bag(at.view(3, 2), x, mode="mean")
F.embedding_bag(at.view(3, 2), x, mode="max") | F.embedding_bag(at, x, of, mode="sum")
x.diagonal_scatter(x.diagonal() * 2) | F.embedding(at.view(3, 2), x)
F.embedding(at.view(3, 2), x, padding_idx=0)
F.embedding(at.view(3, 2), x, max_norm=None, scale_grad_by_freq=True) | x.gather(1, x.argsort(1))
x.gather(0, (x > 0).long()[:1]) | x[(x[:, 0] > 0).long() % len(x)]
x[torch.arange(3) % len(x), :, None] | x[:, torch.tensor([0, 2, 1])]
x[torch.arange(3)[:, None] % len(x), torch.arange(4)[None]] | x[..., [0, -1]]
x.index_add(0, torch.arange(3) % len(x), r[:3])
x.index_add(1, torch.tensor([1, 1, 0]), x[:, :3], alpha=2)
x.index_copy(0, torch.tensor([0]), x[:1] * 2) | x.index_fill(1, torch.tensor([0, 2]), 0.5)
x.index_put((torch.arange(3) % len(x), torch.arange(3)), self.b[:3])
x.index_put((torch.arange(3) % len(x),), r[:3], accumulate=True)
x.index_reduce(0, torch.arange(4) % len(x), r[:4], "amax")
x.index_reduce(0, torch.arange(4) % len(x), r[:4], "prod")
x.index_select(1, torch.tensor([2, 0, 2]))
torch.isin(x.round(), torch.tensor([0.0, 1.0]).to(x.dtype)) * x | x.masked_fill(x > 0.5, 2.0)
x.masked_fill(x > 0.5, float("-inf")).softmax(0)
x.masked_scatter(x > 0, self.w[:33, :12].flatten()[:1].expand(400).contiguous())
x.put(torch.arange(5), self.b[:5])
x.put(torch.zeros(5, dtype=torch.long), self.b[:5], accumulate=True) | x.scatter(1, x.argsort(1), x)
x.scatter(1, x.argmax(1, keepdim=True), 3.0)
torch.zeros_like(x).scatter(0, x.argmax(0, keepdim=True), x.amax(0, keepdim=True))
x.scatter_add(0, z, x) | x.scatter_reduce(0, z, x, "mean")
x.scatter_reduce(0, z, x, "amax", include_self=False) | x.scatter_reduce(1, x.argsort(1), x, "prod")
x.scatter(1, x.argsort(1), x, reduce="multiply") | x.scatter(1, x.argsort(1), 2.0, reduce="add")
x.select_scatter(x[:, 0] * 2, 1, 0) | x.slice_scatter(x[:, :2] * 2, 1, 0, 2)
x.take(torch.arange(5)) | x.take_along_dim(x.argsort(1), 1) | torch.where(x > 0, x, -x)
torch.where(x > 0, x, 0.0) | torch.where(x > 0, 1, 0) * x | F.one_hot(x.argmax(1), x.shape[1]) * x
F.one_hot(x.argmax(1), 40).to(x.dtype) @ self.w.new_ones(40, 3)
torch.searchsorted(x.sort(1).values, x) * x
torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]).to(x.dtype)) * x | torch.isin(x, x[0]) * x
x[x.argmax(0)] | x.masked_fill(torch.ones_like(x, dtype=torch.bool).triu(1), 0.0)
x.clone().mul_(x) | x.clone().masked_fill_(x > 0, 0.1)
x.clone().index_add_(0, torch.tensor([0]), x[:1]) | x.clone().scatter_add_(1, x.argsort(1), x)
x.clone().index_put_((torch.tensor([0]), torch.tensor([1])), self.b[:1])
x.clone().clamp_(-0.5, 0.5) | x.clone().fill_(2.0) + x | x.clone().copy_(x[:1].expand_as(x))
x.clone().t_() | x.clone().transpose_(0, 1) | x.clone().unsqueeze_(0)
x.clone().fill_diagonal_(0.5) | x.clone().addcmul_(x, x, value=0.1) | x.clone().lerp_(x * 2, 0.3)
x.clone().index_fill_(0, torch.tensor([0]), 1.0)
x.clone().index_copy_(0, torch.tensor([0]), x[:1] + 1) | x.clone().tril_()
F.relu(x.clone(), inplace=True) | F.elu_(x.clone())
x.clone().put_(torch.tensor([0, 1]), self.b[:2])
x.clone().scatter_(1, x.argmax(1, keepdim=True), 9.0) | x.clone().cumsum_(0)
x.clone().resize_(len(x), 2) | x.clone().renorm_(2, 0, 1.0) | torch.nan_to_num_(x.clone())
self.assigned(x) | self.rows(x) | self.masked(x)
self.viewed(x) | x.argsort(0, descending=True) * x | x.kthvalue(2, 1).values
x.kthvalue(2, 1).indices * 0.1 | x.median(1).values | x.median() * x | x.mode(1).values
x.sort(0).values | x.sort(1, descending=True).indices * x | x.topk(2, 1).values
x.topk(2, 1, largest=False).indices * 0.1 | x.topk(2, 1, sorted=False).values.sum(1)
x.nanmedian(1).values | x.quantile(0.3, 1) | x.nanquantile(0.3, 0)
torch.quantile(x, torch.tensor([0.2, 0.8]).to(x.dtype), 1)
torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]).to(x.dtype), x.contiguous(), right=True) * x
torch.searchsorted(x.sort(1).values, x[:, :2].contiguous(), out_int32=True).float()
torch.cat([x, x * 2], 1) | torch.cat([x, x[:1]], 0) | torch.cat([x[:, :1], x.float()], 1)
x.split(2, 1)[1] | x.split([1, x.shape[1] - 1], 1)[1] | F.pad(x, (1, 2))
F.pad(x, (1, -1), value=2.0) | torch.diag_embed(x) | torch.diag_embed(x, 1) | x.diagonal()
torch.diag(x[0]) | x.flip([0, 1]) | x.narrow(1, 1, 2) | x.repeat_interleave(2, 0)
x.repeat_interleave(3) | x.roll(1, 0) | x.roll((1, 2), (0, 1)) | x.rot90() | torch.stack([x, x + 1])
torch.stack([x, x], -1) | x.tile(2) | x.tril() | x.triu(1) | x.unbind(1)[0] | x.unfold(1, 2, 1)
x.T.reshape(-1) | x.T.contiguous().view(-1) | torch.atleast_3d(x) | torch.dstack([x, x])
torch.block_diag(x, x[:2, :2]) | torch.broadcast_to(x[:1], x.shape)
torch.meshgrid(x[0], x[0], indexing="ij")[0] | torch.tensor_split(x, 2, 1)[0]
torch.hsplit(x[:, :4], 2)[1] | torch.cdist(x, x) | torch.tril_indices(3, 3)[0] + x[0, 0]
x.unflatten(1, (1, -1)) | x.as_strided((2, 2), (1, 2)) | x.bfloat16() | x.half() | x.double()
x.to(torch.int32) * 2 | x.bool() | x.to(torch.uint8) | x.abs().to(torch.int8) | x.long() % 3
x.index_select(0, torch.arange(len(x) - 1, -1, -1)) | torch.complex(x, x * 2).abs()
torch.polar(x.abs(), x).real | torch.view_as_real(torch.complex(x, x))
torch.view_as_complex(torch.stack([x, x * 2], -1)).imag | torch.complex(x, x).angle()
(torch.complex(x, x) * torch.complex(x, -x)).real | torch.complex(x, x).exp().real
torch.complex(x, x).sum(1).abs() | (torch.complex(x, x) @ torch.complex(x, x).mH).real
torch.view_as_real(torch.complex(x, x).mean(0)) | (x + 1j * x).abs()
torch.complex(x, x).pow(2).imag | torch.complex(x, x).cumsum(0).real
torch.sgn(torch.complex(x, x)).real | F.prelu(x, self.b[:1]) | x.abs() | x.clamp(-0.9, 0.9).acos()
(x.abs() + 1.1).acosh() | torch.addcdiv(x, x, x.abs() + 1, value=0.5)
torch.addcmul(x, x, x, value=0.5) | x.angle() | x.clamp(-0.9, 0.9).asin() | x.asinh() | x.atan()
x.atan2(x + 1) | x.clamp(-0.9, 0.9).atanh() | x.int() & 3 | x.int() << 1 | ~x.int()
torch.bitwise_or(x.int(), 5) | x.int() >> 1 | x.int() ^ 3 | x.ceil() | F.celu(x, 0.7)
x.clamp(-0.5, 0.5) | x.clamp(min=x * 0.5) | x.clamp_max(0.3) | x.clamp_min(0.3) | x.clamp(min=-0.1)
x.copysign(x.flip(0)) | x.cos() | x.cosh() | (x.abs() + 0.5).digamma() | x / (x.abs() + 1)
torch.div(x, 0.7, rounding_mode="floor") | torch.div(x, 0.7, rounding_mode="trunc") | F.elu(x, 0.5)
x == x.round() | x.erf() | x.erfc() | x.clamp(-0.9, 0.9).erfinv() | x.exp() | x.exp2() | x.expm1()
x.floor() | x // 0.7 | x.int() // 3 | torch.fmax(x, -x) | torch.fmin(x, -x) | x.fmod(0.7)
x.fmod(x.abs() + 0.3) | x.frac() | x >= 0 | F.gelu(x) | F.gelu(x, approximate="tanh")
F.glu(torch.cat([x, x], 1)) | x > 0.5 | F.hardshrink(x) | F.hardsigmoid(x) | F.hardswish(x)
F.hardtanh(x) | x.hypot(x + 1) | x.isfinite() | x.isinf() | x.isnan() | x <= 0.2
F.leaky_relu(x, 0.1) | x.lerp(x * 2, 0.3) | x.lerp(x * 2, x.sigmoid()) | (x.abs() + 0.5).lgamma()
(x.abs() + 0.1).log() | (x.abs() + 0.1).log10() | x.abs().log1p() | (x.abs() + 0.1).log2()
F.logsigmoid(x) | torch.logaddexp(x, -x) | torch.logaddexp2(x, -x) | torch.logical_and(x, x > 0)
torch.logical_not(x > 0) | torch.logical_or(x > 1, x < 0) | torch.logical_xor(x > 0, x < 1)
x.sigmoid().logit() | x.sigmoid().logit(0.1) | torch.maximum(x, -x) | torch.minimum(x, -x)
F.mish(x) | torch.nan_to_num(x / x.round()) | torch.nan_to_num(x / x.round(), 1.0, 2.0, -2.0)
x != x.round() | x ** 2 | x.abs() ** 0.5 | x ** 3 | 2 ** x | (x.abs() + 0.1) ** x | x.int() ** 2
x.pow(-1.0) | (x.abs() + 0.3).reciprocal() | F.relu(x) | F.relu6(x) | x % 0.7
x.remainder(x.abs() + 0.3) | x.int() % 3 | torch.remainder(2.0, x.abs() + 0.5) | x.round()
x.round(decimals=2) | F.rrelu(x, 0.1, 0.3, training=False) | (x.abs() + 0.1).rsqrt() | 1 - x
torch.rsub(x, 2, alpha=3) | F.selu(x) | x.sgn() | x.sigmoid() | x.sign() | F.silu(x) | x.sin()
x.sinh() | F.softplus(x, 2.0, 3.0) | F.softshrink(x, 0.3) | x.abs().sqrt() | x.square()
x.clamp(-1, 1).tan() | x.tanh() | F.threshold(x, 0.1, 5.0) | x.trunc()
torch.xlogy(x, x.abs() + 0.1) | F.softsign(x) | F.tanhshrink(x) | torch.bitwise_and(x > 0, x < 1)
x.float_power(2.0) | x.isclose(x.round()) | x.ge(x.T.reshape(x.shape)) | torch.deg2rad(x)
torch.rad2deg(x) | torch.frexp(x)[0] | torch.frexp(x)[1] * 0.5 | torch.gcd(x.long(), x.long() + 3)
torch.lcm(x.long(), x.long() + 2) | torch.heaviside(x, x.new_tensor(0.5)) | torch.i0(x)
torch.special.gammainc(x.abs() + 1, x.abs()) | torch.special.gammaincc(x.abs() + 1, x.abs())
torch.isneginf(x) | torch.isposinf(x) | torch.ldexp(x, x.int()) | torch.mvlgamma(x.abs() + 2, 2)
torch.nextafter(x, x + 1) | torch.polygamma(1, x.abs() + 1) | torch.polygamma(2, x.abs() + 1)
torch.signbit(x) | torch.sinc(x) | torch.special.airy_ai(x) | torch.special.bessel_j0(x)
torch.special.bessel_j1(x) | torch.special.bessel_y0(x.abs() + 0.2)
torch.special.bessel_y1(x.abs() + 0.2) | torch.special.chebyshev_polynomial_t(x, 3)
torch.special.chebyshev_polynomial_u(x, 3) | torch.special.chebyshev_polynomial_v(x, 3)
torch.special.chebyshev_polynomial_w(x, 3) | torch.special.entr(x.abs()) | torch.special.erfcx(x)
torch.special.hermite_polynomial_h(x, 3) | torch.special.hermite_polynomial_he(x, 3)
torch.special.i0e(x) | torch.special.i1(x) | torch.special.i1e(x)
torch.special.laguerre_polynomial_l(x, 3) | torch.special.legendre_polynomial_p(x, 3)
torch.special.log_ndtr(x) | torch.special.modified_bessel_i0(x)
torch.special.modified_bessel_i1(x) | torch.special.modified_bessel_k0(x.abs() + 0.2)
torch.special.modified_bessel_k1(x.abs() + 0.2) | torch.special.ndtri(x.sigmoid())
torch.special.ndtr(x) | torch.special.scaled_modified_bessel_k0(x.abs() + 0.2)
torch.special.scaled_modified_bessel_k1(x.abs() + 0.2) | torch.special.spherical_bessel_j0(x)
torch.special.xlog1py(x, x.abs()) | torch.special.zeta(x.abs() + 2, x.abs() + 1)
torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127) | torch.cdist(x, x + 1)
torch.cdist(x, x * 2, p=1.0) | torch.pdist(x) | F.pdist(x) | (x > 0).all(1) | (x > 3).any(0)
x.amax(1) | x.amin((0, 1)) | torch.stack(x.aminmax(dim=1)) | (x > 0).any() | x.argmax(0) * 2
x.argmin(1, keepdim=True) | torch.count_nonzero(x.round(), 1) * 0.5 | torch.count_nonzero(x.round())
x.cummax(1).values | x.cummax(1).indices * x | x.cummin(0).values | x.cumprod(1) | x.cumsum(0)
(x > 0).cumsum(1) | torch.dist(x, x * 2, 3) | torch.histc(x.float(), 5, -2.0, 2.0)
torch.linalg.vector_norm(x, 3, 1) | torch.linalg.vector_norm(x, float("inf"))
torch.linalg.vector_norm(x, 0, 1) | torch.linalg.matrix_norm(x) | torch.linalg.matrix_norm(x, 1)
torch.linalg.norm(x, dim=1) | x.logcumsumexp(1) | x.logsumexp((0, 1))
x.logsumexp(1, keepdim=True) - x | x.max(1).values | x.max(0).indices | x.mean(0, keepdim=True) - x
x.min(1)[0] | x.nanmedian() | x.nansum(1) | x.nanmean(0) | x.norm(dim=1) | x.norm(p=1, dim=0)
x.prod() | x.prod(1) | torch.renorm(x, 2, 0, 1.0)
torch.segment_reduce(x, "sum", lengths=torch.tensor([1, len(x) - 1]))
torch.segment_reduce(x, "max", lengths=torch.tensor([1, len(x) - 1]))
torch.segment_reduce(x, "mean", lengths=torch.tensor([1, len(x) - 1])) | x.std(0, correction=0)
torch.stack(torch.std_mean(x, 1)) | x.sum(1, dtype=torch.float64) | x.sum((0, 1)) | x.trace()
x.var(correction=0) | torch.stack(torch.var_mean(x, 0)) | x.diff(dim=1)
x.diff(n=2, dim=0, prepend=x[:1] * 0) | x.int().sum(1) | x.int().prod(1) | (x > 0).sum()
(x > 0).float().mean() | x.int().max(1).values | x.xlogy(x.abs() + 1).sum(0) | F.softmin(x, 1)
F.rms_norm(x, x.shape[1:]) | F.rms_norm(x, x.shape[1:], self.b[:x.shape[1]]) | x.log_softmax(1)
x.softmax(0) | x.softmax(1, dtype=torch.float64)
F.batch_norm(x, self.rm[:x.shape[1]], self.rv[:x.shape[1]])
F.batch_norm(x, None, None, training=True) | F.layer_norm(x, x.shape[1:])
F.layer_norm(x, x.shape[1:], self.b[:x.shape[1]], self.b[:x.shape[1]]) | F.normalize(x, dim=1)
F.normalize(x, p=1, dim=0) | torch._weight_norm(x, x.norm(dim=1, keepdim=True) * 2, 0) | self.wn(v)
self.sn(v) | torch._safe_softmax(x, 1) | F.group_norm(x, 1) | F.cosine_similarity(x, x + 1, 1)
F.cosine_similarity(x[:, None], x[None], -1) | F.pairwise_distance(x, x + 1)
F.binary_cross_entropy(x.sigmoid(), x.tanh().abs())
F.binary_cross_entropy(x.sigmoid(), (x > 0).to(x.dtype), reduction="none")
F.binary_cross_entropy_with_logits(x, x.sigmoid())
F.cosine_embedding_loss(x, x + 1, x[:, 0].sign()) | F.cross_entropy(x, x.argmin(1))
F.cross_entropy(x, x.argmin(1), label_smoothing=0.1)
F.cross_entropy(x, x.argmin(1), weight=self.b[:x.shape[1]].abs(), reduction="none")
F.cross_entropy(x, x.softmax(1)) | F.cross_entropy(x, x.argmin(1), ignore_index=0)
F.hinge_embedding_loss(x, x.sign()) | F.huber_loss(x, x.round())
F.huber_loss(x, x.round(), delta=0.2, reduction="none") | F.kl_div(x.log_softmax(1), x.softmax(1))
F.kl_div(x.log_softmax(1), x.log_softmax(1), log_target=True, reduction="batchmean")
F.l1_loss(x, x.round()) | F.l1_loss(x, x.round(), reduction="none")
F.margin_ranking_loss(x, x + 1, x.sign()) | F.mse_loss(x, x.round())
F.mse_loss(x, x.round(), reduction="sum") | F.multi_margin_loss(x, x.argmin(1))
F.multi_margin_loss(x, x.argmin(1), p=2, reduction="none")
F.multilabel_margin_loss(x, x.argsort(1)) | F.multilabel_soft_margin_loss(x, (x > 0).to(x.dtype))
F.nll_loss(x.log_softmax(1), x.argmin(1)) | F.smooth_l1_loss(x, x.round(), beta=0.5)
F.soft_margin_loss(x, x.sign()) | F.triplet_margin_loss(x, x + 1, x - 1)
F.triplet_margin_with_distance_loss(x, x + 1, x - 1) | torch.arange(x.shape[1]) * x
torch.arange(0, 1, 0.1)[:5].sum() * x | torch.eye(x.shape[1]) @ x.float().T
torch.full((2,), 0.5)[0] * x | torch.full_like(x, 2) * x | torch.linspace(0, 1, x.shape[1]) * x
x.new_full((2, 1, 1), 3.0) * x | x.new_ones(x.shape) + x | x.new_zeros(3, 1, 1) + x
torch.ones(x.shape[1]) * x | torch.ones_like(x) + x | torch.scalar_tensor(2.0) * x
torch.zeros(2, 1, 1) + x | torch.zeros_like(x) + x | torch.randn(x.shape) + x
torch.rand_like(x) * x | torch.randint(0, 5, (3, 1, 1)) * x | torch.randperm(x.shape[1]) * x
torch.randn_like(x) * 0.1 + x | torch.normal(0.0, 1.0, (x.shape[1],)) * x
F.dropout(x, 0.3, training=False) | torch.logspace(0, 1, x.shape[1]) * x
torch.kaiser_window(x.shape[1]) * x | torch.empty(x.shape).copy_(x)
torch.tensor([1.0, 2.0])[:, None, None] * x | torch.triu_indices(3, 3).sum() * x
torch.randint_like(x, 5) * x | F.embedding_bag(at, x, of, mode="sum", per_sample_weights=self.b[:6])
torch.fake_quantize_per_tensor_affine(x, b[:1], torch.zeros(1, dtype=torch.int32), -128, 127)
F.binary_cross_entropy_with_logits(x, x.sigmoid(), pos_weight=b[: x.shape[1]], reduction="sum")
torch.nonzero_static(x > 0, size=4) | torch.special.shifted_chebyshev_polynomial_t(x.sigmoid(), 3)
F.embedding(at, x * 2, max_norm=1.0) | F.one_hot(at, 40) | torch.vmap(lambda v: v.softmax(0) * v)(x)
x.T.as_strided((2, 2), (1, 2)) | torch.as_strided_scatter(x * 2, x[:2, :2].T, (2, 2), (1, 3))
"""
BATCHES = """
torch.baddbmm(x, x, x.mT @ x) | torch.bmm(x, x.mT) | torch.matmul(x, x.mT)
torch.einsum("bij,bkj->bik", x, x) | torch.einsum("bij,bij->b", x, x)
torch.einsum("bij,bkl->bikjl", x, x).flatten(1, 2) | torch.einsum("...ij->...ji", x)
self.lstm(v)[0] | self.gru(v)[0] | self.rnn(v)[0] | self.rnn_relu(v)[0] | self.lstm_cell(v[:, 0])[0]
self.gru_cell(v[:, 0]) | self.rnn_cell(v[:, 0]) | self.bilstm(v)[0]
F.scaled_dot_product_attention(x, x, x) | F.scaled_dot_product_attention(x, x, x, is_causal=True)
F.scaled_dot_product_attention(x, x, x, attn_mask=x @ x.mT)
F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], scale=0.3)
F.scaled_dot_product_attention(x, x[:, :1], x[:, :1]) | self.mha(w, w, w)[0] | self.encoder(w)
F.scaled_dot_product_attention(x, x, x, attn_mask=(x @ x.mT > 0).tril())
F.scaled_dot_product_attention(h.repeat(1, 2, 1, 1), h, h, enable_gqa=True)
self.mha(w, w, w, need_weights=False)[0] | torch.conv_tbc(x, self.k1[:, : x.shape[2]], self.b[:3])
"""
SQUARES = """
torch.linalg.det(x) | torch.det(x + 0.1) | torch.linalg.slogdet(x)[1] | torch.logdet(x @ x.mT + e)
torch.linalg.eigvalsh(x + x.mT) | torch.linalg.eigh(x + x.mT)[0] | torch.linalg.eigvals(x).abs()
torch.linalg.eig(x)[0].abs() | torch.linalg.solve(x + 4 * e, x) | torch.linalg.svdvals(x)
torch.linalg.svd(x)[1] | torch.cholesky(x @ x.mT + e) | torch.linalg.cholesky(x @ x.mT + e)
torch.cholesky_inverse(torch.linalg.cholesky(x @ x.mT + e))
torch.cholesky_solve(x, torch.linalg.cholesky(x @ x.mT + e)) | torch.geqrf(x)[0]
torch.linalg.inv(x + 4 * e) | torch.linalg.householder_product(x, x[..., 0])
torch.linalg.inv_ex(x + 4 * e)[0] | torch.linalg.ldl_factor(x + x.mT)[0]
torch.linalg.ldl_solve(*torch.linalg.ldl_factor(x + x.mT + 4 * e), x) | torch.linalg.lu(x)[2]
torch.linalg.lu_factor(x)[0] | torch.linalg.lu_solve(*torch.linalg.lu_factor(x + 4 * e), x)
torch.linalg.matrix_exp(x * 0.3) | torch.linalg.pinv(x + 4 * e) | torch.linalg.qr(x)[1].abs()
torch.linalg.solve_triangular(x.triu() + 4 * e, x, upper=True)
torch.lu_unpack(*torch.linalg.lu_factor(x))[2] | torch.ormqr(x, x[..., 0], x)
torch.triangular_solve(x, x.triu() + 4 * e)[0] | torch.linalg.matrix_power(x, 3)
torch.linalg.matrix_rank(x) | torch.linalg.norm(x, "nuc", dim=(1, 2))
torch.linalg.norm(x, 2, dim=(1, 2)) | torch.linalg.vecdot(x, x) | torch.fft.fft(x).abs()
torch.fft.ifft(x).real | torch.fft.rfft(x).abs() | torch.fft.irfft(torch.complex(x, x))
torch.fft.fft2(x).real | torch.fft.rfft2(x).imag | torch.fft.irfft2(torch.complex(x, x), s=(4, 4))
torch.fft.fftn(x).abs() | torch.fft.hfft(torch.complex(x, x)) | torch.fft.ihfft(x).real
torch.fft.fftshift(x) | torch.fft.ifftshift(x, 1)
torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x), n=x.shape[-1])
torch.fft.fftfreq(x.shape[-1]) * x | torch.fft.rfft(x, n=12, norm="ortho").abs()
"""
TRIPLES = """
torch.cross(x, x.flip(1), 1) | torch.linalg.cross(x, x + 1) | torch.linalg.vander(x, N=3)
"""
IMAGES = """
F.conv2d(x, self.k2) | F.conv2d(x, self.k2, padding=1, stride=2)
F.conv2d(x, self.k2, dilation=2, padding=2) | F.conv2d(x, self.k2[:, :2], groups=2, padding="same")
F.conv_transpose2d(x, self.k2)
F.conv_transpose2d(x, self.k2, stride=2, padding=1, output_padding=1)
F.conv_transpose2d(x, self.k2[:, :2], groups=2, dilation=2)
F.conv_transpose2d(x, self.k2, self.b[:4]) | F.conv2d(x, self.k2[:, :1], groups=4, padding=1)
F.adaptive_avg_pool2d(x, (3, 2)) | F.adaptive_avg_pool2d(x, 1) | F.adaptive_avg_pool2d(x, (None, 4))
F.adaptive_max_pool2d(x, (3, 2)) | F.adaptive_max_pool2d(x, (3, 2), return_indices=True)[1] * 0.1
F.avg_pool2d(x, 3, 2, 1) | F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
F.avg_pool2d(x, 2, ceil_mode=True) | F.avg_pool2d(x, 2, divisor_override=3)
F.max_pool2d(x, 3, 2, 1) | F.max_pool2d(x, 2, ceil_mode=True)
F.max_pool2d(x, 2, return_indices=True)[1] * 0.1 | F.lp_pool2d(x.abs() + 0.1, 2, 2)
F.adaptive_max_pool2d(x, 1) | F.pad(x, (1, 2, 2, 1), mode="reflect")
F.pad(x, (1, 2, 2, 1), mode="replicate") | F.pad(x, (1, 2, 2, 1), mode="circular")
F.pad(x, (1, 2, 2, 1), value=0.5) | F.pad(x, (-1, 1, 0, -1)) | F.pixel_shuffle(x, 2)
F.pixel_unshuffle(x[..., :4, :4], 2) | F.channel_shuffle(x, 2)
F.interpolate(x, size=(5, 12), mode="bilinear")
F.interpolate(x, size=(5, 12), mode="bilinear", align_corners=True)
F.interpolate(x, size=(5, 12), mode="bicubic")
F.interpolate(x, size=(5, 12), mode="bicubic", align_corners=True)
F.interpolate(x, size=(5, 12), mode="nearest")
F.interpolate(x, size=(5, 12), mode="nearest-exact") | F.interpolate(x, size=(5, 12), mode="area")
F.interpolate(x, scale_factor=1.7, mode="bilinear")
F.interpolate(x, scale_factor=0.6, mode="nearest")
F.interpolate(x, scale_factor=2, mode="bicubic", recompute_scale_factor=True)
F.interpolate(x, size=(5, 12), mode="bilinear", antialias=True)
F.interpolate(x, size=(5, 12), mode="bicubic", antialias=True)
F.grid_sample(x, torch.tanh(x[:, :2].permute(0, 2, 3, 1)), align_corners=True) | F.unfold(x, 3)
F.unfold(x, (2, 3), dilation=2, padding=1, stride=2) | F.fold(F.unfold(x, 3), x.shape[2:], 3)
F.fold(F.unfold(x, 2, stride=2), (x.shape[2] // 2 * 2, x.shape[3] // 2 * 2), 2, stride=2)
F.group_norm(x, 2) | F.group_norm(x, 2, self.b[:4], self.b[4:8]) | F.instance_norm(x)
F.batch_norm(x, self.rm[:4], self.rv[:4], self.b[:4], self.b[:4])
F.batch_norm(x, None, None, training=True) | F.local_response_norm(x, 3)
F.layer_norm(x, x.shape[2:]) | F.rms_norm(x, x.shape[1:]) | F.cross_entropy(x, x.argmax(1))
F.nll_loss(x.log_softmax(1), x.argmax(1), reduction="none")
F.nll_loss(x.log_softmax(1), x.argmax(1), weight=self.b[:4].abs(), ignore_index=1)
F.cross_entropy(x, x.softmax(1), label_smoothing=0.1) | F.dropout2d(x, 0.0)
F.alpha_dropout(x, 0.5, training=False) | self.bn(x) | self.norm_none(x)
F.fractional_max_pool2d(x, 2, output_size=3, _random_samples=x.new_full((len(x), 4, 2), 0.5))
F.grid_sample(x, g, mode="nearest", padding_mode="border", align_corners=False)
F.grid_sample(x, g, mode="bicubic", padding_mode="reflection", align_corners=False)
F.affine_grid(x[:, :2, :3, 0], [len(x), 1, 4, 5], align_corners=False)
"""
LINES = """
F.conv1d(x, self.k1) | F.conv1d(x, self.k1, padding=2, dilation=2, stride=2)
F.conv_transpose1d(x, self.k1)
F.conv_transpose1d(x, self.k1, self.b[:4], stride=3, output_padding=1) | F.conv1d(x[0], self.k1)
F.adaptive_avg_pool1d(x, 3) | F.avg_pool1d(x, 3, 2, 1) | F.max_pool1d(x, 3, 2, 1)
F.adaptive_max_pool1d(x, 3) | F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2)
F.lp_pool1d(x.abs() + 0.1, 2, 2) | F.max_pool1d(x, 2, return_indices=True)[1] * 0.1
F.pad(x, (1, 2), mode="reflect") | F.pad(x, (1, 2), mode="replicate")
F.pad(x, (2, 1), mode="circular") | F.interpolate(x, size=5, mode="linear")
F.interpolate(x, size=17, mode="linear", align_corners=True)
F.interpolate(x, size=17, mode="nearest") | F.interpolate(x, size=17, mode="nearest-exact")
F.interpolate(x, size=5, mode="area") | F.instance_norm(x) | F.group_norm(x, 4) | x.unfold(2, 3, 2)
F.cross_entropy(x, x.argmax(1)) | self.bn1(x)
"""
VOLUMES = """
F.conv3d(x, self.k3) | F.conv3d(x, self.k3, padding=1, stride=2) | F.conv_transpose3d(x, self.k3)
F.conv_transpose3d(x, self.k3, stride=2, padding=1) | F.adaptive_avg_pool3d(x, (3, 2, 2))
F.adaptive_avg_pool3d(x, 1) | F.adaptive_max_pool3d(x, (3, 2, 2)) | F.avg_pool3d(x, 3, 2, 1)
F.max_pool3d(x, 3, 2, 1) | F.max_pool3d(x, 2, return_indices=True)[1] * 0.1
F.pad(x, (1, 2, 2, 1, 1, 1), mode="reflect") | F.pad(x, (1, 2, 2, 1, 1, 1), mode="replicate")
F.interpolate(x, size=(3, 5, 8), mode="trilinear")
F.interpolate(x, size=(3, 5, 8), mode="trilinear", align_corners=True)
F.interpolate(x, size=(3, 5, 8), mode="nearest")
F.interpolate(x, size=(3, 5, 8), mode="nearest-exact")
F.interpolate(x, scale_factor=2, mode="area")
F.grid_sample(x, torch.tanh(x[:, :3].permute(0, 2, 3, 4, 1)), align_corners=False)
F.grid_sample(x, torch.tanh(x[:, :3].permute(0, 2, 3, 4, 1)), mode="nearest", align_corners=True)
F.instance_norm(x) | F.group_norm(x, 2)
F.fractional_max_pool3d(x, 2, output_size=2, _random_samples=x.new_full((len(x), 4, 3), 0.5))
"""
GROUPS = (
    (MATRICES, ("7, 5", "6, 8", "1, 16", "33, 12")),
    (BATCHES, ("3, 6, 8", "2, 5, 1", "1, 7, 9")),
    (SQUARES, ("3, 5, 5", "1, 1, 1", "2, 8, 8")),
    (TRIPLES, ("5, 3", "2, 3", "1, 3")),
    (IMAGES, ("2, 4, 9, 7", "1, 4, 8, 8", "3, 4, 6, 5")),
    (LINES, ("2, 4, 11", "1, 4, 8")),
    (VOLUMES, ("1, 4, 5, 6, 7", "2, 4, 4, 4, 4")),
)
BEFORE = """
x | torch.tanh(x) * 2 | x + self.b[: x.shape[-1]] | (x - x.mean()).mT.contiguous().mT
"""
AFTER = """
(y, x * 2) | torch.sigmoid(y.float()) * 2 | y * 1.5 + 1 | y.sum(-1) * 0.5 | y + y.float().mean()
torch.cat([y.reshape(-1), x.reshape(-1)]) | y.float().flatten().unsqueeze(0).expand(3, -1) * 0.5
y.float().flatten()[None] @ y.float().flatten()[:, None] * 0.1 | y.float().flatten().softmax(0)
"""
DTYPES = ("float32",) * 7 + ("bfloat16", "bfloat16", "float16")
LAYERS = {
    "lstm": "nn.LSTM(9, 8, batch_first=True)",
    "gru": "nn.GRU(9, 8, batch_first=True)",
    "rnn": "nn.RNN(9, 8)",
    "rnn_relu": "nn.RNN(9, 8, nonlinearity='relu')",
    "bilstm": "nn.LSTM(9, 8, num_layers=2, bidirectional=True, batch_first=True)",
    "lstm_cell": "nn.LSTMCell(9, 8)",
    "gru_cell": "nn.GRUCell(9, 8)",
    "rnn_cell": "nn.RNNCell(9, 8)",
    "mha": "nn.MultiheadAttention(8, 2, batch_first=True)",
    "encoder": "nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)",
    "wn": "torch.nn.utils.parametrizations.weight_norm(nn.Linear(9, 8))",
    "sn": "torch.nn.utils.parametrizations.spectral_norm(nn.Linear(9, 8))",
    "bn": "nn.BatchNorm2d(4)",
    "bn1": "nn.BatchNorm1d(4)",
    "norm_none": "nn.InstanceNorm2d(4, affine=True, track_running_stats=True)",
}
# What several uses read; a module leaves out what its own does not.
SHORT = {
    MATRICES: (
        "at, of, b = torch.arange(6) % len(x), torch.tensor([0, 2, 5]), self.b.abs() + 0.1",
        "v, r, z = F.pad(x, (0, 9))[:, :9], self.w[:, : x.shape[1]], torch.zeros_like(x).long()",
    ),
    BATCHES: (
        "w, v = F.pad(x, (0, 8))[..., :8], F.pad(x, (0, 9))[..., :9]",
        "h = x[:, None].expand(-1, 2, -1, -1)",
    ),
    SQUARES: ("e = torch.eye(x.shape[-1]).to(x)",),
    IMAGES: ("g = torch.tanh(x[:, :2].permute(0, 2, 3, 1)) * 1.5",),
}
FILE = """import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(64, 64) * 0.3)
        self.b = nn.Parameter(torch.randn(64))
        self.k1 = nn.Parameter(torch.randn(4, 4, 3) * 0.3)
        self.k2 = nn.Parameter(torch.randn(4, 4, 3, 3) * 0.3)
        self.k3 = nn.Parameter(torch.randn(4, 4, 3, 3, 3) * 0.3)
        self.register_buffer("rm", self.b.detach() * 0.1)
        self.register_buffer("rv", self.b.detach().abs() + 0.5)
{layers}
        self.to(torch.{dtype})

    def assigned(self, x):
        y = torch.zeros_like(x)
        y[:, 0] = x[:, 1]
        return y

    def rows(self, x):
        y = x.clone()
        y[0] += x[-1]
        return y

    def masked(self, x):
        y = x * 1
        y[x > 0.3] = 0.0
        return y

    def viewed(self, x):
        y = x * 1
        v = y.view(-1)
        v[1:].add_(1.0)
        return y + v.sum()

    def forward(self, x):
{body}


def get_inputs():
    return [{inputs}]
"""


def parts(text: str) -> list[str]:
    """The expressions of a table."""
    found = (part.strip() for line in text.splitlines() for part in line.split(" | "))
    return [part for part in found if part]


def operator_modules(source: random.Random) -> Iterator[str]:
    """The file of every use, once, in an order and with surroundings that are drawn."""
    uses = [(use, table, shapes) for table, shapes in GROUPS for use in parts(table)]
    source.shuffle(uses)
    for use, table, shapes in uses:
        dtype = source.choice(DTYPES)
        lines = [
            f"x = {source.choice(parts(BEFORE))}",
            *SHORT.get(table, ()),
            f"y = {use}",
            f"return {source.choice(parts(AFTER))}",
        ]
        made = [f"self.{name} = {layer}" for name, layer in LAYERS.items() if f".{name}(" in use]
        yield FILE.format(
            layers="\n".join(f"        {line}" for line in made),
            dtype=dtype,
            body="\n".join(f"        {line}" for line in lines),
            inputs=_laid_out(source, shapes, dtype),
        )


def _laid_out(source: random.Random, shapes: tuple[str, ...], dtype: str) -> str:
    """A tensor that lies row by row, turned, or with gaps."""
    *outer, rows, columns = map(int, source.choice(shapes).split(", "))
    way = source.choice(("whole", "whole", "turned", "gaps"))
    if way == "turned":
        return f"torch.randn({[*outer, columns, rows]}, dtype=torch.{dtype}).mT"
    if way == "gaps":
        return f"torch.randn({[*outer, rows, columns * 2]}, dtype=torch.{dtype})[..., ::2]"
    return f"torch.randn({[*outer, rows, columns]}, dtype=torch.{dtype})"
