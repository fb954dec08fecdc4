"""Solids, as voxels for three-dimensional convolutions and as views for a network that is shared by them."""

import math

import pegboard
import pytest
import torch
from pegboard import DataSpec, Facts, Values, Views
from pegboard.config.check import check
from pegboard.planning.plan import assemble, make_plan
from pegboard_cnn.modules import AvgPool3d, Cnn
from pegboard_cnn.shifts import equivariance_gap, moved
from pegboard_cnn.symmetry import Multiview, check_multiview
from pegboard_cnn.views import MultiviewCnn
from pegboard_datasets import solids
from points import run

ADAM = {"name": "adam", "lr": 0.01}
CPU = {"device": "cpu"}


def seen_from_around(tilt=0.0, views=4):
    return solids.as_views(30, 12, views, tilt=tilt, generator=torch.Generator().manual_seed(7))


@pytest.fixture(scope="module")
def sorter(tmp_path_factory):
    """A trained network of four views."""
    return run(
        {
            "data": {"name": "solids", "form": "views", "views": 4, "samples": 240, "batch_size": 10},
            "model": {"name": "multiview", "channels": [6, 8], "hidden": []},
            "optimizer": ADAM,
            "trainer": {"epochs": 10, "eval_every": 10, **CPU},
        },
        tmp_path_factory.mktemp("views"),
    )


@pytest.mark.catalogue("S3-164")
def test_a_network_of_views_does_not_mind_their_order(sorter):
    assert sorter.figures["test/accuracy"] > 0.85  # 0.95 to 1 of eight seeds
    x, y = seen_from_around()
    with torch.no_grad():
        there = sorter.model(x)
        assert (there.argmax(1) == y).double().mean() > 0.8
        for order in ([1, 2, 3, 0], [3, 2, 1, 0], [0, 2, 1, 3]):
            assert (sorter.model(x[:, order]) - there).abs().max() <= 1e-6


@pytest.mark.catalogue("S3-164")
def test_a_network_of_views_minds_what_turns_out_of_their_ring(sorter):
    upright, lying = seen_from_around(), seen_from_around(tilt=math.pi / 2)
    ball = upright.y == 1
    with torch.no_grad():
        change = (sorter.model(lying.x) - sorter.model(upright.x)).abs().amax(1)
        around = (sorter.model(upright.x.roll(1, 1)) - sorter.model(upright.x)).abs().amax(1)
    assert around.max() <= 1e-6
    assert change[upright.y == 2].min() > 0.1 and change[ball].max() <= 1e-6


@pytest.mark.catalogue("S3-164")
def test_the_number_of_views_changes_no_parameter():
    counts = set()
    for views in (1, 3, 12):
        config = {
            "data": {"name": "solids", "form": "views", "views": views, "samples": 30},
            "model": {"name": "multiview", "channels": [4], "hidden": [8]},
            "optimizer": ADAM,
        }
        model = assemble(make_plan(check(config), read=True), "cpu").model
        counts.add(sum(p.numel() for p in model.parameters()))
        assert model(torch.randn(2, views, 1, 12, 12)).shape == (2, 3)
    assert len(counts) == 1


@pytest.mark.parametrize(("views", "join"), [("max", torch.amax), ("average", torch.mean)])
def test_views_go_one_by_one_through_the_same_network_and_are_joined(views, join):
    fields = {"channels": [4, 5], "hidden": [6]}
    one, all_of_them = Cnn((2, 8, 8), 3, **fields), MultiviewCnn((2, 8, 8), 3, views=views, **fields)
    all_of_them.load_state_dict(one.state_dict())
    x = torch.randn(4, 3, 2, 8, 8)
    with torch.no_grad():
        each = torch.stack([one.features(view) for view in x.unbind(1)], 1)
        torch.testing.assert_close(all_of_them(x), one.head(one.dense(join(each, 1))))
        torch.testing.assert_close(all_of_them(x[:, :1]), one(x[:, 0]))
        mean_or_max = all_of_them(x[:, [0, 1, 2, 2]])
    same = torch.allclose(mean_or_max, all_of_them(x), atol=1e-6)
    assert same is (views == "max")  # a view seen twice counts twice in a mean


