"""ONNX's elementwise operators, matrix products and normalisations in PyTorch's words.

Source for all: the operator's section in onnx/docs/Operators.md and Changelog.md (older operator sets), and
the documentation of ``torch.nn.functional``. The tests compare each with onnxruntime or onnx's reference.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from inferometer.engines.torch.node import TORCH_DTYPES, Node, Operation, Unmapped, operator

__all__: list[str] = []


def _simple(names: dict[str, Callable[[Tensor], Tensor]], *, floats: bool = True) -> None:
    for name, function in names.items():

        def build(node: Node, function: Callable[[Tensor], Tensor] = function) -> Operation:
            if floats:
                node.need_floats()
            return Operation(function)

        operator(name, attributes=("consumed_inputs",))(build)


_simple(
    {
        "Ceil": torch.ceil, "Cos": torch.cos, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor,
        "HardSwish": functional.hardswish, "Log": torch.log, "Mish": functional.mish,
        "Reciprocal": torch.reciprocal, "Round": torch.round, "Sigmoid": torch.sigmoid, "Sin": torch.sin,
        "Softsign": functional.softsign, "Sqrt": torch.sqrt, "Tanh": torch.tanh,
    }
)  # fmt: skip
_simple({"Abs": torch.abs, "Neg": torch.neg, "Sign": torch.sign, "Not": torch.logical_not}, floats=False)


@operator("Softplus")
def _softplus(node: Node) -> Operation:
    # PyTorch's own is the identity from 20 on, where the difference is below float32's precision.
    node.need_floats()
    return Operation(functional.softplus)


@operator("Relu", attributes=("consumed_inputs",))
def _relu(node: Node) -> Operation:
    return Operation(torch.relu, activation="relu")


@operator("LeakyRelu", attributes=("alpha", "consumed_inputs"))
def _leaky_relu(node: Node) -> Operation:
    node.need_floats()
    return Operation(functools.partial(functional.leaky_relu, negative_slope=float(node.attr("alpha", 0.01))))


@operator("Elu", attributes=("alpha", "consumed_inputs"))
def _elu(node: Node) -> Operation:
    node.need_floats()
    return Operation(functools.partial(functional.elu, alpha=float(node.attr("alpha", 1.0))))


@operator("Celu", attributes=("alpha",))
def _celu(node: Node) -> Operation:
    node.need_floats()
    return Operation(functools.partial(functional.celu, alpha=float(node.attr("alpha", 1.0))))


@operator("Selu", attributes=("alpha", "gamma"))
def _selu(node: Node) -> Operation:
    """Written out: PyTorch's own has fixed constants."""
    node.need_floats()
    alpha = float(node.attr("alpha", 1.67326319217681884765625))
    gamma = float(node.attr("gamma", 1.05070102214813232421875))
    return Operation(lambda x: gamma * torch.where(x > 0, x, alpha * torch.expm1(x)))


@operator("HardSigmoid", attributes=("alpha", "beta"))
def _hard_sigmoid(node: Node) -> Operation:
    node.need_floats()
    alpha, beta = float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5))
    if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
        return Operation(functional.hardsigmoid)
    return Operation(lambda x: torch.clamp(x * alpha + beta, 0.0, 1.0))


@operator("Gelu", attributes=("approximate",))
def _gelu(node: Node) -> Operation:
    node.need_floats()
    return Operation(functools.partial(functional.gelu, approximate=node.attr("approximate", "none")))


@operator("PRelu")
def _prelu(node: Node) -> Operation:
    """The slope broadcasts from behind, as an operand of Add does, not along the channels as PyTorch's."""
    node.need_floats()
    if node.opset < 7 and node.elements(1) > 1:
        slope = node.stored_tensor(1)
        shaped = slope.reshape(-1, *[1] * (len(node.shape()) - 2))
        return Operation(_leak, (0, 1), {1: shaped})
    return Operation(_leak, (0, 1))


def _leak(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


@operator("Clip", attributes=("min", "max"))
def _clip(node: Node) -> Operation:
    """Up to operator set 10 the limits are attributes, then inputs; a limit may be missing."""
    low, high = node.attr("min"), node.attr("max")
    low = node.scalar(1, -math.inf) if node.has(1) else low
    high = node.scalar(2, math.inf) if node.has(2) else high
    if not node.dtype().is_floating_point:
        low, high = (None if limit is None else int(limit) for limit in (low, high))
    elif any(limit is not None and math.isnan(limit) for limit in (low, high)):
        raise Unmapped("a limit of it is no number")
    if low is None and high is None:
        return Operation(_same)
    if low is not None and high is not None and low > high:
        raise Unmapped("its lower limit is above its upper one")
    return Operation(functools.partial(torch.clamp, min=low, max=high))


def _same(x: Tensor) -> Tensor:
    return x


_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Equal": torch.eq, "Greater": torch.gt,
    "GreaterOrEqual": torch.ge, "Less": torch.lt, "LessOrEqual": torch.le, "And": torch.logical_and,
    "Or": torch.logical_or, "Xor": torch.logical_xor, "Div": torch.div,
}  # fmt: skip


