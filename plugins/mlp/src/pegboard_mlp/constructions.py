"""Networks whose weights are known, and operations on networks that are exact.

What they return are ordinary models, which train, save and load like any other. Weights are computed in
float64; `dtype` says how they are kept, None as torch does by default.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from pegboard import Peg
from torch import Tensor, nn

from .modules import LinearModel, Mlp

Layer = tuple[Tensor, Tensor]  # weight (outputs, inputs) and bias (outputs,), in float64
Numbers = Sequence[float] | Tensor
Matrix = Sequence[Sequence[float]] | Tensor

TOGETHER = ("glu", "log_softmax", "prelu", "softmax", "softmin")  # not one fixed function of each unit


def network(
    layers: Sequence[tuple[Matrix, Numbers]],
    activation: str = "relu",
    *,
    alpha: float | None = None,
    polynomial: Sequence[float] = (0.0, 0.0, 1.0),
    dtype: torch.dtype | None = None,
) -> Mlp:
    """A plain network with the given weights and biases, the head's last."""
    pairs = [(_number(weight), _number(bias)) for weight, bias in layers]
    widths = [weight.shape[0] for weight, _ in pairs]
    model = Mlp(
        pairs[0][0].shape[1], widths[:-1], widths[-1], activation, alpha=alpha, polynomial=polynomial
    ).to(dtype=dtype or torch.get_default_dtype())
    with torch.no_grad():
        for linear, (weight, bias) in zip(_linears(model), pairs, strict=True):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
    return model


def layers(model: Mlp) -> list[Layer]:
    """Weights and biases of a plain network, the head's last; zeros where there is no bias."""
    if model.form != "plain" or hasattr(model, "output"):
        raise ValueError(f"expected a plain network whose output is affine, got form {model.form!r}")
    if any(isinstance(m, Peg) and len(m._modules) for m in model.modules()):
        raise ValueError("something hangs on the pegs of this network, so that it is more than its layers")
    found = []
    for linear in _linears(model):
        weight = linear.weight.detach().double().cpu()
        zero = torch.zeros(len(weight), dtype=torch.float64)
        found.append((weight, zero if linear.bias is None else linear.bias.detach().double().cpu()))
    return found


def depth(model: Mlp) -> int:
    """How many affine layers follow one another, the head included."""
    return len(model.hidden) + 1


def first_layers(model: Mlp, count: int) -> nn.Sequential:
    """The first `count` hidden layers of a network of any form; they share its weights."""
    if not 0 <= count <= len(model.hidden):
        raise ValueError(f"expected 0 to {len(model.hidden)} hidden layers, got {count}")
    return nn.Sequential(*list(model.body)[: 1 + count * (4 if model.form == "plain" else 1)])


def affine(weight: Matrix, bias: Numbers, dtype: torch.dtype | None = None) -> Mlp:
    """`W x + b` as a network without hidden layers."""
    return network([(weight, bias)], dtype=dtype)


def absolute_value(features: int = 1, dtype: torch.dtype | None = None) -> Mlp:
    """`|x|` of each feature, from two ReLUs: |x| = relu(x) + relu(-x)."""
    one = torch.eye(features)
    zero = torch.zeros(features)
    return network([(torch.cat((one, -one)), zero.repeat(2)), (torch.cat((one, one), 1), zero)], dtype=dtype)


def piecewise_linear(
    knots: Numbers, values: Numbers, *, skip: bool = False, dtype: torch.dtype | None = None
) -> Mlp:
    """The line through m + 1 points, which has m pieces; the outer two go on for ever.

    It takes m ReLUs. With `skip` the head sees the input too (the form is dense), and m - 1 suffice.
    """
    x, y = _number(knots), _number(values)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2 or not bool((x.diff() > 0).all()):
        raise ValueError("expected at least two knots that increase, and a value for each")
    slopes, inner = y.diff() / x.diff(), x[1:-1]
    if not len(inner):
        return affine(slopes[:, None], y[:1] - slopes * x[0], dtype)
    if skip:
        model = Mlp(1, [len(inner)], 1, form="dense").to(dtype=dtype or torch.get_default_dtype())
        body, head = _linears(model)
        with torch.no_grad():
            body.weight.fill_(1)
            body.bias.copy_(-inner)
            head.weight.copy_(torch.cat((slopes[:1], slopes.diff()))[None])
            head.bias.copy_(y[:1] - slopes[:1] * x[0])
        return model
    # Left of the first inner knot a unit looks back, right of it every knot bends the line.
    weight = torch.ones(len(slopes), 1, dtype=torch.float64)
    weight[0] = -1
    bias = torch.cat((inner[:1], -inner))
    out = torch.cat((-slopes[:1], slopes[1:2], slopes.diff()[1:]))
    return network([(weight, bias), (out[None], y[1:2])], dtype=dtype)


