"""The records: schema, checks, and what build makes of a context."""

import pegboard_cnn
import pytest
import torch
from light import loaded
from pegboard import (
    Classes,
    Context,
    DataSpec,
    Facts,
    Image,
    PegboardError,
    Series,
    Tokens,
    Values,
    Voxels,
)
from pegboard.planning.pegs import find
from pegboard_cnn import Cnn, DenseNet, LeNet, ResNet
from pegboard_cnn.configs import DENSENETS
from pegboard_cnn.dense import DenseNet as Module

PARTS = {part.name: part for part in pegboard_cnn.pegboard_models()}
PICTURES = {"lenet": LeNet(), "resnet": ResNet(depth=8), "densenet": DenseNet(depth=10)}


def context(*inputs, outputs=3, target=None):
    return Context(spec=DataSpec(inputs, target or Classes(3)), outputs=outputs)


def facts(*inputs):
    return Facts(spec=DataSpec(inputs, Classes(3)))


def messages(name, config, given=None):
    return [(p.field, p.message) for p in PARTS[name].check(config, given or Facts())]


def test_importing_the_plugin_imports_neither_torch_nor_numpy():
    assert not loaded("import pegboard_cnn as p; p.pegboard_models()")


@pytest.mark.parametrize(
    ("spec", "layout", "channels"),
    [
        (Image(3, 8, 9), "NCHW", 3),
        (Voxels(2, 4, 5, 6), "NCDHW", 2),
        (Series(12, 5), "NCL", 5),
        (Series(12, 5, padded=True), "NCL", 5),
        (Tokens(11, 12), "NCL", 7),
        (Tokens(11, 12, 0), "NCL", 7),
    ],
    ids=str,
)
def test_dimensions_and_sizes_come_from_the_data(spec, layout, channels):
    model = PARTS["cnn"].build(Cnn(embedding=7), context(spec))
    assert model(spec.example(5, "cpu")).shape == (5, 3)
    assert {peg.layout for _, peg in find(model.body)} == {layout}
    assert model.body[0].conv.in_channels == channels
    assert {peg.site for _, peg in find(model)} <= set(PARTS["cnn"].pegs)
    assert next(find(model))[1].site == ("embedding" if isinstance(spec, Tokens) else "input")


@pytest.mark.parametrize("name", PICTURES)
def test_networks_for_pictures_take_channels_and_classes_from_the_data(name):
    model = PARTS[name].build(PICTURES[name], context(Image(2, 8, 8)))
    assert model(Image(2, 8, 8).example(5, "cpu")).shape == (5, 3)
    assert {peg.site for _, peg in find(model)} == set(PARTS[name].pegs)


def test_fields_reach_the_modules():
    part, spec = PARTS["cnn"], context(Image(2, 16, 16))
    model = part.build(
        Cnn(channels=(4, 8), kernel=(5, 3), stride=2, groups=2, bias="none", activation="gelu", hidden=()),
        spec,
    )
    assert [s.conv.kernel_size[0] for s in model.body] == [5, 3]
    assert [(s.conv.stride[0], s.conv.groups, s.conv.bias) for s in model.body] == [(2, 2, None)] * 2
    assert model.head.in_features == 8 and not len(model.dense)
    three = PARTS["resnet"].build(ResNet(depth=8, width=4, stem="large", zero_init=True), spec)
    assert three.conv1.kernel_size == (7, 7) and three.conv1.out_channels == 4
    assert not three.layer1[0].norm2.norm.weight.any()
    dense = PARTS["densenet"].build(DenseNet(depth=7, bottleneck=False, growth=5, compression=1.0), spec)
    assert dense.head.in_features == 16 + 3 * 5
    modern = PARTS["lenet"].build(LeNet(activation="relu", pooling="max"), spec)
    assert type(modern.body[0].pool).__name__ == "MaxPool2d"


