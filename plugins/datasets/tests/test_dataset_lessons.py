"""What data sets stand for is what training on them shows."""

from __future__ import annotations

import numpy
import pegboard
import points
import pytest
import torch
from pegboard import Batch, Context, DataSpec, Values, Vector
from pegboard.testing.runs import lean
from pegboard_datasets import scenes
from pegboard_datasets.curves import fourier_rows
from pegboard_datasets.disparity import GroupDisparityProbe, disparity
from pegboard_datasets.study_options import GroupDisparity
from pegboard_mlp.bases import Polynomial
from pegboard_mlp.modules import LinearModel
from pegboard_mlp.reference_configs import LeastSquares, Ridge
from pegboard_mlp.squares import LeastSquaresReference, RidgeReference
from sweeps import first_of_each, first_of_each_row

NEWTON = {"name": "lbfgs", "line_search_fn": "strong_wolfe", "max_iter": 60}
NEWTON |= {"tolerance_change": 1e-14, "tolerance_grad": 1e-10}
ALL = {"val": 0, "test": 0}
SEEDS = range(2)


@pytest.fixture
def fit(tmp_path):
    """fit(data, model, ...) trains on whole batches and gives the run and its model."""

    def train(data, model, *, optimizer=NEWTON, epochs=1, seed=0, **more):
        config = {
            "seed": seed,
            "data": {"batch_size": "all", **data},
            "model": model,
            "optimizer": optimizer,
            "trainer": {"epochs": epochs, "eval_every": epochs, "device": "cpu", "diagnose": False},
            **more,
        }
        run = pegboard.train(config, root=tmp_path, quiet=True)
        return run, pegboard.load(run, which="last")

    return train


LOGISTIC = {"objective": {"name": "binary_cross_entropy"}}


def samples(splits):
    """All training inputs and targets."""
    batch = splits.train.gather(torch.arange(len(splits.train)))
    return batch.inputs[0], batch.target


def accuracy(model, x, y):
    with torch.no_grad():
        output = model(x)
    found = output[:, 0] > 0 if output.shape[1] == 1 else output.argmax(1)
    return float((found.long() == y).double().mean())


def squares(model, x, y):
    """The mean squared error."""
    with torch.no_grad():
        return float((model(x) - y).double().square().mean())


def crossings(model, low, high):
    """How often the chance of class 1 passes through 1/2 between two inputs."""
    with torch.no_grad():
        sign = model(torch.linspace(low, high, 2001)[:, None])[:, 0] > 0
    return int((sign[1:] != sign[:-1]).sum())


@pytest.mark.catalogue("T032")
@pytest.mark.parametrize("seed", first_of_each(SEEDS))
def test_the_chance_to_pass_rises_and_is_even_where_it_should_be(fit, build, seed):
    data = {"name": "students", "seed": seed, **ALL}
    # Without a line search, which in single precision ends sooner.
    solver = {**NEWTON, "line_search_fn": None}
    scaled = {**data, "normalize": "standard"}
    _, model = fit(scaled, {"name": "linear", "init": "zeros"}, optimizer=solver, **LOGISTIC)
    x, y = (t.double() for t in samples(build(**data)))
    notes = build(**scaled).notes["statistics"]["features"]
    a = model.head.weight.item() / notes["std"][0]
    b = model.head.bias.item() - a * notes["mean"][0]
    assert len(x) == 100
    assert a > 0
    assert -b / a == pytest.approx(3.0, abs=0.5)
    chance = torch.sigmoid(a * x[:, 0] + b)
    assert float(chance.sum()) == pytest.approx(float(y.sum()), abs=1e-4)
    assert float(chance @ x[:, 0]) == pytest.approx(float(y @ x[:, 0]), abs=1e-4)


