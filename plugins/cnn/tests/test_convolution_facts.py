"""What a convolution is: of functions, of sequences, of pictures, as a matrix, and what torch computes."""

import numpy
import pytest
import torch
import torch.nn.functional as F
from pegboard_cnn.invariant import InvariantCnn
from pegboard_cnn.modules import Cnn
from pegboard_cnn.shifts import equivariance_gap, moved
from pegboard_mlp.modules import LinearModel
from scipy.signal import convolve2d
from torch import nn

F64 = torch.float64
PLAIN = {"padding": "none", "bias": "none", "activation": "identity", "pooling": "none", "hidden": ()}


@pytest.fixture
def rng():
    return numpy.random.default_rng(0)


def circulant(column):
    """The matrix whose column j is `column` moved down by j."""
    return torch.stack([column.roll(j) for j in range(len(column))], 1)


@pytest.mark.catalogue("T109", "S4-065")
def test_convolution_of_functions_commutes(rng):
    x = numpy.arange(-6, 6.0005, 0.01)
    f, g = numpy.exp(-((x - 1) ** 2)), numpy.maximum(0, 1 - abs(x + 0.5))
    assert abs(numpy.convolve(f, g) - numpy.convolve(g, f)).max() * 0.01 < 1e-10
    # Two bells by the trapezium rule: the integral over t of h(u - t) f(t), and with f and h exchanged.
    t = numpy.arange(-12, 12.0005, 0.01)

    def bell(x, middle, width):
        return numpy.exp(-(((x - middle) / width) ** 2))

    for u in (-1.3, 0.2, 2.5):
        one = numpy.trapezoid(bell(u - t, 0.5, 0.7) * bell(t, -0.4, 1.1), t)
        other = numpy.trapezoid(bell(t, 0.5, 0.7) * bell(u - t, -0.4, 1.1), t)
        known = numpy.sqrt(numpy.pi) * 0.7 * 1.1 / numpy.hypot(0.7, 1.1) * bell(u, 0.1, numpy.hypot(0.7, 1.1))
        assert abs(one - other) < 1e-10 and abs(one - known) < 1e-10
    a, b = rng.normal(size=(2, 9, 9))
    assert abs(convolve2d(a, b) - convolve2d(b, a)).max() < 1e-10


def layer(kernel, x, **fields):
    """What one layer of the model `cnn` with this kernel gives for a sequence or a picture."""
    model = Cnn((1, *x.shape), 1, channels=1, kernel=len(kernel), **{**PLAIN, **fields}).double()
    with torch.no_grad():
        model.body[0].conv.weight.copy_(kernel[None, None])
        return model.body(x[None, None])[0, 0]


@pytest.mark.catalogue("S3-093", "S4-065")
def test_sequences_commute_under_convolution_and_not_under_correlation(rng):
    f, h = rng.normal(size=11), rng.normal(size=4)
    assert abs(numpy.convolve(f, h) - numpy.convolve(h, f)).max() < 1e-12
    assert abs(numpy.correlate(f, h, "full") - numpy.correlate(h, f, "full")).max() > 0.1
    # A layer slides its kernel unturned, which is a correlation; with the kernel turned it is a convolution.
    x, y = torch.as_tensor(rng.normal(size=(2, 7)))
    for edge in ({"padding": "circular"}, {"padding": "zero", "pad": 6}):
        turned = [layer(b.flip(0), a, **edge) for a, b in ((x, y), (y, x))]
        assert (turned[0] - turned[1]).abs().max() < 1e-12
        slid = [layer(b, a, **edge) for a, b in ((x, y), (y, x))]
        assert (slid[0] - slid[1]).abs().max() > 0.1
    around = circulant(x) @ y
    assert (around - circulant(y) @ x).abs().max() < 1e-12
    assert (around - layer(y.flip(0), x, padding="circular").roll(3)).abs().max() < 1e-12


