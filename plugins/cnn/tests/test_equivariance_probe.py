"""Probes of trained networks: what they do with shifts, and what their kernels look for."""

import json
from pathlib import Path

import pegboard
import pytest
import torch
from pegboard import Classes, Context, DataSpec, Facts, Image, PegboardError, Resident, Series, Splits, Tokens
from pegboard.cli import main
from pegboard.inference.trained import Trained
from pegboard_cnn.filters import FilterProbe, edges, first_kernels, likeness, preferred
from pegboard_cnn.invariant import InvariantCnn
from pegboard_cnn.modules import Cnn
from pegboard_cnn.shifts import EquivarianceProbe, answers
from pegboard_cnn.symmetry import (
    Equivariance,
    Filters,
    Invariant,
    check_equivariance,
    check_filters,
    check_invariant,
)
from pegboard_mlp.modules import Mlp
from points import run

PLUGIN = str(Path(__file__).with_name("placed_plugin.py"))
CPU = torch.device("cpu")
CROSSES = {"name": "objects", "size": 14, "samples": 100, "val": 0, "test": 0.4, "batch_size": 20}


def trained(root, data, model, epochs=10, **nodes):
    config = {
        "data": data,
        "model": model,
        "optimizer": {"name": "adam", "lr": 0.01},
        "trainer": {"epochs": epochs, "eval_every": epochs, "device": "cpu"},
        **nodes,
    }
    return run(config, root)