@pytest.mark.catalogue("T037")
@pytest.mark.parametrize("seed", first_of_each(SEEDS))
def test_applicants_are_told_apart_alike_by_logistic_regression_and_by_a_margin(fit, build, seed):
    from sklearn.svm import SVC

    data = {"name": "admissions", "seed": seed, **ALL}
    _, model = fit(data, {"name": "linear"}, **LOGISTIC)
    x, y = samples(build(**data))
    assert x.shape == (600, 2)
    machine = SVC(kernel="linear", C=1 / (2 * 0.005 * 600)).fit(x.numpy(), y.numpy())
    a, b = model.head.weight.detach()[0].numpy(), machine.coef_[0]
    cosine = a @ b / numpy.linalg.norm(a) / numpy.linalg.norm(b)
    assert numpy.degrees(numpy.arccos(min(cosine, 1))) < 5
    right = accuracy(model, x, y)
    assert right == pytest.approx(machine.score(x.numpy(), y.numpy()), abs=0.02)
    assert 0.8 < right < 0.97  # the classes overlap


@pytest.mark.catalogue("T040")
@pytest.mark.parametrize("seed", first_of_each(SEEDS))
def test_too_little_and_too_much_light_need_a_hidden_layer(fit, build, seed):
    data = {"name": "plants", "seed": seed, **ALL}
    x, y = samples(build(**data))
    _, line = fit(data, {"name": "linear"}, **LOGISTIC)
    _, net = fit(data, {"name": "mlp", "hidden": [16]}, seed=seed, **LOGISTIC)
    assert accuracy(line, x, y) <= 0.75
    assert accuracy(net, x, y) >= 0.9
    middle = -line.head.bias.item() / line.head.weight.item()
    assert crossings(line, middle - 1, middle + 1) == 1
    assert crossings(net, 0, 9) == 2


@pytest.mark.catalogue("T041")
@pytest.mark.parametrize("seed", first_of_each(SEEDS))
def test_a_curved_boundary_needs_a_hidden_layer(fit, build, seed):
    data = {"name": "moons", "samples": 300, "seed": seed, **ALL}
    x, y = samples(build(**data))
    _, line = fit(data, {"name": "linear"})
    _, net = fit(data, {"name": "mlp", "hidden": [32]}, epochs=3, seed=seed)
    assert accuracy(line, x, y) < 0.95
    assert accuracy(net, x, y) >= 0.99


@pytest.mark.catalogue("T050")
@pytest.mark.parametrize("seed", first_of_each(SEEDS))
@pytest.mark.parametrize(
    ("regime", "low", "high"),
    first_of_each_row([("separable", 1, 1), ("slight", 0.9, 1), ("heavy", 0.5, 0.7)]),
)
def test_how_much_two_clouds_overlap_decides_what_a_margin_can_do(fit, build, regime, low, high, seed):
    data = {"name": "overlap", "regime": regime, "seed": seed, **ALL}
    margin = {"objective": {"name": "hinge", "squared": True}}  # which a method for smooth losses minimises
    _, model = fit(data, {"name": "linear"}, regularizers={"weight_decay": {"value": 0.01}}, **margin)
    assert low <= accuracy(model, *samples(build(**data))) <= high


@pytest.mark.catalogue("T015")
@pytest.mark.parametrize("seed", first_of_each(SEEDS))
def test_zero_and_zero_make_eight_for_no_linear_map(fit, build, seed):
    data = {"name": "objects", "scene": "stacked", "samples": 90, "seed": seed, **ALL}
    upper, lower, both = scenes.stacked(90, generator=torch.Generator().manual_seed(seed)).x.split(30)
    _, line = fit(data, {"name": "linear", "bias": False})
    with torch.no_grad():
        found = [line(x).argmax(1) for x in (upper, lower, both)]
    zeros = (found[0] == 0) & (found[1] == 0)
    assert int(zeros.sum()) > 0
    assert bool((found[2][zeros] == 0).all())
    _, net = fit(data, {"name": "mlp", "hidden": [16]}, seed=seed)
    assert accuracy(net, *samples(build(**data))) == 1


@pytest.mark.catalogue("T015")
def test_whatever_the_linear_map_what_it_says_of_both_zeros_it_says_of_their_sum():
    stream = torch.Generator().manual_seed(0)
    upper, lower, both = scenes.stacked(30, generator=stream).x.flatten(1).split(10)
    weight = torch.randn(2000, 784, 2, generator=stream)
    first, second, total = ((x @ weight).argmax(-1) for x in (upper, lower, both))
    agree = first == second
    assert 0.1 < float(agree.double().mean()) < 0.9
    assert torch.equal(total[agree], first[agree])