@pytest.mark.catalogue("T110")
def test_a_box_averages_what_came_before():
    step, width = 0.001, 0.5
    t = numpy.arange(-2, 2, step)
    box = numpy.full(int(width / step), 1 / width)
    averaged = numpy.convolve(t, box)[: len(t)] * step
    at = len(t) // 2 + 300
    assert abs(averaged[at] - (t[at] - width / 2)) < 1e-3
    assert abs(averaged[at] - (t[at] + width / 2)) > 0.4
    # A layer of this kernel stands at the first of what it averages, and so at x + width / 2.
    slid = layer(torch.as_tensor(box) * step, torch.as_tensor(t))
    assert abs(float(slid[at]) - (t[at] + width / 2)) < 1e-3
    numpy.testing.assert_allclose(slid, averaged[len(box) - 1 :], atol=1e-9)


@pytest.mark.catalogue("S3-092")
def test_two_pulses_make_a_triangle():
    step = 0.001
    pulse = numpy.ones(int(1 / step))
    triangle = numpy.convolve(pulse, pulse) * step
    assert triangle.max() == pytest.approx(1, abs=1e-3)
    assert (triangle > 0).sum() * step == pytest.approx(2, abs=1e-3 + 1e-12)
    assert triangle.sum() * step == pytest.approx(1, abs=1e-3)


@pytest.mark.catalogue("S3-096", "S4-068")
def test_the_sum_over_a_sequence_is_numpys_and_torchs_with_the_kernel_turned(rng):
    f, h = rng.normal(size=9), rng.normal(size=4)
    n, m = len(f), len(h)
    looped = numpy.zeros(n + m - 1)
    for u in range(n + m - 1):
        for t in range(m):
            if 0 <= u - t < n:
                looped[u] += h[t] * f[u - t]
    assert len(numpy.convolve(f, h)) == n + m - 1
    numpy.testing.assert_allclose(looped, numpy.convolve(f, h), atol=1e-10)
    x, k = torch.as_tensor(f)[None, None], torch.as_tensor(h)[None, None]
    numpy.testing.assert_allclose(F.conv1d(x, k.flip(-1), padding=m - 1)[0, 0], looped, atol=1e-10)
    ours = layer(k[0, 0].flip(0), x[0, 0], padding="zero", pad=m - 1)
    numpy.testing.assert_allclose(ours, looped, atol=1e-10)


@pytest.mark.catalogue("S4-069")
def test_torch_correlates(rng):
    x, h = rng.normal(size=12), rng.normal(size=3)
    torchs = F.conv1d(torch.as_tensor(x)[None, None], torch.as_tensor(h)[None, None])[0, 0].numpy()
    numpy.testing.assert_allclose(torchs, numpy.correlate(x, h, "valid"), atol=1e-6)
    numpy.testing.assert_allclose(torchs, numpy.convolve(x, h[::-1], "valid"), atol=1e-6)
    assert abs(torchs - numpy.convolve(x, h, "valid")).max() > 0.1
    numpy.testing.assert_allclose(
        numpy.correlate(x, h, "full"), numpy.convolve(x, h[::-1], "full"), atol=1e-12
    )


@pytest.mark.catalogue("T114")
def test_a_kernel_finds_what_looks_like_it():
    found = 0
    for trial in range(100):
        generator = torch.Generator().manual_seed(trial)
        kernel = torch.randn(5, 5, generator=generator)
        picture = 0.5 * torch.randn(24, 24, generator=generator)
        row, column = torch.randint(20, (2,), generator=generator).tolist()
        picture[row : row + 5, column : column + 5] += kernel
        # By Cauchy and Schwarz the product is at most the product of norms, so it is divided by the patch's.
        answer = layer(kernel, picture.double())
        norm = layer(torch.ones(5, 5), picture.double().square()).sqrt()
        assert (answer <= kernel.norm() * norm * (1 + 1e-5)).all()
        found += (answer / norm).argmax() == row * 20 + column
    assert found >= 95


