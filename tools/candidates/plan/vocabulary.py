"""Every word a plan may use. What is not listed here cannot be written.

The library operators among them are functional ones, nothing in place. Random numbers are drawn by
whoever computes a module that draws them, in its order, and in `forward` alone. Admission is by
name; the runner resolves the overload and refuses one that writes to its arguments. A caller
(the task's policy) may admit fewer. `empty` is not among the operators: uninitialised memory comes
from the judge's allocator.
"""

import ast
from collections.abc import Mapping

from kernelwright.tools.types import DType
from kernelwright.tools.types.graph import DRAWS, MAKERS

DTYPES = frozenset(item.value for item in DType)

# Helper -> (least, most) number of arguments, keywords included.
HELPERS: Mapping[str, tuple[int, int]] = {
    "empty": (1, 2),
    "empty_like": (1, 2),
    "zeros": (1, 2),
    "zeros_like": (1, 2),
    "full": (2, 3),
    "full_like": (2, 3),
    "ceil_div": (2, 2),
    "min": (2, 16),
    "max": (2, 16),
    "int": (1, 1),
    "float": (1, 1),
    "abs": (1, 1),
    "len": (1, 1),
    "prod": (1, 1),
}
KEYWORDS: Mapping[str, frozenset[str]] = {
    "empty": frozenset({"dtype"}),
    "empty_like": frozenset({"dtype"}),
    "zeros": frozenset({"dtype"}),
    "zeros_like": frozenset({"dtype"}),
    "full": frozenset({"value", "dtype"}),
    "full_like": frozenset({"value", "dtype"}),
}
# What stands among the arguments of a launch alone, and what it may be told besides its tensor.
TENSOR_MAP = "tensor_map"
TENSOR_MAP_KEYWORDS = frozenset({"box", "shape", "strides", "offset", "swizzle"})
# The model's own forward, where it is the user's code that calls what a plan computes: functions
# of these names, which stand for the task's parts by their number.
REFERENCE, PART = "reference", "part_"
CONSTANTS = frozenset({"inf", "nan"})
# Helpers whose result is a number whatever they are given.
NUMERIC_HELPERS = frozenset({"ceil_div", "min", "max", "int", "float", "abs", "len", "prod"})
RESERVED = frozenset(
    {
        *HELPERS,
        *CONSTANTS,
        TENSOR_MAP,
        REFERENCE,
        "launch",
        "update",
        "range",
        "aten",
        "weights",
        "prepared",
    }
)

# Reading a tensor without calling anything.
PROPERTIES = frozenset({"shape", "dtype", "ndim", "T", "mT"})
NUMERIC_METHODS = frozenset({"numel", "dim", "element_size", "storage_offset", "is_contiguous"})
# Views, and the few copies that only rearrange. `as_strided` is not among them: it could reach
# past the tensor into memory that the judge guards.
METHODS = NUMERIC_METHODS | frozenset(
    {
        "chunk",
        "contiguous",
        "diagonal",
        "expand",
        "expand_as",
        "flatten",
        "flip",
        "movedim",
        "narrow",
        "permute",
        "reshape",
        "select",
        "size",
        "split",
        "squeeze",
        "stride",
        "swapaxes",
        "t",
        "to",
        "transpose",
        "unbind",
        "unflatten",
        "unfold",
        "unsqueeze",
        "view",
        "view_as",
    }
)

GRID_LAUNCH = frozenset({"grid", "block", "args", "shared", "cluster"})
PLAIN_LAUNCH = frozenset({"args"})
# Where things are and how they are laid out is the judge's to say, and `out` would write to a
# tensor that a kernel or the judge owns.
# And nobody says that indices need no check.
FORBIDDEN_KEYWORDS = frozenset({"out", "device", "layout", "pin_memory", "generator", "unsafe"})