def test_a_sum_of_zeros_is_drawn_as_an_eight():
    upper, lower, both = scenes.stacked(30, generator=torch.Generator().manual_seed(0)).x.split(10)
    assert torch.equal(upper + lower, both)
    assert not upper[:, :, 14:].any()
    assert not lower[:, :, :14].any()


@pytest.mark.catalogue("T126")
@pytest.mark.parametrize("seed", first_of_each(SEEDS))
def test_an_object_elsewhere_is_known_to_a_pooled_convolution_and_not_to_a_dense_net(fit, build, seed):
    data = {"name": "objects", "size": 14, "samples": 150, "seed": seed, "val": 0, "test": 0.4}
    model = {"name": "cnn", "channels": [8], "kernel": 5, "padding": "none", "pooling": "none"}
    seen, cnn = fit(data, {**model, "readout": "max", "hidden": []}, seed=seed)
    dense, net = fit(data, {"name": "mlp", "hidden": [64]}, seed=seed)
    assert seen.figures["test/accuracy"] >= 0.95
    assert accuracy(net, *samples(build(**data))) >= 0.95  # it learned what it was shown
    assert dense.figures["test/accuracy"] == pytest.approx(0.5, abs=0.15)
    # What a convolution makes of an object moves with it; what a dense layer makes of it does not stay.
    x = build(**data).train.inputs[0]
    assert not x[..., 7:].any()
    moved = x.roll(7, -1)
    with torch.no_grad():
        here, there = cnn.body(x), cnn.body(moved)
        torch.testing.assert_close(here[..., :3], there[..., 7:])
        first, second = net.body(x.flatten(1)), net.body(moved.flatten(1))
    assert float((first - second).norm() / first.norm()) > 0.5


@pytest.mark.catalogue("T030")
@pytest.mark.parametrize("seed", first_of_each(SEEDS))
def test_a_line_is_nearer_to_the_truth_than_what_passes_through_every_sample(fit, build, seed):
    from scipy.interpolate import BarycentricInterpolator

    data = {"name": "linear_teacher", "features": 1, "noise": 0.3, "samples": 120, "limit": 12, "seed": seed}
    _, line = fit(data, {"name": "linear"})
    splits = build(**data)
    (x, y), test = (t[:, 0].double().numpy() for t in samples(splits)), splits.test
    through = BarycentricInterpolator(x, y)
    assert len(x) == 12
    assert ((through(x) - y) ** 2).mean() < 1e-8
    inside = (test.inputs[0][:, 0] >= x.min()) & (test.inputs[0][:, 0] <= x.max())  # no extrapolation
    at, true = test.inputs[0][inside], test.target[inside]
    wild = ((through(at[:, 0].double().numpy()) - true[:, 0].numpy()) ** 2).mean()
    assert wild > 5 * squares(line, at, true)


@pytest.mark.catalogue("S3-003")
@pytest.mark.parametrize("seed", first_of_each(SEEDS))
def test_shapes_of_equal_statistics_are_told_apart_by_a_small_network(fit, build, seed):
    data = {"name": "point_shapes", "samples": 300, "seed": seed}
    model = {"name": "deepsets", "point": [32, 32], "pool": "max", "rest": []}
    adam = {"name": "adam", "lr": 0.02}
    run, net = fit({**data, "batch_size": 60}, model, optimizer=adam, epochs=25, seed=seed)
    assert sum(p.numel() for p in net.parameters()) < 2000
    assert run.figures["test/accuracy"] > 0.95
    # Means, deviations and correlation say nothing of the shape: they are those of every set.
    x = build(**data, normalize="none").train.inputs[0].double()
    first = torch.cat([x.mean(1), x.std(1), torch.stack([s.T.corrcoef()[0, 1] for s in x])[:, None]], 1)
    assert first.round(decimals=2).unique(dim=0).tolist() == [[54.26, 47.83, 16.76, 26.93, -0.06]]