@pytest.mark.catalogue("S3-098", "S4-071")
def test_the_sum_over_a_picture_is_scipys_and_torchs_with_the_kernel_turned(rng):
    f, g = rng.normal(size=(6, 5)), rng.normal(size=(3, 3))
    looped = numpy.zeros((8, 7))
    for k in range(3):
        for q in range(3):
            looped[k : k + 6, q : q + 5] += g[k, q] * f
    numpy.testing.assert_allclose(looped, convolve2d(f, g), atol=1e-12)
    picture, turned = torch.as_tensor(f)[None, None], torch.as_tensor(g).flip(0, 1)[None, None]
    numpy.testing.assert_allclose(F.conv2d(picture, turned, padding=2)[0, 0], looped, atol=1e-6)
    ours = layer(turned[0, 0], picture[0, 0], padding="zero", pad=2)
    numpy.testing.assert_allclose(ours, looped, atol=1e-10)
    impulse = torch.zeros(1, 1, 3, 3, dtype=F64)
    impulse[..., 1, 1] = 1
    assert torch.equal(F.conv2d(picture, impulse, padding=1), picture)
    assert torch.equal(layer(impulse[0, 0], picture[0, 0], padding="zero"), picture[0, 0])
    colours = torch.randn(1, 3, 6, 5, dtype=F64)
    each = F.conv2d(colours, turned.expand(3, 1, 3, 3), padding=2, groups=3)
    for channel in range(3):
        numpy.testing.assert_allclose(each[0, channel], convolve2d(colours[0, channel], g), atol=1e-12)
    u, v = (torch.randn(3, dtype=F64) for _ in range(2))
    whole = F.conv2d(picture, torch.outer(u, v)[None, None])
    torch.testing.assert_close(
        F.conv2d(F.conv2d(picture, u[None, None, :, None]), v[None, None, None]), whole
    )


@pytest.mark.catalogue("T119")
def test_a_convolution_is_a_sparse_matrix_with_few_different_numbers():
    conv = Cnn((1, 3, 3), 1, channels=1, kernel=2, **PLAIN).double().body
    dense = LinearModel(9, 4, bias=False).double()
    kernel, x = conv[0].conv.weight, torch.arange(1.0, 10, dtype=F64).reshape(1, 1, 3, 3)
    with torch.no_grad():
        kernel.copy_(torch.tensor([[2.0, 3], [5, 7]]))
    answer = conv(x)
    assert answer.flatten().tolist() == [63, 80, 114, 131]
    matrix = conv(torch.eye(9, dtype=F64).reshape(9, 1, 3, 3)).detach().reshape(9, 4).T
    assert matrix[0].tolist() == [2, 3, 0, 5, 7, 0, 0, 0, 0]
    assert (matrix != 0).sum() == 16 and set(matrix[matrix != 0].tolist()) == {2, 3, 5, 7}
    with torch.no_grad():
        dense.head.weight.copy_(matrix)
    assert torch.equal(dense(x.flatten(1)), answer.flatten(1))
    # The gradient of a shared weight is the sum over the four places where it acts.
    slope = torch.randn(4, dtype=F64)
    (answer.flatten() @ slope).backward()
    (dense(x.flatten(1)) @ slope).backward()
    for weight, value in zip(kernel.grad.flatten(), (2.0, 3.0, 5.0, 7.0), strict=True):
        places = matrix == value
        assert places.sum() == 4
        torch.testing.assert_close(weight, dense.head.weight.grad[places].sum())


@pytest.mark.catalogue("S4-070")
def test_the_matrix_of_a_convolution_and_its_transpose():
    f, h = torch.randn(9, dtype=F64), torch.randn(4, dtype=F64)
    matrix = torch.zeros(12, 9, dtype=F64)
    for j in range(9):
        matrix[j : j + 4, j] = h
    assert (matrix != 0).sum() == 36 and len(matrix[matrix != 0].unique()) == 4
    numpy.testing.assert_allclose(matrix @ f, numpy.convolve(f, h), atol=1e-12)
    torch.testing.assert_close(matrix @ f, F.conv_transpose1d(f[None, None], h[None, None])[0, 0])
    y = torch.randn(12, dtype=F64)
    torch.testing.assert_close(matrix.T @ y, F.conv1d(y[None, None], h[None, None])[0, 0])


