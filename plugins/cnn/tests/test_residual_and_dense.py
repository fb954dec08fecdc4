"""Residual and densely connected networks: published sizes, and weights of a reference written here."""

import re

import pytest
import torch
from pegboard import Peg
from pegboard.inference.loading import load_into
from pegboard.planning.pegs import find
from pegboard_cnn.dense import DenseNet
from pegboard_cnn.residual import Identity, ResNet
from sweeps import first_of_each_row
from torch import nn
from torch.nn import functional as F


def count(model):
    return sum(p.numel() for p in model.parameters())


def close(one, two):
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("form", "depth", "parameters"),
    first_of_each_row(
        [
            ("cifar", 20, 269_722),
            ("cifar", 32, 464_154),
            ("cifar", 44, 658_586),
            ("cifar", 56, 853_018),
            ("cifar", 110, 1_727_962),
            ("imagenet", 18, 11_689_512),
            ("imagenet", 34, 21_797_672),
            ("imagenet", 50, 25_557_032),
            ("imagenet", 101, 44_549_160),
            ("imagenet", 152, 60_192_808),
        ]
    ),
)
def test_residual_networks_have_their_published_sizes(form, depth, parameters):
    with torch.device("meta"):
        model = ResNet(3, 10 if form == "cifar" else 1000, form=form, depth=depth)
    assert count(model) == parameters
    weighted = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    projections = 0 if form == "cifar" else 3 + (depth >= 50)
    assert len(weighted) - projections == depth


@pytest.mark.parametrize(
    ("fields", "parameters"),
    [
        ({}, 769_162),
        ({"depth": 40, "bottleneck": False, "compression": 1.0}, 1_019_722),
        ({"form": "imagenet", "depth": 121}, 7_978_856),
        ({"form": "imagenet", "depth": 161}, 28_681_000),
        ({"form": "imagenet", "depth": 169}, 14_149_480),
        ({"form": "imagenet", "depth": 201}, 20_013_928),
    ],
)
def test_dense_networks_have_their_published_sizes(fields, parameters):
    large = fields.get("form") == "imagenet"
    with torch.device("meta"):
        model = DenseNet(3, 1000 if large else 10, **fields)
    assert count(model) == parameters
    weighted = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert len(weighted) == fields.get("depth", 100)


# References with the names that torchvision and timm give, in plain torch.