def tent(depth: int = 1, dtype: torch.dtype | None = None) -> Mlp:
    """A sawtooth of 2^depth pieces between 0 and 1, from two ReLUs in each of `depth` hidden layers."""
    if depth < 1:
        raise ValueError(f"expected a depth of at least 1, got {depth}")
    once = network([([[1.0], [1.0]], [0.0, -0.5]), ([[2.0, -4.0]], [0.0])], dtype=dtype)
    whole = once
    for _ in range(depth - 1):
        whole = compose(once, whole)
    return whole


def hyperplanes(normals: Matrix, offsets: Numbers, dtype: torch.dtype | None = None) -> Mlp:
    """Scores of the 2^k cells into which k hyperplanes `a x + b = 0` cut a space, from 2k ReLUs.

    Cell c has the greatest score where `a_i x + b_i` is positive exactly for the bits i of c that are one:
    its score is the sum of relu(s_i) over those bits and of relu(-s_i) over the others.
    """
    a, b = _number(normals), _number(offsets)
    count = len(a)
    weight = torch.stack((-a, a), 1).flatten(0, 1)
    bias = torch.stack((-b, b), 1).flatten()
    head = torch.zeros(2**count, 2 * count)
    for cell in range(2**count):
        for i in range(count):
            head[cell, 2 * i + (cell >> i & 1)] = 1
    return network([(weight, bias), (head, torch.zeros(2**count))], dtype=dtype)


def add(f: Mlp, g: Mlp) -> Mlp:
    """`f(x) + g(x)` as one network: widths add up, and the depth is that of the deeper one.

    Networks of different depth are made equal with `x = relu(x) - relu(-x)`, which takes ReLUs.
    """
    _alike(f, g)
    if _sizes(f) != _sizes(g):
        raise ValueError(f"networks of {_sizes(f)} and {_sizes(g)} inputs and outputs have no sum")
    count = max(depth(f), depth(g))
    like = f if f.hidden else g
    one, two = (_deepened(model, count, like.activation) for model in (f, g))
    (w, b), (v, c) = one[-1], two[-1]
    if count == 1:
        return _like(f, [(w + v, b + c)])
    joined = [
        (_blocks(p, q) if at else torch.cat((p, q)), torch.cat((r, s)))
        for at, ((p, r), (q, s)) in enumerate(zip(one[:-1], two[:-1], strict=True))
    ]
    return _like(like, [*joined, (torch.cat((w, v), 1), b + c)])


def compose(f: Mlp, g: Mlp) -> Mlp:
    """`f(g(x))` as one network: the head of g and the first layer of f are one affine map."""
    _alike(f, g)
    outer, inner = layers(f), layers(g)
    (w, b), (v, c) = outer[0], inner[-1]
    if w.shape[1] != len(v):
        raise ValueError(f"the inner network gives {len(v)} numbers and the outer reads {w.shape[1]}")
    return _like(f if f.hidden else g, [*inner[:-1], (w @ v, w @ c + b), *outer[1:]])


def permuted(model: Mlp, layer: int, order: Sequence[int]) -> Mlp:
    """The same function with the units of a hidden layer (0 the first) in another order."""
    if sorted(order) != list(range(model.hidden[layer])):
        raise ValueError(f"expected the numbers 0 to {model.hidden[layer] - 1} in some order, got {order}")
    made = layers(model)
    (w, b), (v, c) = made[layer], made[layer + 1]
    made[layer : layer + 2] = [(w[list(order)], b[list(order)]), (v[:, list(order)], c)]
    return _like(model, made)