@pytest.mark.catalogue("S3-097")
def test_a_circulant_matrix_correlates_and_its_transpose_convolves():
    """The matrix of a layer that goes around, whose kernel is as long as its sequence."""
    f, g = torch.randn(2, 8, dtype=F64)
    # Its kernel begins three places before a place, so the answer of a place stands three places later.
    columns = [layer(g, unit, padding="circular").roll(-3) for unit in torch.eye(8, dtype=F64)]
    matrix = torch.stack(columns, 1)
    assert torch.equal(matrix, circulant(g).T)  # first row g, each next one moved to the right
    assert torch.equal(matrix[0], g) and matrix[1, 0] == g[-1]
    around = torch.fft.ifft(torch.fft.fft(f) * torch.fft.fft(g)).real
    torch.testing.assert_close(matrix.T @ f, around, atol=1e-10, rtol=0)
    correlated = F.conv1d(torch.cat((f, f[:-1]))[None, None], g[None, None])[0, 0]
    torch.testing.assert_close(layer(g, f, padding="circular").roll(-3), correlated, atol=1e-10, rtol=0)
    torch.testing.assert_close(matrix @ f, correlated, atol=1e-10, rtol=0)
    assert (matrix @ f - around).abs().max() > 0.1
    turned = layer(g.flip(0), f, padding="circular").roll(4)  # the layer with its kernel turned convolves
    torch.testing.assert_close(turned, around, atol=1e-10, rtol=0)


@pytest.mark.catalogue("T136", "S3-095")
def test_a_convolution_is_linear_in_its_kernel_and_in_its_picture():
    (k, q), (a, b) = torch.randn(2, 1, 1, 3, 3, dtype=F64), torch.randn(2, 1, 1, 7, 6, dtype=F64)
    for left, right in (
        (F.conv2d(a, k + q), F.conv2d(a, k) + F.conv2d(a, q)),
        (F.conv2d(a + b, k), F.conv2d(a, k) + F.conv2d(b, k)),
        (F.conv2d(a, 1.7 * k), 1.7 * F.conv2d(a, k)),
        (F.conv2d(1.7 * a, k), 1.7 * F.conv2d(a, k)),
    ):
        torch.testing.assert_close(left, right, atol=1e-12, rtol=0)
    for bias, linear in (("none", True), ("channel", False)):
        body = Cnn((1, 7, 6), 1, channels=2, kernel=3, **{**PLAIN, "bias": bias}).double().body
        with torch.no_grad():
            if not linear:
                body[0].conv.bias.fill_(0.3)
            added = (body(a + b) - body(a) - body(b)).abs().max() < 1e-12
            scaled = (body(1.7 * a) - 1.7 * body(a)).abs().max() < 1e-12
        assert bool(added) is bool(scaled) is linear


@pytest.mark.catalogue("T137")
def test_matrices_of_one_size_commute_and_others_have_no_product(rng):
    a, b = torch.randn(2, 4, 4, dtype=F64)
    inner = (a * b).sum()
    for kernel, picture in ((a, b), (b, a)):
        assert layer(kernel, picture).shape == (1, 1)
        torch.testing.assert_close(layer(kernel, picture)[0, 0], inner)
    assert layer(a, torch.randn(6, 6, dtype=F64)).shape == (3, 3)
    with pytest.raises(ValueError, match="leaves nothing of the shape"):
        layer(torch.randn(6, 6), a)
    f, g = rng.normal(size=(2, 200))
    assert abs(numpy.convolve(f, g) - numpy.convolve(g, f)).max() < 1e-12


@pytest.mark.catalogue("T140")
def test_padding_is_linear():
    a, b = torch.randn(2, 5, 6, dtype=F64)
    padded = [F.pad(m, (2, 2, 2, 2)) for m in (a + 0.5 * b, a, b)]
    assert torch.equal(padded[0], padded[1] + 0.5 * padded[2])
    assert torch.equal(nn.ZeroPad2d(2)(a[None])[0], padded[1])
    # A layer whose kernel is 1 is its padding.
    one = torch.ones(1, 1)
    layers = [layer(one, m, padding="zero", pad=2) for m in (a + 0.5 * b, a, b)]
    assert all(torch.equal(x, y) for x, y in zip(layers, padded, strict=True))
    assert torch.equal(layers[0], layers[1] + 0.5 * layers[2])