@pytest.mark.parametrize(
    ("config", "given", "expected"),
    [
        (Cnn(kernel=(3, 3, 3)), None, [("kernel", "3 numbers, and channels has 2")]),
        (
            Cnn(channels=(4, 4), kernel=(3,), stride=(1, 1, 1)),
            None,
            [("kernel", "1 numbers, and channels has 2"), ("stride", "3 numbers, and channels has 2")],
        ),
        (Cnn(padding="none", pad=1), None, [("pad", "padding is none, so no place is added")]),
        (
            Cnn(channels=(4, 6), groups=(2, 4)),
            facts(Image(3, 8, 8)),
            [
                ("groups", "layer 1 reads 3 channels, which 2 groups do not divide"),
                ("groups", "layer 2 gives 6 channels, which 4 groups do not divide"),
            ],
        ),
        (
            Cnn(channels=(4, 4, 4, 4)),
            facts(Image(1, 8, 8)),
            [("window", "layer 4 has a window of 2 x 2 and pools 1 x 1")],
        ),
        (
            Cnn(channels=(4, 4), padding="none", kernel=5),
            facts(Image(1, 10, 28)),
            [("kernel", "layer 2 has a kernel of 5 x 5 and reads 3 x 12")],
        ),
        (
            Cnn(channels=(4,), kernel=3, dilation=4, pad=0),
            facts(Series(8, 2)),
            [("kernel", "layer 1 has a kernel of 9 places (dilation 4) and reads 8 places")],
        ),
        (
            Cnn(channels=4, kernel=(3, 9, 11), branches=True, padding="none"),
            facts(Tokens(20, 8, 0)),
            [
                ("kernel", "branch 2 has a kernel of 9 places and reads 8 places"),
                ("kernel", "branch 3 has a kernel of 11 places and reads 8 places"),
            ],
        ),
        (
            Cnn(channels=(4,), kernel=9, padding="circular"),
            facts(Image(1, 3, 8)),
            [("kernel", "layer 1 adds 4 places at a border, and it reads 3 x 8")],
        ),
        (
            Cnn(padding="circular", bias="place", groups=5),
            facts(Series(20, 5, padded=True)),
            [
                ("padding", "samples that end early have no opposite side"),
                ("bias", "samples that end early do not all have the same places"),
                ("groups", "layer 1 gives 32 channels, which 5 groups do not divide"),
                ("groups", "layer 2 reads 32 channels, which 5 groups do not divide"),
                ("groups", "layer 2 gives 64 channels, which 5 groups do not divide"),
            ],
        ),
        (Cnn(), facts(Image(None, 2, None)), []),
        (Cnn(channels=(4, 4)), facts(Image(1, 4, 4)), []),
    ],
)
def test_what_cannot_fit_is_found_before_anything_is_built(config, given, expected):
    assert messages("cnn", config, given) == expected
    if given is not None and given.spec.known and expected:
        with pytest.raises(PegboardError, match="cnn: ") as error:
            PARTS["cnn"].build(config, context(*given.spec.inputs))
        assert all(message in str(error.value) for _, message in expected)


@pytest.mark.parametrize(
    ("name", "config", "given", "fields"),
    [
        ("resnet", ResNet(depth=18), None, ["depth"]),
        ("resnet", ResNet(form="imagenet"), None, ["depth"]),
        ("resnet", ResNet(form="imagenet", depth=18), facts(Image(1, 1, 1)), []),
        ("densenet", DenseNet(depth=40, bottleneck=True), None, []),
        ("densenet", DenseNet(depth=43), None, ["depth"]),
        ("densenet", DenseNet(depth=43, bottleneck=False), None, []),
        ("densenet", DenseNet(form="imagenet", depth=100), facts(Image(3, 28, 40)), ["depth", "stem"]),
        ("densenet", DenseNet(form="imagenet", depth=121), facts(Image(3, 29, 29)), []),
        ("densenet", DenseNet(), facts(Image(3, 3, 4)), ["form"]),
        ("densenet", DenseNet(stem="large"), facts(Image(3, 13, 13)), []),
        ("densenet", DenseNet(stem="large"), facts(Image(3, 12, 12)), ["stem"]),
    ],
)
def test_depths_and_pictures_that_do_not_fit_a_form_are_found(name, config, given, fields):
    assert [field for field, _ in messages(name, config, given)] == fields


@pytest.mark.parametrize("stem", ["small", "large"])
@pytest.mark.parametrize("form", ["cifar", "imagenet"])
def test_the_least_picture_of_a_dense_network_is_the_least_that_runs(stem, form, monkeypatch):
    monkeypatch.setitem(DENSENETS, 12, (1, 1, 1, 1))
    config = DenseNet(form=form, stem=stem, growth=2, depth=10 if form == "cifar" else 12)
    model = Module(1, 2, **vars(config)).eval()
    least = next(n for n in range(1, 40) if not messages("densenet", config, facts(Image(1, n, n))))
    assert model(torch.zeros(1, 1, least, least)).shape == (1, 2)
    with pytest.raises(RuntimeError, match="too small"):
        model(torch.zeros(1, 1, least - 1, least - 1))


@pytest.mark.parametrize("name", ["cnn", *PICTURES])
def test_data_it_cannot_read_is_explained(name):
    part, image = PARTS[name], Image(1, 8, 8)
    config = PICTURES.get(name, Cnn())
    with pytest.raises(PegboardError, match=f"{name}: it reads one input, and the data gives 2"):
        part.build(config, context(image, image))
    with pytest.raises(PegboardError, match=rf"{name}: it needs to know the sizes.*Image\(1, \?, 8\)"):
        part.build(config, context(Image(1, None, 8)))
    with pytest.raises(PegboardError, match=r"how many numbers to predict.*Values\(\?"):
        part.build(config, context(image, outputs=None, target=Values(None)))
    assert "reads one input" in messages(name, config, facts(image, image))[0][1]
    assert messages(name, config, facts(image)) == messages(name, config) == []