def as_sigmoid(model: Mlp) -> Mlp:
    """A tanh network as one of sigmoids: tanh(z) = 2 sigmoid(2z) - 1."""
    return _swapped(model, "tanh", "sigmoid", 2.0, 2.0, -1.0)


def as_tanh(model: Mlp) -> Mlp:
    """A network of sigmoids as one of tanh: sigmoid(z) = tanh(z / 2) / 2 + 1 / 2."""
    return _swapped(model, "sigmoid", "tanh", 0.5, 0.5, 0.5)


def collapse(model: Mlp) -> LinearModel:
    """The affine map that a network without nonlinearity is, whatever its depth and form."""
    if (model.hidden and model.activation != "identity") or hasattr(model, "output"):
        raise ValueError(f"a network with activation {model.activation!r} is no affine map")
    twin = copy.deepcopy(model).double().cpu().eval()
    inputs, outputs = _sizes(model)
    with torch.no_grad():
        origin, *columns = twin(torch.cat((torch.zeros(1, inputs), torch.eye(inputs))).double())
        made = LinearModel(inputs, outputs).to(model.head.weight)
        made.head.weight.copy_(torch.stack(columns, 1) - origin[:, None])
        made.head.bias.copy_(origin)
    return made


def _number(given: Numbers | Matrix) -> Tensor:
    return torch.as_tensor(given, dtype=torch.float64)


def _blocks(one: Tensor, two: Tensor) -> Tensor:
    joined: Tensor = torch.block_diag(one, two)  # type: ignore[no-untyped-call]
    return joined


def _linears(model: nn.Module) -> list[nn.Linear]:
    return [m for m in model.modules() if isinstance(m, nn.Linear)]


def _sizes(model: Mlp) -> tuple[int, int]:
    return int(model.body[0].features), model.head.out_features  # type: ignore[arg-type]


def _alike(f: Mlp, g: Mlp) -> None:
    """Both must have one activation, of each unit by itself."""
    kinds = {(m.activation, m.alpha, m.polynomial) for m in (f, g) if m.hidden}
    if len(kinds) > 1:
        raise ValueError(f"activations differ: {f.activation} and {g.activation}")
    if any(name in TOGETHER for name, _, _ in kinds):
        raise ValueError(f"the activation {f.activation} is not one fixed function of each unit")


def _like(model: Mlp, made: Sequence[Layer]) -> Mlp:
    """A network of these layers with the activation and the precision of another."""
    return network(
        made,
        model.activation,
        alpha=model.alpha,
        polynomial=model.polynomial,
        dtype=model.head.weight.dtype,
    ).to(model.head.weight.device)


def _deepened(model: Mlp, count: int, activation: str) -> list[Layer]:
    """The layers of the same function in `count` of them, for a network of this activation."""
    found = layers(model)
    if len(found) == count:
        return found
    if activation != "relu":
        raise ValueError(f"networks of {activation} have a sum where they are equally deep")
    *body, (weight, bias) = found
    if not body:
        one = torch.eye(weight.shape[1], dtype=torch.float64)
        body = [(torch.cat((one, -one)), torch.zeros(2 * len(one), dtype=torch.float64))]
        weight = torch.cat((weight, -weight), 1)
    # What a ReLU gave is not negative, and passes another unchanged.
    width = weight.shape[1]
    same = (torch.eye(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64))
    return [*body, *[same] * (count - 1 - len(body)), (weight, bias)]


def _swapped(model: Mlp, old: str, new: str, inner: float, outer: float, shift: float) -> Mlp:
    """Hidden units old(z) as outer * new(inner * z) + shift."""
    if model.activation != old:
        raise ValueError(f"expected a network of {old}, got one of {model.activation}")
    first, *rest = layers(model)
    made = [first, *((outer * w, b + shift * w.sum(1)) for w, b in rest)]
    made[:-1] = [(inner * w, inner * b) for w, b in made[:-1]]
    return network(made, new, dtype=model.head.weight.dtype).to(model.head.weight.device)