def test_what_does_not_fit_a_view_is_said_before_it_is_built():
    facts = Facts(spec=DataSpec((Views(3, 1, 8, 8),), Values(1)))
    (problem,) = check_multiview(Multiview(channels=4, kernel=9, padding="none"), facts)
    assert problem.field == "kernel" and "8 x 8" in problem.message
    assert not list(check_multiview(Multiview(channels=4), facts))
    with pytest.raises(pegboard.PegboardError, match="multiview.*reads Views"):
        pegboard.plan({"data": "digits", "model": "multiview"})


@pytest.mark.catalogue("S3-165")
def test_solids_are_told_apart_by_their_voxels(tmp_path):
    done = run(
        {
            "data": {"name": "solids", "samples": 400, "size": 10, "batch_size": 20},
            "model": {"name": "cnn", "channels": [8, 12], "readout": "max", "hidden": []},
            "optimizer": ADAM,
            "trainer": {"epochs": 12, "eval_every": 12, **CPU},
        },
        tmp_path,
    )
    assert done.figures["test/accuracy"] > 0.95  # 1 of four seeds


@pytest.mark.catalogue("S3-165")
def test_a_three_dimensional_convolution_moves_with_its_voxels():
    fields = {"channels": [3, 3], "padding": "circular", "pooling": "none", "hidden": ()}
    body = Cnn((1, 12, 12, 12), 3, **fields).body
    x = solids.as_voxels(6, generator=torch.Generator().manual_seed(0)).x
    with torch.no_grad():
        for axis in (2, 3, 4):
            gap = equivariance_gap(body, x, lambda x: moved(x, 3, axis), lambda y: moved(y, 3, axis))  # noqa: B023
            assert gap.max() <= 1e-6


@pytest.mark.catalogue("S3-165")
@pytest.mark.parametrize("size", [32, 48])
def test_voxels_of_a_ball_have_its_volume(size):
    one = torch.ones(1)
    ball = solids.voxels("ball", one, torch.zeros(1, 3), 0 * one, size)
    assert float(ball.sum()) * (2 / size) ** 3 == pytest.approx(4.18879, rel=0.02)
    assert set(ball.unique().tolist()) == {0, 1} and ball[0, size // 2, size // 2, size // 2] == 1


def test_solids_are_inside_their_space_and_turn_as_a_whole():
    x, y = solids.as_voxels(300, 12, generator=torch.Generator().manual_seed(0))
    assert x.shape == (300, 1, 12, 12, 12) and torch.bincount(y).tolist() == [100, 100, 100]
    whole = solids.voxels("cube", torch.tensor([0.6]), torch.zeros(1, 3), torch.tensor([0.3]), 48)
    assert float(whole.sum()) * (2 / 48) ** 3 == pytest.approx(1.2**3, rel=0.03)
    assert not any(whole.movedim(axis, 0)[[0, -1]].any() for axis in (1, 2, 3))
    quarter = [
        solids.voxels("pyramid", torch.tensor([0.6]), torch.zeros(1, 3), torch.tensor([turn]), 12)
        for turn in (0.2, 0.2 + math.pi / 2)
    ]
    assert torch.equal(*quarter)  # its base is a square
    near = solids.seen(torch.eye(4).reshape(4, 1, 4))
    assert near.tolist() == [[1, 0.75, 0.5, 0.25]]


@pytest.mark.parametrize("window", [2, 3])
def test_the_mean_of_cubes_is_that_of_torch_and_so_is_its_gradient(window):
    x = torch.randn(2, 3, 7, 6, 9, dtype=torch.float64, requires_grad=True)
    pools = AvgPool3d(window), torch.nn.AvgPool3d(window)
    ours, theirs = (pool(x) for pool in pools)
    given = torch.randn_like(theirs)
    assert torch.allclose(ours, theirs, rtol=1e-14, atol=1e-15)
    slopes = [torch.autograd.grad(y, x, given)[0] for y in (ours, theirs)]
    assert torch.allclose(*slopes, rtol=1e-14, atol=1e-15)


def test_averages_of_solids_have_a_deterministic_gradient_on_cuda():
    from pegboard.preview.determinism import scanning

    net = Cnn((1, 8, 8, 8), 2, channels=(3,), pooling="average", hidden=())
    with scanning() as found:
        net(torch.randn(2, 1, 8, 8, 8)).sum().backward()
    assert not list(found)
