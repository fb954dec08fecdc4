"""Where a convolutional network moves with its input, to 1e-6, and where it does not: borders and pooling."""

import copy

import pytest
import torch
from pegboard_cnn.invariant import InvariantCnn
from pegboard_cnn.modules import Cnn
from pegboard_cnn.shifts import equivariance_gap, moved
from pegboard_mlp.modules import LinearModel, Mlp
from torch import nn

F64 = torch.float64
EXACT = 1e-6
DEEP = {"channels": [4, 4, 3], "kernel": 3, "activation": "tanh", "pooling": "none", "hidden": ()}


def shifted(by, axis, **more):
    return lambda x: moved(x, by, axis, **more)


def gap(f, x, by, axis, answer=None):
    """|f(Tx) - T'f(x)| at every place, the largest over samples and channels; T' moves by `answer`."""
    with torch.no_grad():
        found = equivariance_gap(f, x, shifted(by, axis), shifted(by if answer is None else answer, axis))
    return found.amax((0, 1))


# Shifts, and the checker itself.
@pytest.mark.catalogue("T127")
def test_a_shift_moves_around_and_comes_back():
    a = torch.randn(5, 7)
    for axis, n in ((0, 5), (1, 7)):
        once = moved(a, 1, axis)
        assert torch.equal(once, a.roll(1, axis))
        assert torch.equal(once.movedim(axis, 0)[0], a.movedim(axis, 0)[-1])
        back = a
        for _ in range(n):
            back = moved(back, 1, axis)
        assert torch.equal(back, a)
    assert torch.equal(moved(moved(a, 1, 0), 1, 1), moved(moved(a, 1, 1), 1, 0))
    empty = moved(a, 2, 1, around=False)
    assert not empty[:, :2].any() and torch.equal(empty[:, 2:], a[:, :-2])
    empty = moved(a, -2, 0, around=False)
    assert not empty[-2:].any() and torch.equal(empty[:-2], a[2:])
    assert not moved(a, 9, 0, around=False).any() and not moved(a, -9, 1, around=False).any()


@pytest.mark.catalogue("T128")
def test_the_centre_of_a_ball_moves_with_it():
    ball = torch.randn(500, 2, dtype=F64)
    ball = ball / ball.norm(dim=1, keepdim=True) * torch.rand(500, 1, dtype=F64).sqrt()
    for t in torch.randn(10, 2, dtype=F64):
        assert equivariance_gap(lambda x: x.mean(0), ball, lambda x: x + t, lambda c: c + t).max() < EXACT  # noqa: B023
        assert equivariance_gap(lambda x: x.mean(0), ball, lambda x: x + t).max() > 1e-3  # noqa: B023


# Convolutions.
@pytest.mark.catalogue("T129", "S3-094", "S4-066", "S4-072", "S3-165")
@pytest.mark.parametrize("sizes", [(11,), (8, 9), (5, 6, 7)])
@pytest.mark.parametrize("kernel", [3, 4])
def test_convolutions_that_go_around_move_with_their_input(sizes, kernel):
    body = Cnn((2, *sizes), 1, **{**DEEP, "padding": "circular", "kernel": kernel}).body
    x = torch.randn(3, 2, *sizes)
    for axis, n in enumerate(sizes, 2):
        for by in range(-n, n + 1):
            assert gap(body, x, by, axis).max() <= EXACT


@pytest.mark.catalogue("T129")
@pytest.mark.parametrize("axis", [2, 3])
def test_without_padding_all_but_the_first_row_or_column_moves(axis):
    stage = Cnn((2, 9, 8), 1, **{**DEEP, "channels": 3, "padding": "none"}).body
    x = torch.randn(5, 2, 9, 8)
    by_line = gap(stage, x, 1, axis).amax(3 - axis)
    assert by_line[1:].max() <= EXACT and by_line[0] > 0.01


@pytest.mark.catalogue("S4-066")
@pytest.mark.parametrize("by", [1, 2, 3])
def test_with_zeros_around_only_the_inside_moves(by):
    body = Cnn((1, 16, 16), 1, **{**DEEP, "padding": "zero"}).body
    x = torch.randn(5, 1, 16, 16)
    reach = 3  # of three layers, each one place
    found = gap(body, x, by, 3)
    assert found[:, by + reach : 16 - reach].max() <= EXACT
    assert found[:, : by + reach].max() > 0.01 and found[:, -reach:].max() > 0.01


@pytest.mark.catalogue("T129")
def test_a_bias_for_every_place_stays_behind():
    stage = Cnn((1, 8, 8), 1, **{**DEEP, "channels": 2, "padding": "circular", "bias": "place"}).body
    x = torch.randn(4, 1, 8, 8)
    assert gap(stage, x, 1, 3).max() <= EXACT  # it starts at zero
    nn.init.normal_(stage[0].place.bias)
    assert gap(stage, x, 1, 3).min() > 1e-4