@pytest.mark.catalogue("S28", "S3-094", "S4-067")
@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_linear_maps_that_commute_with_shifts_are_convolutions_and_no_others(n):
    shift = torch.eye(n, dtype=F64).roll(1, 0)
    # vec(M P - P M) = (P' x I - I x P) vec(M): its null space are the maps that commute with the shift.
    eye = torch.eye(n, dtype=F64)
    equations = torch.kron(shift.T.contiguous(), eye) - torch.kron(eye, shift)
    values = torch.linalg.svdvals(equations)
    assert (values < 1e-10).sum() == n
    _, _, rows = torch.linalg.svd(equations)
    for solution in rows[-n:]:
        matrix = solution.reshape(n, n).T
        assert (matrix - circulant(matrix[:, 0])).abs().max() < 1e-10
        x = torch.randn(n, dtype=F64)
        slid = F.conv1d(torch.cat((x, x[:-1]))[None, None], matrix[0][None, None])[0, 0]
        torch.testing.assert_close(matrix @ x, slid, atol=1e-10, rtol=0)
    dense = torch.randn(n, n, dtype=F64)
    assert (dense @ shift - shift @ dense).abs().max() > 0.1


@pytest.mark.catalogue("S3-094", "S4-067")
def test_a_layer_of_circular_convolution_is_known_by_its_answer_to_an_impulse():
    n = 12
    layer = nn.Conv1d(1, 1, 5, padding=2, padding_mode="circular", bias=False).double()
    impulse = torch.zeros(1, 1, n, dtype=F64)
    impulse[..., 0] = 1
    with torch.no_grad():
        kernel, x = layer(impulse)[0, 0], torch.randn(20, n, dtype=F64)
        torch.testing.assert_close(x @ circulant(kernel).T, layer(x[:, None])[:, 0], atol=1e-6, rtol=0)
    dense = torch.randn(n, n, dtype=F64)
    averaged = sum(dense.roll((u, u), (0, 1)) for u in range(n)) / n
    assert (averaged - circulant(averaged[:, 0])).abs().max() < 1e-12
    assert (dense - circulant(dense[:, 0])).abs().max() > 1
    shift = torch.eye(n, dtype=F64).roll(1, 0)
    powers = sum(k * torch.linalg.matrix_power(shift, i) for i, k in enumerate(kernel))
    assert torch.equal(powers @ shift, shift @ powers) and torch.equal(powers[:, 0], kernel)


@pytest.mark.catalogue("S29")
def test_an_integral_operator_moves_with_its_input_only_where_its_kernel_depends_on_the_difference():
    """A dense layer has any kernel K(u, w); a convolution that goes around has those of the difference."""
    n = 63
    u = torch.arange(n, dtype=F64) / n
    apart = u[:, None] - u
    angle = 2 * torch.pi
    x = (torch.sin(angle * u) + 0.3 * torch.cos(3 * angle * u + 1))[None]

    def gap(kernel):
        layer = LinearModel(n, n, bias=False).double()
        with torch.no_grad():
            layer.head.weight.copy_(kernel / n)
            turns = (lambda t, by=by: moved(t, by, 1) for by in range(n))
            return max(float(equivariance_gap(layer, x, turn, turn).max()) for turn in turns), layer(x)

    even = (torch.cos(angle * apart) - 1).exp() * (2 + torch.sin(angle * apart))
    least, found = gap(even)
    assert least < 1e-6
    assert gap(even * (1 + 0.2 * u[:, None]))[0] > 1e-3
    assert gap(torch.cos(angle * (u[:, None] + u)))[0] > 1e-3
    fields = {"channels": [1], "kernel": n, "padding": "circular", "series": True, "bias": False}
    around = InvariantCnn((1, n), 1, **fields).double()
    first = around.body[:3]  # its peg, what goes around, its convolution
    with torch.no_grad():
        first[2].weight.copy_(even[n // 2] / n)
        torch.testing.assert_close(first(x[None])[0], found, atol=1e-12, rtol=0)


@pytest.mark.catalogue("S4-066")
def test_the_convolution_of_a_moved_function_is_moved_the_same_way():
    t = numpy.arange(-12, 12.0005, 0.01)

    def f(t):
        return numpy.exp(-((t - 0.3) ** 2))

    def h(t):
        return numpy.exp(-(((t + 0.4) / 0.6) ** 2))

    def convolved(g, u):
        return numpy.trapezoid(h(u - t) * g(t), t)

    delta = 0.7
    for u in (-1.0, 0.0, 1.3):
        ahead = convolved(lambda t: f(t + delta), u)
        assert abs(ahead - convolved(f, u + delta)) < 1e-10
        assert abs(ahead - convolved(f, u - delta)) > 1e-3
