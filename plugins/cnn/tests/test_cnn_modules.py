"""The pyramid as an ordinary module, against torch's functions and against itself without padding."""

import itertools

import pytest
import torch
from pegboard.planning.pegs import find
from pegboard.testing.modules import Affine
from pegboard_cnn.lenet import LeNet
from pegboard_cnn.modules import Cnn, Line, PlaceBias, SequenceCnn, Text
from pegboard_cnn.sizes import Layer
from torch.nn import functional as F

SIZES = (16, 15, 14)
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
POOLS = {
    "max": {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d},
    "average": {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d},
}


def count(model):
    return sum(p.numel() for p in model.parameters())


def layer(x, stage, kernel, stride, dilation, groups, padding, pad, pooling, window):
    """A layer written out with torch's functions; all that is added at borders is added by hand."""
    axes, total = x.dim() - 2, dilation * (kernel - 1)
    before, after = (pad, pad) if pad is not None else (total // 2, total - total // 2)
    if padding == "none":
        before = after = 0
    for axis in range(2, x.dim()):
        if padding == "circular":
            size = x.shape[axis]
            x = x.index_select(axis, torch.arange(-before, size + after) % size)
        else:
            shape = list(x.shape)
            shape[axis] = before
            first = torch.zeros(shape)
            shape[axis] = after
            x = torch.cat((first, x, torch.zeros(shape)), axis)
    x = CONVOLUTIONS[axes](x, stage.conv.weight, stage.conv.bias, stride, 0, dilation, groups).relu()
    return x if pooling == "none" else POOLS[pooling][axes](x, window)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("padding", ["zero", "circular", "none"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "groups", "pad", "pooling", "window"),
    [
        ((3, 2), 1, 1, 1, None, "max", 2),
        ((4, 3), (2, 1), (1, 2), (1, 2), None, "average", (1, 2)),
        (2, 1, (2, 1), 2, (0, 3), "none", 2),
    ],
)
def test_a_pyramid_equals_torchs_functions(
    axes, padding, kernel, stride, dilation, groups, pad, pooling, window
):
    fields = {"kernel": kernel, "stride": stride, "dilation": dilation, "groups": groups, "window": window}
    pad = None if padding == "none" else pad
    model = Cnn((2, *SIZES[:axes]), 3, channels=(4, 6), padding=padding, pad=pad, pooling=pooling, **fields)
    x = torch.randn(2, 2, *SIZES[:axes])
    one = [
        {k: v[at] if isinstance(v, tuple) else v for k, v in {**fields, "pad": pad}.items()} for at in (0, 1)
    ]
    y = x
    for stage, numbers in zip(model.body, one, strict=True):
        y = layer(y, stage, padding=padding, pooling=pooling, **numbers)
    expected = model.head(model.dense[0](y.flatten(1)).relu())
    torch.testing.assert_close(model(x), expected)
    shape = list(SIZES[:axes])
    for numbers in one:
        window = 1 if pooling == "none" else numbers["window"]
        stage = Layer(1, **{**numbers, "window": window}, padding=padding)
        shape = [stage.size(n) for n in shape]
    assert list(y.shape[2:]) == shape


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dilation", [1, 2])
def test_padding_keeps_the_size_and_a_stride_divides_it(kernel, dilation):
    for size, stride in itertools.product((8, 9), (1, 2, 3)):
        stage = Layer(1, kernel, stride, dilation)
        assert stage.convolved(size) == -(-size // stride)
        assert Layer(1, kernel, stride, dilation, window=2).least(3) == min(
            n for n in range(1, 99) if Layer(1, kernel, stride, dilation, window=2).size(n) >= 3
        )


def test_the_readout_is_flat_or_global_and_dense_layers_follow():
    x = torch.randn(3, 1, 8, 8)
    for readout, over in (
        ("max", lambda y: y.flatten(2).max(2)[0]),
        ("average", lambda y: y.flatten(2).mean(2)),
    ):
        model = Cnn((1, 8, 8), 5, channels=(4,), readout=readout, hidden=(7, 6), activation="tanh")
        y = over(F.max_pool2d(F.conv2d(x, *model.body[0].conv.parameters(), padding=1).tanh(), 2))
        torch.testing.assert_close(model.features(x), y)
        for at in (0, 4):
            y = model.dense[at](y).tanh()
        torch.testing.assert_close(model(x), model.head(y))
    assert Cnn((1, 8, 8), 5, channels=(4,), hidden=()).head.in_features == 4 * 4 * 4


def test_branches_read_the_input_side_by_side():
    model = Cnn((2, 9), 3, channels=(4, 5), kernel=(3, 4), branches=True, hidden=())
    x = torch.randn(6, 2, 9)
    one = F.conv1d(x, *model.body[0].conv.parameters(), padding=1).relu().amax(2)
    two = F.conv1d(F.pad(x, (1, 2)), *model.body[1].conv.parameters()).relu().amax(2)
    torch.testing.assert_close(model(x), model.head(torch.cat((one, two), 1)))


def test_a_bias_may_belong_to_each_place_or_be_absent():
    model = Cnn((1, 6, 5), 2, channels=(3,), padding="none", bias="place", window=1)
    assert model.body[0].place.bias.shape == (3, 4, 3) and model.body[0].conv.bias is None
    assert isinstance(model.body[0].place, PlaceBias)
    torch.nn.init.normal_(model.body[0].place.bias)
    x = torch.randn(2, 1, 6, 5)
    y = (F.conv2d(x, model.body[0].conv.weight) + model.body[0].place.bias).relu()
    torch.testing.assert_close(model.features(x), y.flatten(1))
    assert not any(
        "body" in name and "bias" in name for name, _ in Cnn((1, 6, 5), 2, bias="none").named_parameters()
    )


def test_a_shape_that_nothing_is_left_of_is_an_error():
    with pytest.raises(ValueError, match=r"layer 2 leaves nothing of the shape \(1, 3, 3\)"):
        Cnn((1, 3, 3), 2)
    with pytest.raises(ValueError, match="lists for different numbers of layers: channels 2, kernel 3"):
        Cnn((1, 30, 30), 2, kernel=(3, 3, 3))


def test_pictures_may_lie_with_their_channels_innermost():
    x = torch.randn(2, 3, 12, 12)
    model = Cnn((3, 12, 12), 4)
    expected = model(x)
    seen = []
    model.body[1].conv.register_forward_hook(lambda module, inputs, output: seen.append(output))
    model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


# Sequences that end early.

FIELDS = [
    {"channels": (5, 6), "readout": "max"},
    {"channels": (5, 6), "readout": "average", "activation": "sigmoid", "pooling": "average"},
    {"channels": (5, 6), "readout": "flatten", "kernel": (2, 4), "activation": "softplus"},
    {
        "channels": (5, 6),
        "readout": "max",
        "padding": "none",
        "kernel": 2,
        "stride": (2, 1),
        "window": (1, 2),
    },
    {"channels": (5, 6), "readout": "average", "dilation": 2, "pad": (3, 1), "window": (3, 1)},
    {"channels": 5, "kernel": (2, 3, 4), "branches": True, "padding": "none", "hidden": ()},
    {"channels": 5, "kernel": (2, 5), "branches": True, "readout": "flatten", "activation": "sigmoid"},
]
LENGTHS = (12, 7, 4, 2, 1)


def texts(length=12):
    tokens = torch.randint(1, 9, (len(LENGTHS), length), generator=torch.Generator().manual_seed(0))
    return tokens.masked_fill(torch.arange(length) >= torch.tensor(LENGTHS).unsqueeze(1), 0)


def text_model(fields, seed=0):
    torch.manual_seed(seed)
    return SequenceCnn(12, 6, 3, front=Text(9, 6, padding=0), **fields).eval()


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("hung", [False, True], ids=["bare", "with what shifts on every peg"])
def test_padding_never_changes_a_result(fields, hung):
    model, tokens = text_model(fields), texts()
    for _, peg in find(model) if hung else ():
        peg.add_module("shift", Affine(1.1, 0.3))
    whole = model(tokens)
    for row, length in enumerate(LENGTHS):
        alone = model(tokens[row : row + 1, :length])
        torch.testing.assert_close(alone[0], whole[row], rtol=1e-5, atol=1e-6)
    some = model(tokens[2:, :5])  # a shorter batch than the longest sample
    torch.testing.assert_close(some, whole[2:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fields", FIELDS)
def test_a_sample_without_padding_is_read_as_if_no_other_had_any(fields):
    model = text_model(fields)
    plain = SequenceCnn(12, 6, 3, front=Text(9, 6), **fields).eval()
    plain.load_state_dict(model.state_dict())
    tokens = texts()[:1]
    torch.testing.assert_close(model(tokens), plain(tokens))
    if fields.get("readout") != "flatten":
        tokens = texts()[1:2, :7]
        torch.testing.assert_close(model(tokens), plain(tokens))


def test_steps_after_the_end_of_a_series_change_nothing_and_get_no_gradient():
    model = SequenceCnn(9, 2, 3, front=Line(2, padded=True), channels=(4, 4), readout="average")
    x = torch.randn(3, 9, 2)
    x[1, 4:], x[2, 1:] = torch.nan, torch.nan
    y = model(x)
    torch.testing.assert_close(model(x[1:2, :4]), y[1:2])
    y.square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in model.parameters())
    text = text_model(FIELDS[0])
    text(texts()).sum().backward()
    grad = text.input.embedding.weight.grad
    assert not grad[0].any() and grad[1:].any()


def test_a_sample_shorter_than_a_window_is_filled_with_zeros():
    model = text_model({"channels": (4,), "kernel": 1, "readout": "max", "activation": "sigmoid"})
    torch.nn.init.constant_(model.body[0].conv.bias, 3)  # what a place without a symbol would give is large
    tokens = texts()[3:]
    seen = model.input.embedding(tokens).transpose(1, 2)
    one = F.conv1d(seen, *model.body[0].conv.parameters()).sigmoid()
    expected = torch.stack((one[0, :, :2].amax(1), one[1, :, 0]))
    torch.testing.assert_close(model.features(tokens), expected)


def test_pegs_of_sequences_get_the_mask_of_what_lasts():
    class Seen(torch.nn.Module):
        masked = True

        def forward(self, x, mask):
            assert mask.shape == (x.shape[0], x.shape[self.axis])
            self.lasts = mask.sum(1).tolist()
            return x

    model = text_model(
        {"channels": (5, 6), "readout": "max", "padding": "none", "stride": (2, 1), "kernel": (3, 1)}
    )
    seen = []
    for _, peg in find(model):
        if "L" in peg.layout:
            module = Seen()
            module.axis = peg.layout.index("L")
            peg.add_module("seen", module)
            seen.append(module)
    model(texts())
    assert [module.lasts for module in seen] == [
        [12, 7, 4, 2, 1],
        [5, 3, 1, 1, 1],  # (n - 3) // 2 + 1
        [2, 1, 1, 1, 1],  # pooled by two
        [2, 1, 1, 1, 1],
        [1, 1, 1, 1, 1],
    ]


def test_sequences_trace_in_one_graph_and_run_without_numbers():
    model, tokens = text_model(FIELDS[3]), texts()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens), model(tokens))
    assert model.to("meta")(tokens.to("meta")).shape == (5, 3)


# LeNet.


@pytest.mark.parametrize(("activation", "pooling"), [("tanh", "average"), ("relu", "max")])
def test_lenet_is_the_network_of_its_paper(activation, pooling):
    model = LeNet((1, 28, 28), 10, activation=activation, pooling=pooling)
    assert count(model) == 61_706
    f, pool = getattr(torch, activation), POOLS[pooling][2]
    x = torch.randn(2, 1, 28, 28)
    one, two = (stage.conv for stage in model.body)
    y = pool(f(F.conv2d(x, one.weight, one.bias, padding=2)), 2)
    y = pool(f(F.conv2d(y, two.weight, two.bias)), 2).flatten(1)
    assert y.shape == (2, 400)
    for at in (0, 4):
        y = f(model.dense[at](y))
    torch.testing.assert_close(model(x), model.head(y))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (1, 27, 30), (1, 40, 36)])
def test_lenet_reads_pictures_of_any_size(shape):
    model = LeNet(shape, 4)
    assert model(torch.randn(2, *shape)).shape == (2, 4)
    assert shape != (3, 32, 32) or count(LeNet(shape, 10)) == 62_006