def probed(done, capsys, *words):
    """What the command says of a run."""
    assert main(["probe", str(done.folder), *words, "--local", PLUGIN, "--device", "cpu", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def measured(model, x, spec=None, **fields):
    """What the probe says of a model and some samples."""
    spec = spec or Image(*x.shape[1:])
    splits = Splits(spec=DataSpec((spec,), Classes(3)), train=Resident([x], torch.zeros(len(x)).long()))
    return EquivarianceProbe(Equivariance(split="train", **fields), Context()).measure(model, splits, CPU)


@pytest.mark.catalogue("T132", "T133", "S3-089")
@pytest.mark.parametrize(
    ("model", "exact"),
    [
        ({"name": "invariant", "channels": [6], "kernel": [5, 1]}, True),
        ({"name": "invariant", "channels": [6], "kernel": [5, 1], "padding": "circular"}, True),
        ({"name": "mlp", "hidden": [16]}, False),
    ],
)
def test_what_does_not_mind_shifts_knows_objects_where_none_was_trained_on(tmp_path, capsys, model, exact):
    done = trained(tmp_path, CROSSES, model)
    assert done.figures["test/accuracy"] >= 0.95 if exact else done.figures["test/accuracy"] < 0.7
    if model.get("padding") == "circular" or not exact:
        figures = probed(done, capsys, "equivariance", "shift=4")
        assert (figures["invariance_gap_max"] <= 1e-6) is exact
        assert (figures["invariance_gap"] <= 1e-2) is exact
        assert (figures["same_class"] == 1) is exact


@pytest.mark.catalogue("T132", "T133")
def test_digits_on_an_empty_ground_may_move_until_they_leave_it(tmp_path, capsys):
    data = {"name": "placed_digits", "size": 13, "shift": 2, "noise": 0, "samples": 60, "batch_size": 20}
    model = {"name": "invariant", "channels": [4, 4], "kernel": [3, 5, 3]}
    done = trained(tmp_path, data, model, epochs=2, plugins={"local": [PLUGIN]})
    for border in ("zero", "circular"):
        figures = probed(done, capsys, "equivariance", "shift=1", f"border={border}")
        assert figures["invariance_gap_max"] <= 1e-6 and figures["same_class"] == 1
    assert probed(done, capsys, "equivariance", "shift=4", "border=zero")["invariance_gap_max"] > 1e-4


@pytest.mark.catalogue("T129", "T132")
def test_the_probe_measures_the_mean_change_and_the_gap_of_each_convolution():
    torch.manual_seed(0)
    x = torch.randn(40, 1, 8, 8)
    dense = Mlp(64, [16], 3)
    found = measured(dense, x)
    with torch.no_grad():
        p = dense(x).softmax(1)
        changes = [(dense(x.roll(1, axis)).softmax(1) - p).abs() for axis in (2, 3)]
        same = [(dense(x.roll(1, axis)).argmax(1) == p.argmax(1)).double().mean() for axis in (2, 3)]
    assert found["invariance_gap"] == pytest.approx(float(torch.stack(changes).mean()), rel=1e-5)
    assert found["invariance_gap_max"] == pytest.approx(float(torch.stack(changes).max()), rel=1e-5)
    assert found["same_class"] == pytest.approx(float(sum(same)) / 2)
    assert found.keys() == {"invariance_gap", "invariance_gap_max", "same_class"}

    fields = {"channels": [4, 4], "padding": "circular", "readout": "average", "hidden": ()}
    pyramid = Cnn((1, 8, 8), 3, **fields)
    one, two = measured(pyramid, x), measured(pyramid, x, shift=2)
    assert one["equivariance_gap/body.0.conv"] <= 1e-6 < 0.1 < one["equivariance_gap/body.1.conv"]
    assert two["equivariance_gap/body.1.conv"] <= 1e-6  # the output of the pool moved by one
    zeros = Cnn((1, 8, 8), 3, **{**fields, "padding": "zero"})
    assert measured(zeros, x)["equivariance_gap/body.0.conv"] > 0.05
    empty = torch.zeros(5, 1, 8, 8)
    empty[:, :, 3:5, 3:5] = torch.randn(5, 1, 2, 2)
    assert measured(zeros, empty)["equivariance_gap/body.0.conv"] <= 1e-6


def test_the_probe_moves_series_along_their_steps():
    model = InvariantCnn((2, 9), 3, channels=[4], kernel=3, padding="circular", series=True)
    found = measured(model, torch.randn(40, 9, 2), Series(9, 2), shift=4, samples=35)
    assert found["invariance_gap_max"] <= 1e-6
    assert found["equivariance_gap/body.2"] <= 1e-6


def test_a_split_that_is_not_there_is_a_mistake():
    splits = Splits(spec=DataSpec((Image(1, 4, 4),), Classes(2)), train=Resident([torch.zeros(2, 1, 4, 4)]))
    with pytest.raises(PegboardError, match="no split 'test'"):
        EquivarianceProbe(Equivariance(), Context()).measure(Mlp(16, [], 2), splits, CPU)


def test_what_cannot_move_is_refused():
    def problems(check, config, spec):
        return [p.field or p.message for p in check(config, Facts(spec=DataSpec((spec,), Classes(2))))]

    assert not problems(check_equivariance, Equivariance(), Image(1, 4, 4))
    assert len(problems(check_equivariance, Equivariance(), Tokens(5, 4))) == 1
    assert len(problems(check_equivariance, Equivariance(), Series(5, 4, padded=True))) == 1
    assert len(problems(check_filters, Filters(), Series(5, 4))) == 1
    assert not problems(check_invariant, Invariant(), Image(1, 4, 4))
    assert problems(check_invariant, Invariant(kernel=(3, 3)), Image(1, 4, 4)) == ["kernel"]
    assert problems(check_invariant, Invariant(kernel=9, padding="circular"), Image(1, 3, 8)) == ["kernel"]
    assert len(problems(check_invariant, Invariant(), Series(5, 4, padded=True))) == 1
    with pytest.raises(pegboard.PegboardError, match="2 numbers for 3 layers"):
        pegboard.plan({"data": "digits", "model": {"name": "invariant", "kernel": [3, 3]}})


# What the first layer looks for.
@pytest.fixture(scope="module")
def edged(tmp_path_factory):
    """A network trained to say on which side of an edge it is bright."""
    model = {"name": "cnn", "channels": [8, 8], "kernel": [7, 3], "padding": "none", "pooling": "none"}
    root = tmp_path_factory.mktemp("edges")
    data = {"name": "edge_pictures", "batch_size": 50}
    local = {"plugins": {"local": [PLUGIN]}}
    return trained(root, data, {**model, "readout": "average", "hidden": []}, epochs=25, **local)


@pytest.mark.catalogue("S3-104")
def test_kernels_of_the_first_layer_become_edges(edged, tmp_path, capsys):
    picture = tmp_path / "kernels.png"
    figures = probed(edged, capsys, "filters", f"picture={picture}")
    assert figures["edge_likeness"] > 0.8
    assert figures["edge_likeness_chance"] < 0.35
    fresh = Cnn((1, 12, 12), 4, channels=[8, 8], kernel=[7, 3], padding="none", pooling="none")
    assert likeness(first_kernels(fresh)).mean() < 0.5
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.catalogue("S3-104")
def test_each_layer_has_a_picture_that_it_likes_best(edged):
    model, generator = edged.model, torch.Generator().manual_seed(0)
    (x,) = Trained(edged.folder, "best", "cpu", [PLUGIN]).splits.train.inputs
    x = 3 * x / x.flatten(1).norm(dim=1)[:, None, None, None]
    for layer in ("body.0.conv", "body.1.conv"):
        best = preferred(model, layer, 2, (1, 12, 12), norm=3.0, generator=generator)
        assert best.norm() == pytest.approx(3, rel=1e-4)
        with torch.no_grad(), answers(model, 2) as kept:
            model(torch.cat((best[None], x)))
        said = kept[layer][:, 2].amax((1, 2))
        assert said[0] > said[1:].max()
    # The first layer answers most where the picture is its kernel.
    best = preferred(model, "body.0.conv", 2, (1, 12, 12), norm=1.0, generator=generator)
    kernel = first_kernels(model)[2:3]
    likest = torch.nn.functional.conv2d(best[None], kernel).max() / kernel.norm()
    assert likest > 0.99


def test_edges_are_like_edges_and_a_network_without_kernels_is_a_mistake():
    rows = torch.tensor([-1.0, -1, -1, 0, 1, 1, 1])
    bar = torch.tensor([-1.0, -1, 1, 2, 1, -1, -1])
    for profile in (rows, bar):
        both = torch.stack([profile.repeat(7, 1), profile[:, None].repeat(1, 7)])[:, None]
        assert likeness(both).min() > 0.8
    bank = edges(7, 7)
    torch.testing.assert_close(bank.flatten(1).norm(dim=1), torch.ones(len(bank), dtype=bank.dtype))
    assert likeness(bank[:, None]).min() == pytest.approx(1)
    assert likeness(torch.ones(1, 1, 5, 5)) == 0
    splits = Splits(spec=DataSpec((Image(1, 4, 4),), Classes(2)), train=Resident([torch.zeros(2, 1, 4, 4)]))
    with pytest.raises(PegboardError, match="no convolution"):
        FilterProbe(Filters(), Context()).measure(Mlp(16, [], 2), splits, CPU)
    with pytest.raises(PegboardError, match="cannot draw"):
        FilterProbe(Filters(picture="kernels.nothing"), Context()).measure(Cnn((1, 8, 8), 2), splits, CPU)