@pytest.mark.catalogue("S3-005")
def test_learned_from_noise_the_answer_is_the_smallest_and_a_prior_chooses_another(fit, build):
    for prior in ("white", "spikes"):
        data = {"name": "sparse_fourier", "prior": prior, "samples": 2000, "seed": 0, **ALL}
        _, model = fit(data, {"name": "linear"})
        splits = build(**data)
        rows = fourier_rows(torch.tensor(splits.notes["frequencies"]), 64).float()
        x, _ = samples(splits)
        with torch.no_grad():
            answer = model(x)
        assert float((answer @ rows.T - x).norm() / x.norm()) < 0.02  # it explains the measurements
        smallest = x @ torch.linalg.pinv(rows).T
        apart = float((answer - smallest).norm() / smallest.norm())
        assert apart < 0.2 if prior == "white" else apart > 0.5


@pytest.mark.catalogue("S3-005")
def test_of_all_signals_with_one_measurement_a_penalty_on_squares_chooses_the_smallest(build, tmp_path):
    """The signal is the weight of a linear model, whose samples are the measurements."""
    splits = build("sparse_fourier", samples=1, seed=0, **ALL)
    rows = fourier_rows(torch.tensor(splits.notes["frequencies"]), 64)
    measured = rows @ splits.train.target.double().T
    smallest = torch.linalg.pinv(rows) @ measured

    def found(seed, **nodes):
        model = {"name": "linear", "bias": False}
        config = points.given(rows, values=measured, model=model, seed=seed, **nodes)
        run = points.run(config, tmp_path)
        return run, pegboard.load(run, which="last").head.weight.detach().double().T

    decay = {"weight_decay": {"value": 1e-3, "mode": "l2"}}
    free = [found(seed)[1] for seed in (0, 1)]
    chosen = [found(seed, regularizers=decay, reference={"name": "ridge", "value": 1e-3}) for seed in (0, 1)]
    for signal in free:  # which one is a matter of where the search began
        assert float((rows @ signal - measured).norm() / measured.norm()) < 1e-3
        assert float((signal - smallest).norm() / smallest.norm()) > 0.1
    assert float((free[0] - free[1]).norm() / smallest.norm()) > 0.1
    for run, signal in chosen:
        assert abs(run.reference["gap"]) < 1e-9
        assert float((signal - smallest).norm() / smallest.norm()) < 0.03
    torch.testing.assert_close(chosen[0][1], chosen[1][1], rtol=0, atol=1e-3)
    # In double precision, and the closer the weaker the penalty.
    batch, spec = Batch((rows,), measured), DataSpec((Vector(64),), Values(1))
    for value in (1e-4, 1e-6):
        ridge = RidgeReference(Ridge(value=value), Context(spec=spec))
        models = [LinearModel(64, 1, bias=False).double() for _ in range(2)]
        best = [ridge.solve(model, batch).head.weight.detach().T for model in models]
        torch.testing.assert_close(best[0], best[1], rtol=0, atol=1e-12)
        assert float((best[0] - smallest).norm() / smallest.norm()) < 30 * value


@pytest.mark.catalogue("S3-014")
@pytest.mark.parametrize("seed", first_of_each(range(3)))
def test_four_numbers_describe_a_ball_under_a_light_and_one_does_not(fit, build, seed):
    data = {"name": "relighting", "target": "image", "size": 8, "samples": 200, "seed": seed, **ALL}
    losses = {}
    for k in (1, 4):
        model = {"name": "mlp", "hidden": [k], "activation": "identity"}
        _, coder = fit(data, model, optimizer={**NEWTON, "max_iter": 200}, seed=seed)
        losses[k] = squares(coder, *samples(build(**data)))
    assert losses[1] > 5 * losses[4]


@pytest.mark.catalogue("S3-006")
@pytest.mark.parametrize("seed", first_of_each(range(3)))
def test_a_rare_group_is_served_the_worse_the_rarer_it_is(fit, build, seed):
    # As many of each, to measure well.
    everyone = build("biased", share=0.5, samples=4000, seed=100 + seed, val=0)
    probe = GroupDisparityProbe(GroupDisparity(split="train"), Context())
    found = []
    for share in (0.5, 0.2, 0.02):
        data = {"name": "biased", "share": share, "seed": seed, **ALL}
        _, model = fit(data, {"name": "linear"}, **LOGISTIC)
        found.append(probe.measure(model, everyone, torch.device("cpu"))["disparity"])
    assert found == sorted(found)
    assert found[0] < 0.1
    assert found[2] > 0.3