class PlainBlock(nn.Module):
    def __init__(self, inputs, width, stride, wide):
        super().__init__()
        outputs = 4 * width if wide else width
        sizes = [(inputs, width, 1), (width, width, 3), (width, outputs, 1)]
        for n, (a, b, kernel) in enumerate(sizes if wide else [(inputs, width, 3), (width, width, 3)], 1):
            step = stride if n == (2 if wide else 1) else 1
            setattr(self, f"conv{n}", nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{n}", nn.BatchNorm2d(b))
        self.count = 3 if wide else 2
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = x
        for n in range(1, self.count + 1):
            y = getattr(self, f"bn{n}")(getattr(self, f"conv{n}")(y))
            y = y.relu() if n < self.count else y
        return (y + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()


class PlainResNet(nn.Module):
    def __init__(self, blocks, wide, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for at, many in enumerate(blocks):
            stage, width = [], 64 * 2**at
            for n in range(many):
                stage.append(PlainBlock(inputs, width, 2 if at and n == 0 else 1, wide))
                inputs = width * (4 if wide else 1)
            setattr(self, f"layer{at + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(inputs, outputs)

    def forward(self, x):
        x = F.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for at in range(1, 5):
            x = getattr(self, f"layer{at}")(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class PlainDenseNet(nn.Module):
    """Its parameters by name, and a forward pass that finds them by name."""

    def __init__(self, blocks, growth, width, outputs):
        super().__init__()
        self.blocks = blocks
        modules = {"features.conv0": nn.Conv2d(3, width, 7, 2, 3, bias=False)}
        modules["features.norm0"] = nn.BatchNorm2d(width)
        for at, many in enumerate(blocks, 1):
            for n in range(1, many + 1):
                path = f"features.denseblock{at}.denselayer{n}"
                modules[f"{path}.norm1"] = nn.BatchNorm2d(width)
                modules[f"{path}.conv1"] = nn.Conv2d(width, 4 * growth, 1, bias=False)
                modules[f"{path}.norm2"] = nn.BatchNorm2d(4 * growth)
                modules[f"{path}.conv2"] = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
                width += growth
            if at < len(blocks):
                modules[f"features.transition{at}.norm"] = nn.BatchNorm2d(width)
                modules[f"features.transition{at}.conv"] = nn.Conv2d(width, width // 2, 1, bias=False)
                width //= 2
        modules["features.norm5"] = nn.BatchNorm2d(width)
        modules["classifier"] = nn.Linear(width, outputs)
        self.all = modules
        for name, module in modules.items():
            self.add_module(name.replace(".", "/"), module)

    def named(self):
        return {name.replace("/", "."): value for name, value in self.state_dict().items()}

    def forward(self, x):
        x = F.max_pool2d(self.all["features.norm0"](self.all["features.conv0"](x)).relu(), 3, 2, 1)
        for at, many in enumerate(self.blocks, 1):
            for n in range(1, many + 1):
                y, path = x, f"features.denseblock{at}.denselayer{n}"
                for k in (1, 2):
                    y = self.all[f"{path}.conv{k}"](self.all[f"{path}.norm{k}"](y).relu())
                x = torch.cat((x, y), 1)
            if at < len(self.blocks):
                path = f"features.transition{at}"
                x = F.avg_pool2d(self.all[f"{path}.conv"](self.all[f"{path}.norm"](x).relu()), 2)
        return self.all["classifier"](self.all["features.norm5"](x).relu().mean((2, 3)))


def lived_in(model):
    """Statistics and scales as after training, so that each of them shows in the output."""
    torch.manual_seed(3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model.eval()


@pytest.mark.parametrize(("depth", "blocks"), [(18, (2, 2, 2, 2)), (50, (3, 4, 6, 3))])
def test_weights_of_a_reference_residual_network_give_its_outputs(depth, blocks):
    plain = lived_in(PlainResNet(blocks, depth == 50, 7))
    model = ResNet(3, 7, form="imagenet", depth=depth).eval()
    state = plain.state_dict()
    adopted = model.adopt({"module." + name: value for name, value in state.items()})
    assert adopted.keys() == model.adopt(state).keys() == model.state_dict().keys()
    model.load_state_dict(adopted)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        close(model(x), plain(x))
    assert model.adopt(model.state_dict()).keys() == model.state_dict().keys()


def test_a_file_of_such_weights_is_read_by_the_framework(tmp_path):
    plain = lived_in(PlainResNet((2, 2, 2, 2), False, 5))
    torch.save(plain.state_dict(), tmp_path / "resnet18.pt")
    model = ResNet(3, 7, form="imagenet", depth=18).eval()
    left = load_into(model, str(tmp_path / "resnet18.pt"))
    assert len(left) == 2 and all("head." in line for line in left)  # other classes
    x = torch.randn(2, 3, 40, 40)
    plain.fc = nn.Identity()
    with torch.no_grad():
        close(model.features(x), plain(x))


def test_weights_of_a_reference_dense_network_give_its_outputs(monkeypatch):
    monkeypatch.setitem(DenseNet.__init__.__globals__["DENSENETS"], 17, (1, 2, 1, 2))
    plain = lived_in(PlainDenseNet((1, 2, 1, 2), 8, 16, 7))
    model = DenseNet(3, 7, form="imagenet", depth=17, growth=8).eval()
    assert count(model) == count(plain)
    old = {
        n.replace(".norm1.", ".norm.1.").replace(".conv2.", ".conv.2."): v for n, v in plain.named().items()
    }
    adopted = model.adopt(old)
    assert adopted.keys() == model.adopt(plain.named()).keys() == model.state_dict().keys()
    model.load_state_dict(adopted)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        close(model(x), plain(x))
    assert model.adopt({"something.else": x}).keys() == {"something.else"}


def test_weights_find_the_batch_normalisation_that_took_the_place_of_the_networks_own():
    model = ResNet(3, 7, depth=8)
    state = model.state_dict()
    for _, peg in find(model):
        if hasattr(peg, "norm"):
            peg.add_module("mine", peg._modules.pop("norm"))
    assert any(".mine.weight" in name for name in model.state_dict())
    assert model.adopt(state).keys() == model.state_dict().keys()


def test_a_block_of_the_small_form_adds_its_branch_to_a_shortcut_without_weights():
    model = lived_in(ResNet(3, 10, depth=8))
    block = model.layer2[0]
    x = torch.randn(2, 16, 9, 9)
    y = F.relu(block.norm1.norm(F.conv2d(x, block.conv1.weight, stride=2, padding=1)))
    y = block.norm2.norm(F.conv2d(y, block.conv2.weight, padding=1))
    zeros = torch.zeros(2, 8, 5, 5)
    close(block(x), F.relu(y + torch.cat((zeros, x[:, :, ::2, ::2], zeros), 1)))
    assert isinstance(block.downsample, Identity) and not list(block.downsample.parameters())
    projected = ResNet(3, 10, depth=8, shortcut="projection")
    assert count(projected) - count(model) == (16 * 32 + 64) + (32 * 64 + 128)


def test_convolutions_start_with_the_variance_of_their_papers():
    torch.manual_seed(0)
    residual, dense = ResNet(3, 10, depth=8).layer2[0].conv1, DenseNet(3, 10).body.transition1.conv
    assert residual.weight.std().item() == pytest.approx((2 / (9 * 32)) ** 0.5, rel=0.05)  # by outputs
    assert dense.weight.std().item() == pytest.approx((2 / dense.in_channels) ** 0.5, rel=0.05)  # by inputs


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_blocks_may_start_as_the_identity(norm):
    model = ResNet(3, 10, depth=14, norm=norm, zero_init=True)
    x = torch.randn(2, 16, 8, 8).relu()
    close(model.layer1(x), x)
    other = ResNet(3, 10, depth=14, norm=norm)
    assert not torch.allclose(other.layer1(x), x, atol=1e-2)


@pytest.mark.catalogue("S3-123")
@pytest.mark.parametrize("kind", [ResNet, DenseNet])
def test_convolutions_have_biases_without_normalisation_alone(kind):
    fields = {"depth": 10 if kind is DenseNet else 8}
    for norm in ("batch", "none"):
        model = kind(3, 10, norm=norm, **fields)
        norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
        assert bool(norms) is (norm == "batch") and all(m.bias is not None for m in norms)
        biased = {m.bias is not None for m in model.modules() if isinstance(m, nn.Conv2d)}
        assert biased == {norm == "none"}
        assert model(torch.randn(2, 3, 8, 8)).shape == (2, 10)


def test_a_stem_for_small_pictures_leaves_their_size():
    seen = []
    for stem in ("small", "large"):
        model = ResNet(3, 10, form="imagenet", depth=18, width=4, stem=stem)
        model.layer1.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[-1]))
        model(torch.randn(2, 3, 32, 32))
    assert seen == [32, 8]


@pytest.mark.parametrize(
    "model",
    [
        ResNet(3, 4, depth=8, width=4),
        ResNet(3, 4, form="imagenet", depth=50, width=2),
        DenseNet(3, 4, depth=10, growth=4),
    ],
    ids=["resnet", "bottlenecks", "densenet"],
)
def test_pegs_are_where_tricks_expect_them(model):
    """Affine ones hold all normalisations, hidden ones are inside branches, and shapes are as they say."""
    shapes = {}

    class Seen(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def forward(self, x):
            shapes[self.name] = x.shape
            return x

    pegs = dict(find(model))
    for name, peg in pegs.items():
        peg.add_module("seen", Seen(name))
    model(torch.randn(2, 3, 32, 32))
    for name, peg in pegs.items():
        assert shapes[name][peg.axis] == peg.features and len(shapes[name]) == len(peg.layout), name
    norms = [n for n, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(isinstance(model.get_submodule(n.rpartition(".")[0]), Peg) for n in norms)
    assert {n.rpartition(".")[0] for n in norms} == {n for n, p in pegs.items() if p.site == "affine"}
    assert {p.site for p in pegs.values()} == {"input", "affine", "hidden", "residual", "pooled", "logits"}
    assert all("layer" in n for n, p in pegs.items() if p.site in ("hidden", "residual"))


def test_they_trace_in_one_graph_and_read_pictures_with_channels_innermost():
    x, dense = torch.randn(2, 3, 32, 32), DenseNet(3, 4, depth=10, growth=4).eval()
    close(torch.compile(dense, backend="eager", fullgraph=True)(x), dense(x))
    for model in (dense, ResNet(3, 4, form="imagenet", depth=50, width=2).eval()):
        y = model(x)
        last = model.to(memory_format=torch.channels_last)
        close(last(x.to(memory_format=torch.channels_last)), y)


def test_depths_that_do_not_exist_are_named():
    with pytest.raises(ValueError, match=r"depth 18 of the form cifar: expected 6n \+ 2"):
        ResNet(3, 10, depth=18)
    with pytest.raises(ValueError, match="depth 20 of the form imagenet: expected 18, 34, 50, 101, 152"):
        ResNet(3, 10, form="imagenet", depth=20)
    with pytest.raises(ValueError, match=r"depth 12 of the form cifar: expected 6n \+ 4"):
        DenseNet(3, 10, depth=12)


def test_outputs_are_those_of_another_librarys_network_with_the_same_weights():
    """ResNet-18 of Hugging Face transformers, whose names are like ours in nothing."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(
        layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], num_labels=7
    )
    theirs = lived_in(transformers.ResNetForImageClassification(config))
    assert count(theirs.resnet) == 11_689_512 - 513_000  # all but the head of a thousand classes
    rules = (
        (r"^resnet\.embedder\.embedder\.convolution\.", "conv1."),
        (r"^resnet\.embedder\.embedder\.normalization\.", "bn1."),
        (r"^resnet\.encoder\.stages\.(\d)\.layers\.", lambda m: f"layer{int(m[1]) + 1}."),
        (r"\.shortcut\.convolution\.", ".downsample.0."),
        (r"\.shortcut\.normalization\.", ".downsample.1."),
        (r"\.layer\.(\d)\.convolution\.", lambda m: f".conv{int(m[1]) + 1}."),
        (r"\.layer\.(\d)\.normalization\.", lambda m: f".bn{int(m[1]) + 1}."),
        (r"^classifier\.1\.", "fc."),
    )
    named = {}
    for name, value in theirs.state_dict().items():
        for pattern, new in rules:
            name = re.sub(pattern, new, name)
        named[name] = value
    model = ResNet(3, 7, form="imagenet", depth=18).eval()
    model.load_state_dict(model.adopt(named))
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        close(model(x), theirs(x).logits)