STATEMENTS: tuple[type[ast.stmt], ...] = (
    ast.Assign,
    ast.AugAssign,
    ast.Expr,
    ast.For,
    ast.If,
    ast.Pass,
    ast.Return,
)
EXPRESSIONS: tuple[type[ast.expr], ...] = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.IfExp,
    ast.List,
    ast.Name,
    ast.Slice,
    ast.Starred,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
)
OPERATORS: tuple[type[ast.AST], ...] = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.UAdd,
    ast.USub,
    ast.Not,
    ast.Invert,
    ast.And,
    ast.Or,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
)


_CONTRACTIONS = """
    _grouped_mm _int_mm _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    _scaled_mm _thnn_fused_gru_cell _thnn_fused_lstm_cell _trilinear addbmm addmm addmv addr baddbmm
    bilinear bmm conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
    convolution convolution_backward dot einsum gru kron linear lstm matmul mm mv outer rnn_relu
    rnn_tanh scaled_dot_product_attention tensordot
"""

_POOLING = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d
    fractional_max_pool2d fractional_max_pool3d max_pool1d max_pool2d max_pool2d_with_indices
    max_pool3d max_pool3d_with_indices max_unpool2d max_unpool3d
"""

_INDEXING = """
    _embedding_bag _embedding_bag_forward_only diagonal_scatter embedding embedding_dense_backward
    embedding_renorm gather index index_add index_copy index_fill index_put index_reduce
    index_select isin masked_fill masked_scatter masked_select nonzero nonzero_static put scatter
    scatter_add scatter_reduce select_scatter slice_scatter take take_along_dim where
"""

# Gradients that PyTorch computes by an operator of its own, for the backward of a training step.
_GRADIENTS = """
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward _cdist_backward
    _embedding_bag_backward _embedding_bag_dense_backward
    _embedding_bag_per_sample_weights_backward _pdist_backward _segment_reduce_backward
    _thnn_fused_gru_cell_backward _thnn_fused_lstm_cell_backward_impl
    _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa_backward
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward
    _upsample_nearest_exact3d_backward _weight_norm_interface_backward
    adaptive_max_pool2d_backward adaptive_max_pool3d_backward avg_pool2d_backward
    avg_pool3d_backward conv_tbc_backward cudnn_grid_sampler_backward
    fractional_max_pool2d_backward fractional_max_pool3d_backward grid_sampler_2d_backward
    grid_sampler_3d_backward masked_scatter_backward max_pool2d_with_indices_backward
    max_pool3d_with_indices_backward multi_margin_loss_backward multilabel_margin_loss_backward
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    upsample_bicubic2d_backward upsample_bilinear2d_backward upsample_linear1d_backward
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
    upsample_trilinear3d_backward
"""

_SORTING = """
    _unique2 argsort bucketize kthvalue median mode searchsorted sort topk unique_consecutive
    unique_dim
"""

_ARRANGING = """
    _to_copy _unsafe_view alias cat channel_shuffle chunk clone col2im complex constant_pad_nd
    contiguous copy detach diag_embed diagonal expand flatten flip im2col imag lift_fresh_copy
    movedim narrow permute pixel_shuffle pixel_unshuffle polar real reflection_pad1d
    reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d
    replication_pad3d reshape roll rot90 select slice split split_with_sizes squeeze stack t tile
    transpose tril triu unbind unfold unsqueeze view view_as_complex view_as_real
"""

_RESAMPLING = """
    _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d affine_grid_generator cudnn_grid_sampler
    grid_sampler_2d grid_sampler_3d upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
"""

_POINTWISE = """
    _prelu_kernel abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp
    clamp_max clamp_min copysign cos cosh digamma div elu eq erf erfc erfinv exp exp2 expm1 floor
    floor_divide fmax fmin fmod frac ge gelu glu gt hardshrink hardsigmoid hardswish hardtanh hypot
    isfinite isinf isnan le leaky_relu lerp lgamma log log10 log1p log2 log_sigmoid_forward
    logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit lt maximum minimum
    mish mul nan_to_num ne neg pow prelu reciprocal relu relu6 remainder round
    rrelu_with_noise_functional rsqrt rsub selu sgn sigmoid sign silu sin sinh softplus softshrink
    sqrt square sub tan tanh threshold trunc xlogy
