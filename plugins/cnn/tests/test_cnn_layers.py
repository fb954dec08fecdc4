"""Layers of `cnn` on pictures small enough to count by hand."""

from itertools import product

import numpy
import pytest
import torch
import torch.nn.functional as F
from pegboard_cnn.modules import Cnn
from pegboard_mlp.modules import LinearModel
from torch import nn

F64 = torch.float64
PLAIN = {"padding": "none", "bias": "none", "activation": "identity", "pooling": "none", "hidden": ()}
# Brightness that jumps between the second and the third column.
STEP = torch.tensor([[0.0, 0, 1, 1, 1]]).repeat(5, 1)
RISE = [[-1.0, 1], [-1, 1]]


def layer(kernel, picture, **fields):
    """What one layer of the model `cnn` with this kernel gives for a picture, both matrices."""
    kernel, picture = (torch.as_tensor(m, dtype=F64) for m in (kernel, picture))
    model = Cnn((1, *picture.shape), 1, channels=1, kernel=len(kernel), **{**PLAIN, **fields}).double()
    with torch.no_grad():
        model.body[0].conv.weight.copy_(kernel[None, None])
        return model.body(picture[None, None])[0, 0]


def weights(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.catalogue("T111")
@pytest.mark.parametrize(("n", "m", "d"), [(5, 5, 3), (7, 4, 2), (6, 9, 4), (3, 8, 1)])
def test_a_layer_slides_its_kernel_over_a_matrix(n, m, d):
    a, k = torch.randn(n, m, dtype=F64), torch.randn(d, d, dtype=F64)
    places = [[(k * a[i : i + d, j : j + d]).sum() for j in range(m - d + 1)] for i in range(n - d + 1)]
    looped = torch.stack([torch.stack(line) for line in places])
    assert looped.shape == (n - d + 1, m - d + 1)
    torch.testing.assert_close(layer(k, a), looped)
    torch.testing.assert_close(layer(k, a), F.conv2d(a[None, None], k[None, None])[0, 0])


@pytest.mark.catalogue("T113")
def test_a_layer_takes_inner_products_with_patches():
    model = Cnn((3, 7, 6), 1, channels=4, kernel=3, **PLAIN)
    x, k = torch.randn(2, 3, 7, 6), model.body[0].conv.weight
    patches = F.unfold(x, 3)  # (batch, numbers of a patch, places)
    inner = (k.flatten(1) @ patches).reshape(2, 4, 5, 4)
    torch.testing.assert_close(model.body(x), inner, atol=1e-6, rtol=1e-5)
    picture, kernel = x[0, 0].double(), k[0, 0].double()
    frobenius = (picture[2:5, 1:4] * kernel).sum()
    torch.testing.assert_close(layer(kernel, picture)[2, 1], frobenius, atol=1e-6, rtol=0)


@pytest.mark.catalogue("T116")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_kernels_that_are_products_act_one_axis_after_the_other(axes):
    """A layer on series, pictures and solids, whose kernel is a product of one kernel for each axis."""
    kernels = [torch.randn(3, dtype=F64) for _ in range(axes)]
    sizes = [7, 6, 5][:axes]
    model = Cnn((1, *sizes), 1, channels=1, kernel=3, **PLAIN).double()
    whole = kernels[0]
    for kernel in kernels[1:]:
        whole = whole.unsqueeze(-1) * kernel
    assert model.body[0].conv.weight.shape == (1, 1, *whole.shape)
    x = torch.randn(1, 1, *sizes, dtype=F64)
    line = Cnn((1, 7), 1, channels=1, kernel=3, **PLAIN).double()  # the layer of one axis
    expected = x
    with torch.no_grad():
        model.body[0].conv.weight.copy_(whole[None, None])
        for axis, kernel in enumerate(kernels, 2):
            line.body[0].conv.weight.copy_(kernel[None, None])
            moved = expected.movedim(axis, -1)
            rows = line.body(moved.reshape(-1, 1, moved.shape[-1]))
            expected = rows.reshape(*moved.shape[:-1], -1).movedim(-1, axis)
        torch.testing.assert_close(model.body(x), expected)


@pytest.mark.catalogue("S4-068", "S4-069")
def test_a_layer_on_series_correlates_and_so_convolves_with_its_kernel_turned():
    f, h = torch.randn(9, dtype=F64), torch.randn(4, dtype=F64)
    looped = torch.zeros(12, dtype=F64)
    for u, t in product(range(12), range(4)):
        if 0 <= u - t < 9:
            looped[u] += h[t] * f[u - t]
    torch.testing.assert_close(layer(h.flip(0), F.pad(f, (3, 3))), looped, atol=1e-10, rtol=0)
    numpy.testing.assert_allclose(looped, numpy.convolve(f, h), atol=1e-10)
    slid = layer(h, f)
    numpy.testing.assert_allclose(slid, numpy.correlate(f.numpy(), h.numpy(), "valid"), atol=1e-6)
    numpy.testing.assert_allclose(slid, numpy.convolve(f, h.flip(0), "valid"), atol=1e-6)
    assert abs(slid.numpy() - numpy.convolve(f, h, "valid")).max() > 0.1


@pytest.mark.catalogue("S4-070")
def test_a_layer_on_series_is_the_transpose_of_the_matrix_of_a_convolution():
    f, h, y = torch.randn(9, dtype=F64), torch.randn(4, dtype=F64), torch.randn(12, dtype=F64)
    matrix = torch.stack([layer(h, unit) for unit in torch.eye(12, dtype=F64)])  # (12, 9)
    assert (matrix != 0).sum() == 36 and set(matrix[matrix != 0].tolist()) == set(h.tolist())
    assert all(torch.equal(matrix[j : j + 4, j], h) for j in range(9))
    numpy.testing.assert_allclose(matrix @ f, numpy.convolve(f, h), atol=1e-12)
    torch.testing.assert_close(matrix.T @ y, layer(h, y), atol=1e-12, rtol=0)


@pytest.mark.catalogue("S4-071")
def test_a_layer_on_pictures_convolves_with_its_kernel_turned_and_one_axis_after_the_other():
    picture, w = torch.randn(6, 5, dtype=F64), torch.randn(3, 3, dtype=F64)
    looped = torch.zeros(8, 7, dtype=F64)
    for i, j, k, q in product(range(8), range(7), range(3), range(3)):
        if 0 <= i - k < 6 and 0 <= j - q < 5:
            looped[i, j] += picture[i - k, j - q] * w[k, q]
    turned = layer(w.flip(0, 1), F.pad(picture, (2, 2, 2, 2)))
    torch.testing.assert_close(turned, looped, atol=1e-6, rtol=0)
    u, v = torch.randn(2, 3, dtype=F64)
    down, across = torch.zeros(2, 3, 3, dtype=F64)
    down[:, 1], across[1] = u, v
    whole = layer(torch.outer(u, v), picture)
    torch.testing.assert_close(layer(across, layer(down, picture)), whole[1:-1, 1:-1], atol=1e-6, rtol=0)


@pytest.mark.catalogue("S4-067")
@pytest.mark.parametrize("kernel", [3, 4, 5])
def test_a_layer_that_goes_around_is_known_by_its_answer_to_an_impulse(kernel):
    model = Cnn((1, 12), 1, channels=1, kernel=kernel, **{**PLAIN, "padding": "circular"}).double()
    impulse = F.one_hot(torch.tensor(0), 12).to(F64)[None, None]
    with torch.no_grad():
        answer, x = model.body(impulse)[0, 0], torch.randn(20, 12, dtype=F64)
        assert sorted(answer[answer != 0].tolist()) == sorted(model.body[0].conv.weight.flatten().tolist())
        around = torch.stack([answer.roll(j) for j in range(12)], 1)  # its columns, moved down
        torch.testing.assert_close(x @ around.T, model.body(x[:, None])[:, 0], atol=1e-6, rtol=0)


@pytest.mark.catalogue("T112", "T114")
def test_a_cross_on_a_pattern_of_crosses():
    kernel = torch.tensor([[0.0, 1, 0], [1, 2, 1], [0, 1, 0]])
    rows = torch.tensor([[0.0, 1, 0, 1, 0], [1, 2, 1, 2, 1]])
    answer = layer(kernel, torch.cat((rows, rows, rows[:1])))
    assert answer.tolist() == [[8, 6, 8], [6, 4, 6], [8, 6, 8]]
    assert answer.max() == kernel.square().sum()  # where the patch is the kernel itself


@pytest.mark.catalogue("T115", "T122")
def test_an_edge_is_found_and_kept_by_pooling():
    assert layer(RISE, STEP).tolist() == [[0, 2, 0, 0]] * 4
    assert not layer(RISE, torch.full((5, 5), 3.0)).any()
    assert layer(RISE, STEP, pooling="max", window=2).tolist() == [[2, 0], [2, 0]]


@pytest.mark.catalogue("T135")
def test_two_products_of_matrices():
    corner = [[2, 2, -2], [2, 2, -2], [-2, -2, -2]]
    assert layer([[1, -1], [-1, 1]], corner).tolist() == [[0, 0], [0, 4]]
    stairs = [[2, 2, 2, -2, -2], [2, 2, 2, 2, -2], [2] * 5, [100] * 5]
    assert layer([[2, -1, -1], [-2, 1, 1], [0, 0, 0]], stairs).tolist() == [[0, 4, 4], [0, 0, 4]]


@pytest.mark.catalogue("T138", "T139")
def test_kernels_that_scale_crop_and_sum_along_diagonals():
    m = torch.randn(6, 6, dtype=F64)
    torch.testing.assert_close(layer([[2.5]], m), 2.5 * m)
    assert torch.equal(layer([[1.0]], m), m)
    assert torch.equal(layer([[1.0, 0], [0, 0]], m), m[:-1, :-1])
    summed = layer(torch.eye(3), m)
    assert summed.shape == (4, 4)
    torch.testing.assert_close(summed, sum(m[n : n + 4, n : n + 4] for n in range(3)))


@pytest.mark.catalogue("T117")
@pytest.mark.parametrize(("bias", "count"), [("channel", 1), ("place", 5 * 4)])
def test_a_bias_is_one_number_or_one_for_every_place(bias, count):
    model = Cnn((1, 7, 6), 2, channels=1, kernel=3, **{**PLAIN, "bias": bias, "activation": "relu"})
    stage = model.body[0]
    for p in stage.parameters():
        nn.init.normal_(p)
    assert weights(stage) == 9 + count
    b = stage.place.bias if bias == "place" else stage.conv.bias[:, None, None]
    x = torch.randn(4, 1, 7, 6)
    torch.testing.assert_close(stage(x), (F.conv2d(x, stage.conv.weight) + b).relu())


@pytest.mark.catalogue("T118")
def test_a_kernel_has_fewer_weights_than_a_dense_layer_of_the_same_sizes():
    conv = Cnn((1, 28, 28), 1, channels=1, kernel=5, **PLAIN).body[0]
    assert conv(torch.zeros(1, 1, 28, 28)).shape == (1, 1, 24, 24)
    assert weights(conv) == 25
    assert weights(LinearModel(28 * 28, 24 * 24)) == 452_160


@pytest.mark.catalogue("S3-087")
@pytest.mark.parametrize("size", [28, 56])
def test_dense_weights_grow_with_the_fourth_power_of_the_size_and_kernels_do_not(size):
    same = {**PLAIN, "padding": "zero"}
    conv = Cnn((1, size, size), 1, channels=1, kernel=3, **same).body[0]
    assert conv(torch.zeros(1, 1, size, size)).shape[2:] == (size, size)
    with torch.device("meta"):
        dense = LinearModel(size**2, size**2, bias=False)
    assert weights(conv) == 9
    assert weights(dense) == size**4 == 614_656 * (16 if size == 56 else 1)


@pytest.mark.catalogue("T120")
def test_entries_near_the_border_are_used_less_unless_the_border_is_padded():
    def uses(pad, side=7, size=3):
        """How often each entry of a picture is used, as the gradient of a layer of ones counts it."""
        x = torch.ones(1, 1, side, side, requires_grad=True)
        fields = {**PLAIN, "padding": "zero", "pad": pad}
        model = Cnn((1, side, side), 1, channels=1, kernel=size, **fields)
        nn.init.ones_(model.body[0].conv.weight)
        model.body(x).sum().backward()
        return x.grad[0, 0]

    bare = uses(0)
    assert bare[0].tolist() == [1, 2, 3, 3, 3, 2, 1] and bare[0, 0] == 1 and bare[3, 3] == 9
    assert torch.equal(bare, torch.outer(bare[0], bare[0]))
    assert (bare[2:5, 2:5] == 9).all()
    assert torch.equal(bare, F.conv_transpose2d(torch.ones(1, 1, 5, 5), torch.ones(1, 1, 3, 3))[0, 0])
    assert uses(1)[0, 0] == 4 and uses(1)[3, 3] == 9
    assert (uses(2) == 9).all() and (uses(4, side=9, size=5) == 25).all()  # one less than the kernel


@pytest.mark.catalogue("T120")
@pytest.mark.parametrize("pad", [1, 2, 5])
def test_a_padded_layer_reads_zeros_beyond_the_border(pad):
    a, k = torch.randn(4, 6, dtype=F64), torch.randn(3, 3, dtype=F64)
    padded = F.pad(a, (pad, pad, pad, pad))
    assert padded.shape == (4 + 2 * pad, 6 + 2 * pad)
    torch.testing.assert_close(layer(k, a, padding="zero", pad=pad), layer(k, padded))
    # With a kernel of one place that is 1, the layer is the padding itself.
    assert torch.equal(layer([[1.0]], a, padding="zero", pad=pad), padded)


@pytest.mark.catalogue("S3-099")
@pytest.mark.parametrize(
    ("fields", "size"),
    [({"padding": "none"}, 14), ({"pad": 2}, 18), ({"pad": 1, "stride": 2}, 8), ({}, 16)],
)
def test_padding_and_stride_decide_the_size(fields, size):
    fields = {**PLAIN, "padding": "zero", **fields}
    model = Cnn((2, 16, 16), 1, channels=3, kernel=3, **fields)
    with torch.no_grad():  # numbers of few bits, whose sums are exact in any order
        for parameter in model.parameters():
            parameter.copy_((8 * parameter).round())
    x = torch.randn(1, 2, 16, 16).mul(8).round()
    y = model.body(x)
    assert y.shape == (1, 3, size, size)
    dense = Cnn((2, 16, 16), 1, channels=3, kernel=3, **{**fields, "stride": 1})
    dense.body.load_state_dict(model.body.state_dict())
    step = fields.get("stride", 1)
    assert torch.equal(y, dense.body(x)[..., ::step, ::step])


@pytest.mark.catalogue("T124", "S3-100")
def test_channels_are_sums_over_channels():
    model = Cnn((3, 8, 7), 1, channels=4, kernel=3, **{**PLAIN, "activation": "relu"})
    kernel, x = model.body[0].conv.weight, torch.randn(2, 3, 8, 7)
    assert weights(model.body) == kernel.numel() == 3 * 4 * 9
    assert weights(Cnn((3, 8, 7), 1, channels=4, kernel=3, **{**PLAIN, "bias": "channel"}).body) == 108 + 4
    looped = torch.zeros(2, 4, 6, 5)
    for out, into in product(range(4), range(3)):
        looped[:, out] += F.conv2d(x[:, into : into + 1], kernel[None, None, out, into])[:, 0]
    torch.testing.assert_close(model.body(x), looped.relu(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(model.body(x), F.conv2d(x, kernel).relu(), atol=1e-6, rtol=1e-5)
    pooled = Cnn((3, 8, 6), 1, channels=4, kernel=3, **{**PLAIN, "pooling": "max", "window": 2})
    x = torch.randn(2, 3, 8, 6)
    each = [F.max_pool2d(pooled.body[0].conv(x)[:, c : c + 1], 2) for c in range(4)]
    assert torch.equal(pooled.body(x), torch.cat(each, 1))


@pytest.mark.catalogue("S4-072")
def test_a_layer_from_colours_to_sixteen_channels():
    layer = Cnn((3, 32, 32), 1, channels=16, kernel=3, **{**PLAIN, "bias": "channel"}).body[0].double()
    assert weights(layer) == 3 * 16 * 9 + 16 == 448
    x = torch.randn(2, 3, 32, 32, dtype=F64)
    y = layer(x)
    with torch.device("meta"):
        assert weights(LinearModel(x[0].numel(), y[0].numel())) == 44_251_200
    parts = sum(F.conv2d(x[:, c : c + 1], layer.conv.weight[:, c : c + 1]) for c in range(3))
    torch.testing.assert_close(parts + layer.conv.bias[:, None, None], y, atol=1e-6, rtol=0)


@pytest.mark.catalogue("S3-101")
def test_weights_are_shared_and_an_output_sees_a_patch():
    small, large = (Cnn((2, n, n), 1, channels=3, kernel=3, **PLAIN).body for n in (6, 40))
    assert weights(small) == weights(large) == 2 * 3 * 9
    jacobian = torch.autograd.functional.jacobian(lambda x: small(x)[0], torch.randn(1, 2, 6, 6))
    for channel, row, column in product(range(3), range(4), range(4)):
        seen = jacobian[channel, row, column, 0] != 0
        assert seen.sum((1, 2)).tolist() == [9, 9]
        assert seen[:, row : row + 3, column : column + 3].all()
    for out, into in product(range(3), range(2)):
        unrolled = jacobian[out, :, :, 0, into]
        assert len(unrolled[unrolled != 0].unique()) == 9


@pytest.mark.catalogue("S3-091")
@pytest.mark.parametrize(("depth", "kernel"), [(1, 3), (2, 3), (3, 3), (2, 5)])
def test_what_a_layer_sees_grows_with_depth_and_is_the_same_everywhere(depth, kernel):
    sees = 1 + depth * (kernel - 1)
    fields = {**PLAIN, "padding": "circular", "activation": "tanh"}
    body = Cnn((1, 16, 16), 1, channels=[2] * depth, kernel=kernel, **fields).body
    x = torch.randn(1, 1, 16, 16, requires_grad=True)
    body(x)[0, 0, 8, 8].backward()
    support = (x.grad[0, 0] != 0).nonzero()
    assert (support.amax(0) - support.amin(0) + 1).tolist() == [sees, sees]
    # The same patch in two pictures and places gives the same feature in the middle of it.
    patch, half = torch.randn(sees, sees), sees // 2
    pictures = torch.randn(2, 1, 16, 16)
    places = ((0, 0), (16 - sees, 3))
    for picture, (row, column) in zip(pictures, places, strict=True):
        picture[0, row : row + sees, column : column + sees] = patch
    y = body(pictures)
    found = [y[i, :, row + half, column + half] for i, (row, column) in enumerate(places)]
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=0)


# Pooling.
def pool(x, window=2, how="max"):
    """What the pooling of the model `cnn` gives for a matrix."""
    x = torch.as_tensor(x, dtype=F64)
    return layer([[1.0]], x, pooling=how, window=window)


@pytest.mark.catalogue("T121", "S4-073", "S3-102")
def test_pooling_takes_the_largest_or_the_mean_of_blocks():
    x = torch.arange(16.0).reshape(4, 4)
    assert pool(x).tolist() == [[5, 7], [13, 15]]
    assert pool(x, how="average").tolist() == [[2.5, 4.5], [10.5, 12.5]]
    overlapping = F.max_pool2d(x[None], 2, stride=1)[0]
    assert overlapping.tolist() == [[5, 6, 7], [9, 10, 11], [13, 14, 15]]  # it does not make it smaller
    for n, m, d in ((6, 9, 3), (8, 4, 2), (10, 5, 5)):
        x = torch.randn(n, m, dtype=F64)
        blocks = torch.stack([torch.stack([b.amax() for b in r.split(d, 1)]) for r in x.split(d)])
        assert blocks.shape == (n // d, m // d)
        assert torch.equal(pool(x, d), blocks)
        assert torch.equal(pool(x, d), F.max_pool2d(x[None], d)[0])


@pytest.mark.catalogue("S4-073")
def test_order_inside_a_block_does_not_matter_and_the_largest_alone_has_a_gradient():
    x = torch.randn(6, 6, dtype=F64)
    blocks = x.reshape(3, 2, 3, 2).permute(0, 2, 1, 3).reshape(3, 3, 4)
    mixed = blocks[..., [2, 0, 3, 1]].reshape(3, 3, 2, 2).permute(0, 2, 1, 3).reshape(6, 6)
    assert not torch.equal(mixed, x) and torch.equal(pool(mixed), pool(x))
    model = Cnn((1, 6, 6), 1, channels=1, kernel=1, **{**PLAIN, "pooling": "max"})
    nn.init.ones_(model.body[0].conv.weight)
    picture = x.float()[None, None].requires_grad_()
    model.body(picture).sum().backward()
    assert torch.equal(picture.grad[0, 0] != 0, torch.isin(x, pool(x)))


@pytest.mark.catalogue("S3-102")
def test_a_maximum_that_stays_in_its_block_may_move():
    x = torch.zeros(8, 8)
    x[2, 4] = x[6, 0] = 1  # each at the left of its block
    assert torch.equal(pool(x.roll(1, 1)), pool(x))
    assert not torch.equal(pool(x.roll(2, 1)), pool(x))
    assert pool(x).shape == (4, 4)


@pytest.mark.catalogue("T141")
def test_pooling_to_zero_means_zero_unless_something_is_negative():
    # Of numbers that are not negative one alone is enough, wherever it is.
    for place in range(36):
        alone = torch.zeros(36)
        alone[place] = 1e-3
        assert int((pool(alone.view(6, 6)) > 0).sum()) == 1
    for seed in range(20):
        x = torch.rand(6, 6, generator=torch.Generator().manual_seed(seed))
        assert (pool(x) == 0).sum() == 0
    assert not pool(torch.zeros(6, 6)).any()
    one_zero = torch.tensor([[0.0, -1], [-1, -1]]).repeat(3, 3)
    assert one_zero.shape == (6, 6) and one_zero.any() and not pool(one_zero).any()


@pytest.mark.catalogue("T142")
def test_pooling_scales_with_its_input_and_is_not_linear():
    x = torch.randn(4, 4, dtype=F64)
    for scale in (0, 0.3, 7):
        torch.testing.assert_close(pool(scale * x), scale * pool(x), atol=1e-6, rtol=0)
    assert not torch.allclose(pool(-x), -pool(x))
    a, b = torch.zeros(2, 4, 4)
    a[0, 0] = b[0, 1] = 1
    assert pool(a + b)[0, 0] == 1
    assert (pool(a) + pool(b))[0, 0] == 2
    # One block for all: turned round, the largest stays only where the least is its negative.
    even = torch.tensor([[3.0, -3], [1, 2]])
    assert pool(-even) == pool(even) and pool(-torch.tensor([[3.0, -2], [1, 2]])) == 2