@pytest.mark.catalogue("T143")
@pytest.mark.parametrize(
    ("border", "size", "exact"), [(1, 2, True), (2, 3, True), (2, 4, False), (3, 4, True)]
)
def test_what_has_an_empty_border_moves_exactly_while_the_kernel_fits_in_it(border, size, exact):
    content = 5
    whole = content + 2 * border
    layer = Cnn((1, whole, whole), 1, **{**DEEP, "channels": 1, "kernel": size, "padding": "none",
                                         "bias": "none", "activation": "identity"}).body.double()  # fmt: skip
    a = nn.functional.pad(torch.randn(1, 1, content, content, dtype=F64), [border] * 4)
    nn.init.normal_(layer[0].conv.weight)

    def there(down, right):
        return lambda x: moved(moved(x, down, 2, around=False), right, 3, around=False)

    moves = range(-border, border + 1)
    with torch.no_grad():
        worst = max(
            float(equivariance_gap(layer, a, there(i, j), there(i, j)).max()) for i in moves for j in moves
        )
    assert worst <= EXACT if exact else worst > 1


@pytest.mark.catalogue("T131", "S3-094")
def test_a_dense_layer_moves_with_its_input_only_where_it_is_circulant():
    def dense(matrix):
        layer = LinearModel(3, 3, bias=False)
        with torch.no_grad():
            layer.head.weight.copy_(matrix)
        return layer

    v = torch.tensor([[1.0, 0, 0]])
    with torch.no_grad():
        growing = dense(torch.diag(torch.tensor([1.0, 2, 3])))
        assert growing(v).tolist() == [[1, 0, 0]]
        assert growing(v.roll(1, 1)).tolist() == [[0, 2, 0]]
        assert growing(v).roll(1, 1).tolist() == [[0, 1, 0]]
        circulant = dense(torch.tensor([[1.0, 2, 3], [3, 1, 2], [2, 3, 1]]))
        x = torch.randn(20, 3)
        for by in range(3):
            assert equivariance_gap(circulant, x, shifted(by, 1), shifted(by, 1)).max() <= EXACT
        assert equivariance_gap(growing, x, shifted(1, 1), shifted(1, 1)).max() > 0.1
        assert equivariance_gap(LinearModel(3, 3), x, shifted(1, 1), shifted(1, 1)).max() > 0.1


# Pooling.
@pytest.mark.catalogue("T130")
def test_pooling_moves_only_with_whole_windows():
    pool = Cnn((1, 4, 4), 1, channels=1, kernel=1, bias="none", activation="identity", hidden=()).body
    nn.init.ones_(pool[0].conv.weight)
    x = torch.tensor([2.0, 2, 0, 1]).repeat(4, 1)[None, None]
    with torch.no_grad():
        assert pool(x)[0, 0].tolist() == [[2, 1], [2, 1]]
        assert pool(moved(x, 1, 3))[0, 0].tolist() == [[2, 2], [2, 2]]
        assert moved(pool(x), 1, 3)[0, 0].tolist() == [[1, 2], [1, 2]]
    for window in (2, 3):
        side = 4 * window
        pool = Cnn((1, side, side), 1, **{**DEEP, "channels": 2, "padding": "circular", "pooling": "max",
                                          "window": window}).body  # fmt: skip
        x = torch.randn(3, 1, side, side)
        assert gap(pool, x, window, 3, answer=1).max() <= EXACT
        for by in range(1, window):
            assert min(gap(pool, x, by, 3, answer=back).max() for back in (0, 1)) > 0.01


@pytest.mark.catalogue("T130")
@pytest.mark.parametrize("pooling", ["max", "average"])
def test_a_pyramid_moves_with_shifts_by_all_its_windows_together(pooling):
    fields = {**DEEP, "channels": [3, 4], "padding": "circular", "pooling": pooling, "window": 2}
    body = Cnn((1, 16, 16), 1, **fields).body
    x = torch.randn(3, 1, 16, 16)
    for by, exact in ((1, False), (2, False), (3, False), (4, True), (8, True)):
        nearest = min(float(gap(body, x, by, 2, answer=back).max()) for back in range(-1, 4))
        assert nearest <= EXACT if exact else nearest > 1e-3


# Networks that do not mind.
def probabilities(model):
    return lambda x: model(x).softmax(1)


def on_ground(seed, count=200, size=12, ground=1):
    """Random pictures with empty last rows and columns."""
    x = torch.randn(count, 1, size, size, generator=torch.Generator().manual_seed(seed))
    x[:, :, size - ground :], x[..., size - ground :] = 0, 0
    return x