@operator(*_BINARY, attributes=("axis", "broadcast", "consumed_inputs"))
def _binary(node: Node) -> Operation:
    op = node.proto.op_type
    function: Any = _BINARY[op]
    if op == "Div" and not node.dtype().is_floating_point:
        function = functools.partial(torch.div, rounding_mode="trunc")  # as C++ divides whole numbers
    if node.opset < 7 and node.shape(0) != node.shape(1):
        return _old_broadcast(node, function)
    return Operation(function, (0, 1), fresh=True)


def _old_broadcast(node: Node, function: Any) -> Operation:
    """Before operator set 7 the second operand's axes stand at ``axis`` of the first's."""
    if not node.attr("broadcast", 0):
        raise Unmapped("its operands have different shapes and it does not say broadcast")
    left, right = len(node.shape(0)), node.shape(1)
    axis = node.axis(int(node.attr("axis", left - len(right))), left) if right else 0
    if axis + len(right) > left:
        raise Unmapped("its second operand does not fit the first")
    shaped = (*right, *[1] * (left - axis - len(right)))
    return Operation(lambda x, y: function(x, y.reshape(shaped)), (0, 1), fresh=True)


@operator("Pow")
def _pow(node: Node) -> Operation:
    node.need_floats()
    if node.opset < 7 and node.shape(0) != node.shape(1):
        raise Unmapped("it broadcasts as operator sets before 7 do")
    if node.is_stored(1) and node.elements(1) == 1 and len(node.shape(1)) <= len(node.shape(0)):
        exponent = node.scalar(1, 1.0)
        return Operation(lambda x: torch.pow(x, exponent))
    if not node.dtype(1).is_floating_point:
        raise Unmapped("its exponents are whole numbers that differ or are computed in each call")
    return Operation(torch.pow, (0, 1))