@pytest.mark.catalogue("S3-006")
@pytest.mark.parametrize("seed", first_of_each(range(3)))
def test_a_model_learns_what_tainted_labels_ask_of_a_group(fit, seed):
    data = {"name": "biased", "mechanism": "tainted", "share": 0.5, "samples": 8000, "seed": seed, **ALL}
    _, model = fit(data, {"name": "linear"}, **LOGISTIC)
    weight = model.head.weight.detach()[0]
    assert float(-weight[2] / weight[0]) == pytest.approx(1.0, rel=0.1)


def test_disparity_is_between_the_shares_of_right_answers():
    right = torch.tensor([1, 1, 1, 0, 1, 0, 0, 0]).bool()
    group = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1]).bool()
    assert disparity(right, group) == {"first": 0.8, "second": 0.0, "disparity": 0.8}


DEGREES = {1: 0.2259, 4: 0.01156, 15: 0.00499}


@pytest.mark.catalogue("S3-033")
def test_a_higher_degree_always_fits_the_training_samples_better(fit, build):
    for degree, expected in DEGREES.items():
        model = {"name": "polynomial", "degree": degree, "basis": "legendre", "domain": [0, 1]}
        data = {"name": "cosine", "seed": 0, **ALL}
        _, fitted = fit(data, model, epochs=2)
        # L-BFGS in single precision comes within a few percent of the optimum of degree 15.
        assert squares(fitted, *samples(build(**data))) == pytest.approx(
            expected, rel=0.002 if degree < 15 else 0.1
        )


@pytest.mark.catalogue("S3-033")
def test_cross_validation_prefers_the_middle_degree(parts):
    part = parts["cosine"]
    config = part.config(seed=0, val=0, test=0)
    errors = {degree: [] for degree in DEGREES}
    least_squares = LeastSquaresReference(LeastSquares(), Context(spec=part.spec(config)))
    for fold in range(10):
        splits = part.build(config, Context(fold=(fold, 10)))
        x, y = (t.double() for t in samples(splits))
        held_x, held_y = (t.double() for t in (splits.val.inputs[0], splits.val.target))
        for degree in DEGREES:
            model = Polynomial(1, degree, 1, basis="legendre", domain=(0.0, 1.0)).double()
            fitted = least_squares.solve(model, Batch((x,), y))
            with torch.no_grad():
                errors[degree].append(float((fitted(held_x) - held_y).square().mean()))
    one, four, fifteen = (float(numpy.mean(e)) for e in errors.values())
    assert four < 0.05 < 0.2 < one
    assert fifteen > 10


@pytest.mark.catalogue("S3-034")
@pytest.mark.parametrize("seed", first_of_each((1, 2, 3)))
def test_a_run_says_of_each_degree_whether_it_underfits_or_overfits(fit, seed):
    data = {"name": "cosine", "samples": 600, "limit": 30, "val": 0.9, "test": 0, "seed": seed}
    trainer = {"epochs": 2, "eval_every": 2, "device": "cpu"}
    for degree, verdict in ((1, "underfits"), (4, "fine"), (15, "overfits")):
        model = {"name": "polynomial", "degree": degree, "basis": "legendre", "domain": [0, 1]}
        with lean():
            run, _ = fit(data, model, trainer=trainer)
        assert run.diagnosis["verdict"] == verdict
        assert run.diagnosis["gap"] == run.figures["val/loss"] - run.figures["train/loss"]
        assert (run.figures["train/loss"] > 0.1) is (degree == 1)
        assert (run.figures["val/loss"] > 0.1) is (degree != 4)


def test_the_curve_is_that_of_scikit_learns_figure(build):
    stream = numpy.random.RandomState(0)
    x = numpy.sort(stream.rand(30))
    y = numpy.cos(1.5 * numpy.pi * x) + stream.randn(30) * 0.1
    found_x, found_y = (t[:, 0] for t in samples(build("cosine", seed=0, **ALL)))
    order = found_x.argsort()
    numpy.testing.assert_allclose(found_x[order], x, rtol=1e-6)
    numpy.testing.assert_allclose(found_y[order], y, rtol=1e-5)