"""

_SPECIAL = """
    deg2rad frexp gcd heaviside i0 igamma igammac isneginf isposinf lcm ldexp mvlgamma nextafter
    polygamma rad2deg signbit sinc special_airy_ai special_bessel_j0 special_bessel_j1
    special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t
    special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w
    special_entr special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he
    special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p
    special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
    special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri
    special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
    special_spherical_bessel_j0 special_xlog1py special_zeta
"""

_QUANTISATION = """
    _fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask
"""

_REDUCTIONS_AND_SCANS = """
    _cdist_forward _euclidean_dist _pdist_forward all amax amin aminmax any argmax argmin bincount
    cdist count_nonzero cummax cummin cumprod cumsum dist histc linalg_vector_norm logcumsumexp
    logsumexp max mean min nanmedian nansum norm prod renorm segment_reduce std std_mean sum trace
    var var_mean
"""

_NORMALISATIONS = """
    _fused_rms_norm _log_softmax _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _safe_softmax _softmax _weight_norm_interface group_norm
    layer_norm log_softmax native_batch_norm native_group_norm native_layer_norm rms_norm softmax
"""

_LOSSES = """
    binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss
    cosine_similarity cross_entropy_loss hinge_embedding_loss huber_loss kl_div l1_loss
    margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss_forward nll_loss
    nll_loss2d_forward nll_loss_forward nll_loss_nd smooth_l1_loss soft_margin_loss
    triplet_margin_loss
"""

_LINEAR_ALGEBRA_AND_TRANSFORMS = """
    _conj _conj_physical _fft_c2c _fft_c2r _fft_r2c _linalg_det _linalg_eigh _linalg_eigvals
    _linalg_slogdet _linalg_solve_ex _linalg_svd block_diag cholesky cholesky_inverse cholesky_solve
    cross fft_fft geqrf linalg_cholesky_ex linalg_cross linalg_det linalg_eig
    linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq
    linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_pinv linalg_qr
    linalg_solve_ex linalg_solve_triangular lu_unpack ormqr triangular_solve
"""

_CREATION = """
    arange bartlett_window blackman_window eye fft_fftfreq fft_rfftfreq full full_like
    hamming_window kaiser_window linspace new_full new_ones new_zeros ones ones_like scalar_tensor
    zeros zeros_like
"""

CONTRACTIONS = frozenset(_CONTRACTIONS.split())
ADMITTED = (
    frozenset(
        word
        for group in (
            _CONTRACTIONS,
            _POOLING,
            _INDEXING,
            _GRADIENTS,
            _SORTING,
            _ARRANGING,
            _RESAMPLING,
            _POINTWISE,
            _SPECIAL,
            _QUANTISATION,
            _REDUCTIONS_AND_SCANS,
            _NORMALISATIONS,
            _LOSSES,
            _LINEAR_ALGEBRA_AND_TRANSFORMS,
            _CREATION,
        )
        for word in group.split()
    )
    | DRAWS
)

# Without a tensor to take the device from, these would make their result on the CPU.
CREATORS = DRAWS | MAKERS

# Operators that draw random numbers only when this argument (name, position) is not zero.
DROPOUT: Mapping[str, tuple[str, int]] = {
    "_scaled_dot_product_efficient_attention": ("dropout_p", 5),
    "_scaled_dot_product_flash_attention": ("dropout_p", 3),
    "_scaled_dot_product_flash_attention_for_cpu": ("dropout_p", 3),
    "_scaled_dot_product_flash_attention_for_cpu_backward": ("dropout_p", 6),
    "gru": ("dropout", 5),
    "lstm": ("dropout", 5),
    "rnn_relu": ("dropout", 5),
    "rrelu_with_noise_functional": ("training", 4),
    "rnn_tanh": ("dropout", 5),
    "scaled_dot_product_attention": ("dropout_p", 4),
}