def _folded(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda *tensors: functools.reduce(function, tensors)


_VARIADIC: dict[str, Any] = {
    "Sum": torch.add, "Mean": torch.add, "Max": torch.maximum, "Min": torch.minimum,
}  # fmt: skip


@operator("Sum", "Max", "Min", "Mean", attributes=("consumed_inputs",))
def _variadic(node: Node) -> Operation:
    if node.opset < 8 and len({node.shape(place) for place in node.present}) > 1:
        raise Unmapped("its operands have different shapes, which operator sets before 8 do not allow")
    function = _folded(_VARIADIC[node.proto.op_type])
    several = len(node.present) > 1
    if node.proto.op_type == "Mean":
        node.need_floats()
        count = len(node.present)
        return Operation(lambda *tensors: function(*tensors) / count, node.present, fresh=True)
    return Operation(function, node.present, fresh=several)


@operator("Where")
def _where(node: Node) -> Operation:
    return Operation(torch.where, (0, 1, 2))


@operator("Cast", attributes=("to", "saturate", "round_mode"))
def _cast(node: Node) -> Operation:
    wanted = TORCH_DTYPES.get(int(node.attr("to")))
    if wanted is None:
        raise Unmapped(f"it casts to ONNX's type number {node.attr('to')}")
    source = node.dtype()
    if source.is_floating_point and not wanted.is_floating_point and wanted not in _SAFE:
        raise Unmapped(
            f"it casts floats to {str(wanted).removeprefix('torch.')}, which runtimes wrap differently"
        )
    target = node.compute if wanted.is_floating_point else wanted
    return Operation(lambda x: x.to(target))


_SAFE = (torch.bool, torch.int32, torch.int64)


@operator("MatMul")
def _matmul(node: Node) -> Operation:
    node.need_floats()
    return Operation(torch.matmul, (0, 1), fresh=True)


@operator("Gemm", attributes=("alpha", "beta", "transA", "transB", "broadcast"))
def _gemm(node: Node) -> Operation:
    """``alpha * A' * B' + beta * C``; stored factors take over transposition and scale."""
    node.need_floats()
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    flip_a, flip_b = bool(node.attr("transA", 0)), bool(node.attr("transB", 0))
    bias = node.has(2) and beta != 0.0
    if node.opset < 7 and bias and not node.attr("broadcast", 0) and node.shape(2) != node.output_shape():
        raise Unmapped("its bias has another shape than its output and it does not say broadcast")
    vector = bias and node.is_stored(2) and node.shape(2) == (node.output_shape()[1],)
    if node.is_stored(1) and (vector or not bias):
        weight = node.stored_tensor(1)
        constants = {1: ((weight if flip_b else weight.t()) * alpha).contiguous()}
        if bias:
            constants[2] = node.stored_tensor(2) * beta
        function = _linear_of_transposed if flip_a else functional.linear
        return Operation(function, (0, 1, 2) if bias else (0, 1), constants, fresh=True)

    def general(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        product = torch.matmul(a.t() if flip_a else a, b.t() if flip_b else b)
        product = product if alpha == 1.0 else product * alpha
        return product if c is None else product + (c if beta == 1.0 else c * beta)

    return Operation(general, (0, 1, 2) if bias else (0, 1), fresh=True)


def _linear_of_transposed(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.linear(x.t(), weight, bias)


@operator(
    "BatchNormalization",
    attributes=("epsilon", "momentum", "spatial", "training_mode", "is_test", "consumed_inputs"),
)
def _batch_norm(node: Node) -> Operation:
    """At inference; those behind a convolution are folded into it before they come here."""
    node.need_floats()
    node.one_output()
    if node.attr("training_mode", 0) or (node.opset < 7 and not node.attr("is_test", 0)):
        raise Unmapped("it is in training mode")
    if not node.attr("spatial", 1):
        raise Unmapped("spatial 0: it normalises each place by itself")
    if len(node.shape()) < 2 or not all(node.is_stored(place) for place in (1, 2, 3, 4)):
        raise Unmapped("its statistics are computed in each call")
    epsilon = float(node.attr("epsilon", 1e-5))

    def normalised(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return functional.batch_norm(x, mean, variance, gamma, beta, False, 0.0, epsilon)

    return Operation(normalised, (0, 1, 2, 3, 4), fresh=True, keep_float32=True)


@operator("LayerNormalization", attributes=("axis", "epsilon", "stash_type"))
def _layer_norm(node: Node) -> Operation:
    node.need_floats()
    node.one_output()
    if node.attr("stash_type", 1) != 1:
        raise Unmapped("stash_type is not float32")
    shape = node.shape()
    normalised = shape[node.axis(int(node.attr("axis", -1)), len(shape)) :]
    if node.shape(1) != normalised or (node.has(2) and node.shape(2) != normalised):
        raise Unmapped("its scale or bias broadcasts")
    epsilon = float(node.attr("epsilon", 1e-5))
    if node.has(2):
        return Operation(
            lambda x, scale, bias: functional.layer_norm(x, normalised, scale, bias, epsilon), (0, 1, 2)
        )
    return Operation(lambda x, scale: functional.layer_norm(x, normalised, scale, None, epsilon), (0, 1))


@operator("InstanceNormalization", attributes=("epsilon", "consumed_inputs"))
def _instance_norm(node: Node) -> Operation:
    node.need_floats()
    epsilon = float(node.attr("epsilon", 1e-5))
    if math.prod(node.shape()[2:]) < 2:
        raise Unmapped("it normalises single values")
    return Operation(
        lambda x, scale, bias: functional.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon),
        (0, 1, 2),
    )


@operator("LRN", attributes=("alpha", "beta", "bias", "size"))
def _lrn(node: Node) -> Operation:
    """Squares sum over ``size`` channels, one more behind than before where that is even.

    In float32 also between halves, whose largest number the squares of ordinary activations pass.
    """
    node.need_floats()
    size, beta, bias = int(node.attr("size")), float(node.attr("beta", 0.75)), float(node.attr("bias", 1.0))
    scale, before = float(node.attr("alpha", 1e-4)) / size, (size - 1) // 2
    rank = len(node.shape())
    if size < 1 or rank < 3:
        raise Unmapped(f"size {size} on a tensor with {rank} axes")
    padding = (0, 0) * (rank - 2) + (before, size - 1 - before)

    def normalised(x: Tensor) -> Tensor:
        wide = x.float()
        squares = functional.pad(wide * wide, padding)
        total = squares.narrow(1, 0, x.shape[1])
        for start in range(1, size):
            total = total + squares.narrow(1, start, x.shape[1])
        return (wide / torch.pow(total * scale + bias, beta)).to(x.dtype)

    return Operation(normalised)


@operator("Softmax", "LogSoftmax", attributes=("axis",))
def _softmax(node: Node) -> Operation:
    """From operator set 13 on along one axis; before, over all from ``axis`` on taken together."""
    node.need_floats()
    function: Any = torch.softmax if node.proto.op_type == "Softmax" else torch.log_softmax
    shape = node.shape()
    axis = node.axis(int(node.attr("axis", 1 if node.opset < 13 else -1)), len(shape))
    if node.opset >= 13 or axis == len(shape) - 1:
        return Operation(lambda x: function(x, axis))
    rows = math.prod(shape[:axis])
    return Operation(lambda x: function(x.reshape(rows, -1), 1).reshape(shape))


@operator("ArgMax", attributes=("axis", "keepdims", "select_last_index"))
def _arg_max(node: Node) -> Operation:
    """Of equal values PyTorch too takes the first.

    Source: documentation of ``torch.argmax``.
    """
    if node.attr("select_last_index", 0):
        raise Unmapped("select_last_index 1")
    axis = node.axis(int(node.attr("axis", 0)), len(node.shape()))
    keep = bool(node.attr("keepdims", 1))
    return Operation(lambda x: torch.argmax(x, axis, keep))


@operator("Dropout", attributes=("ratio", "seed", "is_test", "consumed_inputs"))
def _dropout(node: Node) -> Operation:
    """Nothing at inference."""
    node.one_output()
    training = node.has(2) and (not node.is_stored(2) or bool(node.scalar(2, 0.0)))
    if training or (node.opset < 7 and not node.attr("is_test", 0)):
        raise Unmapped("it is in training mode")
    return Operation(_same)


@operator("Identity")
def _identity(node: Node) -> Operation:
    return Operation(_same)