@pytest.mark.catalogue("T133")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("pool", ["max", "average"])
def test_padding_by_the_kernel_and_one_pool_give_the_same_wherever_a_thing_is(bias, pool):
    fields = {"channels": [3, 4], "kernel": [3, 5, 3], "bias": bias, "pool": pool}
    model = InvariantCnn((1, 12, 12), 3, **fields)
    assert model.places(torch.zeros(1, 1, 12, 12)).shape == (1, 3, 26, 26)  # 12 + 2 (3+5+3) - (3+5+3) + 3
    x = on_ground(0)
    with torch.no_grad():
        for axis in (2, 3):
            assert equivariance_gap(probabilities(model), x, shifted(1, axis)).max() <= EXACT
        assert equivariance_gap(model, x, shifted(1, 3)).max() <= EXACT * model(x).abs().max().clamp(min=1)
        far = on_ground(1, ground=6)
        for by in range(1, 7):  # n shifts need n empty columns
            assert equivariance_gap(probabilities(model), far, shifted(by, 3)).max() <= EXACT
        assert equivariance_gap(model, far, shifted(7, 3, around=False)).max() > 1e-4


@pytest.mark.catalogue("T133")
def test_with_less_padding_than_a_kernel_needs_a_thing_at_the_border_is_cut():
    fields = {"channels": [3, 4, 3], "kernel": [3, 5, 3], "bias": "none", "readout": "max", "pooling": "none"}
    fields |= {"activation": "relu", "hidden": ()}
    x = on_ground(0)

    def worst(**padding):
        torch.manual_seed(0)
        model = Cnn((1, 12, 12), 3, **fields, **padding)
        for stage in model.body:
            nn.init.normal_(stage.conv.weight)
        with torch.no_grad():
            return float(equivariance_gap(lambda x: model.places(x).softmax(1), x, shifted(1, 3)).max())

    assert worst(pad=[3, 5, 3]) <= EXACT
    assert worst(pad=[2, 4, 2]) <= EXACT  # one less is enough
    assert worst(pad=[1, 3, 1]) > 1e-3
    assert worst(padding="none") > 1e-3


def test_without_bias_the_ground_is_zero_padding_and_with_it_zeros_would_be_seen():
    class Zeros(nn.Module):
        def __init__(self, margin):
            super().__init__()
            self.margin = margin

        def forward(self, x):
            return nn.functional.pad(x, [self.margin] * 4)

    def padded_by_zeros(model):
        model = copy.deepcopy(model)
        for at, kernel in zip((0, 5, 10), (3, 5, 3), strict=True):
            model.body[at] = Zeros(kernel)
        return model

    x = on_ground(0, count=50)
    with torch.no_grad():
        plain = InvariantCnn((1, 12, 12), 3, channels=[3, 4], kernel=[3, 5, 3], bias=False)
        assert torch.equal(padded_by_zeros(plain)(x), plain(x))
        biased = InvariantCnn((1, 12, 12), 3, channels=[3, 4], kernel=[3, 5, 3], pool="average")
        nn.init.constant_(biased.body[1 + 1].bias, 0.7)
        gaps = [equivariance_gap(m.places, x, shifted(1, 3), shifted(1, 3)).max() for m in
                (biased, padded_by_zeros(biased))]  # fmt: skip
    assert gaps[0] <= EXACT and gaps[1] > 1e-2


@pytest.mark.catalogue("S27", "S3-089")
@pytest.mark.parametrize("pool", ["sum", "average", "max"])
@pytest.mark.parametrize("sizes", [(10,), (7, 8), (4, 5, 6)])
def test_layers_that_move_and_a_pool_that_does_not_mind_are_invariant(pool, sizes):
    series = len(sizes) == 1
    fields = {"channels": [4, 4], "kernel": 3, "padding": "circular", "series": series}
    model = InvariantCnn((2, *sizes), 3, pool=pool, **fields).double()
    x = torch.randn(6, 2, *sizes, dtype=F64)
    x = x.transpose(1, 2) if series else x
    with torch.no_grad():
        for axis in range(1 if series else 2, x.ndim - series):
            for by in range(x.shape[axis]):
                assert equivariance_gap(model, x, shifted(by, axis)).max() <= EXACT
        assert (model(x) - model(x.flip(0))).abs().max() > 1e-4  # it does tell inputs apart


@pytest.mark.catalogue("S3-089", "T132")
def test_a_dense_head_or_a_dense_network_minds_where_things_are():
    x = torch.randn(20, 1, 8, 8)
    fields = {"channels": [4], "kernel": 3, "padding": "circular", "pooling": "none", "hidden": ()}
    around, flat = (Cnn((1, 8, 8), 3, readout=how, **fields) for how in ("average", "flatten"))
    dense = Mlp(64, [16], 3)
    with torch.no_grad():
        for by in range(8):
            assert equivariance_gap(around, x, shifted(by, 2)).max() <= EXACT
        assert equivariance_gap(flat, x, shifted(1, 2)).max() > 1e-2
        assert equivariance_gap(dense, x, shifted(1, 2)).max() > 1e-2
