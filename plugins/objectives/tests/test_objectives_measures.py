"""Information, margins, groups and relative losses: what losses are made of, and runs that show it."""

import math

import pytest
import torch
from pegboard import Batch, Classes, Context, DataSpec, Resident, Splits, Values, Vector
from pegboard.config.check import ConfigError, check
from pegboard.inference.trained import Trained
from pegboard.planning.plan import read_data
from pegboard_mlp.kmeans import KmeansReference
from pegboard_mlp.logistic import LogisticReference
from pegboard_mlp.margins import MarginProbe
from pegboard_mlp.modules import LinearModel
from pegboard_mlp.reference_configs import Kmeans, LeastSquares, Logistic, Margin
from pegboard_mlp.squares import LeastSquaresReference
from pegboard_objectives import measures, pegboard_objectives
from pegboard_objectives.region_options import ErrorByRegion
from pegboard_objectives.regions import RegionProbe
from points import given, run
from sklearn.datasets import make_blobs

PARTS = {part.name: part for part in pegboard_objectives()}
DOUBLE = torch.float64
# Cases and failures at x = 0, 1, ..., 6.
CASES = torch.tensor([0, 1, 3, 6, 9, 10, 12], dtype=DOUBLE)
FAILURES = torch.tensor([8, 9, 6, 5, 3, 1, 0], dtype=DOUBLE)


def build(name, target, **fields):
    part = PARTS[name]
    return part.build(part.config(**fields), Context(spec=DataSpec((), target)))


@pytest.mark.catalogue("S3-212")
def test_entropy_is_largest_for_equal_chances_and_zero_for_certainty():
    p = torch.rand(1000, 7, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    p /= p.sum(-1, keepdim=True)
    found = measures.entropy(p)
    torch.testing.assert_close(found, torch.distributions.Categorical(probs=p).entropy())
    torch.testing.assert_close(found, (p * measures.information(p)).sum(-1))
    torch.testing.assert_close(found, measures.logit_entropy(p.log()))
    assert (found <= math.log(7)).all() and (found > 0).all()
    for n in (2, 3, 10, 1000):
        assert measures.entropy(torch.full((n,), 1 / n, dtype=DOUBLE)).item() == pytest.approx(math.log(n))
    assert measures.entropy(torch.eye(4)).tolist() == [0, 0, 0, 0]
    assert measures.information(torch.tensor([1.0, 0.5])).tolist() == pytest.approx([0, math.log(2)])
    assert measures.logit_entropy(torch.tensor([1e4, -1e4, 0.0])) == 0


@pytest.mark.catalogue("S3-213", "T046")
def test_divergence_is_cross_entropy_less_entropy():
    objective = build("cross_entropy", Classes(3))
    p, q = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], dtype=DOUBLE)
    assert measures.divergence(p, q).item() == pytest.approx(0.857044, abs=1e-6)
    assert measures.divergence(q, p).item() == pytest.approx(0.838230, abs=1e-6)
    difference = measures.entropy(q) - measures.entropy(p)
    assert difference.item() == pytest.approx(-0.390621, abs=1e-6)  # which is no divergence
    pairs = torch.randn(2, 10_000, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)).softmax(-1)
    found = measures.divergence(*pairs)
    assert (found > 0).all() and (measures.divergence(pairs[0], pairs[0]) == 0).all()
    entropy = torch.stack(
        [objective.loss(b.log().unsqueeze(0), a.unsqueeze(0)) for a, b in zip(*pairs[:, :50], strict=True)]
    )
    torch.testing.assert_close(entropy - measures.entropy(pairs[0, :50]), found[:50])
    assert measures.divergence(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])).item() == pytest.approx(
        math.log(2)
    )
    assert measures.divergence(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])).isinf()


@pytest.mark.catalogue("T046")
def test_logistic_regression_on_counts_meets_its_moments(tmp_path):
    # Two samples at every x, of both classes, weighing as much as was counted; some weigh nothing.
    x = torch.arange(7.0).repeat(2).unsqueeze(-1)
    classes, weights = torch.arange(14) // 7, torch.cat([FAILURES, CASES])
    config = given(
        x,
        classes,
        weights=weights,
        model="linear",
        objective="binary_cross_entropy",
        optimizer={
            "name": "lbfgs",
            "max_iter": 100,
            "tolerance_grad": 1e-9,
            "tolerance_change": 1e-12,
        },
        trainer={"epochs": 3, "device": "cpu", "diagnose": False},
        reference="logistic",
    )
    done = run(config, tmp_path)
    trained = Trained(done.folder)
    a, b = (p.item() for p in trained.model.parameters())
    assert (a, b) == (pytest.approx(1.19113, abs=1e-4), pytest.approx(-3.41185, abs=1e-4))
    at, many = torch.arange(7, dtype=DOUBLE), CASES + FAILURES
    chance = torch.sigmoid(a * at + b)
    loss = many.sum().item() * trained.evaluate("train")["loss"]
    assert loss == pytest.approx(27.40405, abs=1e-4)
    seen, made = (torch.stack([1 - p, p], -1) for p in (CASES / many, chance))
    least = (many * measures.entropy(seen)).sum().item()
    assert least == pytest.approx(26.65758, abs=1e-5)
    apart = (many * measures.divergence(seen, made)).sum().item()
    assert apart == pytest.approx(loss - least, abs=1e-4) and apart >= 0
    assert (many * chance).sum().item() == pytest.approx(41, abs=1e-3)
    assert (many * at * chance).sum().item() == pytest.approx(183, abs=4e-3)
    # The exact optimum in double precision, by the same weights.
    reference = LogisticReference(Logistic(), Context())
    best = reference.solve(LinearModel(1, 1).double(), Batch((x,), classes, weights))
    a, b = (p.item() for p in best.parameters())
    assert (a, b) == (pytest.approx(1.19113, abs=1e-5), pytest.approx(-3.41185, abs=1e-5))
    chance = torch.sigmoid(a * at + b)
    assert (many * chance).sum().item() == pytest.approx(41, abs=1e-7)
    assert (many * at * chance).sum().item() == pytest.approx(183, abs=1e-7)
    assert done.summary["reference"]["optimum"] * many.sum().item() == pytest.approx(27.40405, abs=1e-5)


@pytest.mark.catalogue("T017")
def test_three_soft_classifiers_on_an_interval():
    x = torch.linspace(0, 1, 10_001, dtype=DOUBLE)
    p = torch.stack([x / 2, x**2 / 2, 1 - x / 2 - x**2 / 2], -1)
    exact = torch.stack(
        [1 - 4 * x * (1 - x) - x * (1 - 2 * x) ** 2, 4 * x * (1 - x), x * (1 - 2 * x) ** 2], -1
    )
    q = torch.stack([x, 1 - x, (x - 0.5) ** 2], -1)
    assert measures.on_simplex(p).all() and measures.on_simplex(exact).all()
    assert measures.on_simplex(q, 0.0).nonzero().flatten().tolist() == [5000]
    assert not measures.on_simplex(torch.tensor([[1.5, -0.5]])).any()
    ends, classes = torch.tensor([0, 5000, 10_000]), torch.arange(3)
    objective = build("cross_entropy", Classes(3), metrics=("accuracy",))
    assert objective.loss(exact[ends].log(), classes) == 0
    assert torch.equal(exact[ends], torch.eye(3, dtype=DOUBLE))

    def accuracy(scores):
        metric = objective.metrics()["accuracy"]
        metric.update(scores[ends], classes)
        return metric.compute().item()

    assert (accuracy(exact), accuracy(p)) == (1, 0)


@pytest.mark.catalogue("S4-003")
def test_signed_distance_and_margin_of_a_plane():
    w, b = torch.tensor([3.0, 4.0], dtype=DOUBLE), -5.0
    assert measures.signed_distance(torch.zeros(2, dtype=DOUBLE), w, b).item() == pytest.approx(-1, abs=1e-12)
    assert measures.signed_distance(w, w, b).item() == pytest.approx(4, abs=1e-12)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10_000, 3, dtype=DOUBLE, generator=generator)
    w, b = torch.randn(3, dtype=DOUBLE, generator=generator), 0.3
    found = measures.signed_distance(x, w, b)
    foot = x - torch.outer((x @ w + b) / (w @ w), w)  # the nearest point of the plane
    torch.testing.assert_close(foot @ w + b, torch.zeros(10_000, dtype=DOUBLE))
    torch.testing.assert_close(found.abs(), (x - foot).norm(dim=-1), atol=1e-10, rtol=0)
    torch.testing.assert_close(measures.signed_distance(x, 7 * w, 7 * b), found)
    y = torch.randint(2, (10_000,), generator=generator)
    # An output above 0 is class 1, to the objectives as to the plane.
    decided = build("hinge", Classes(2)).predict((x @ w + b).unsqueeze(-1))["class"]
    assert torch.equal(decided == y, (2 * y - 1) * found > 0)
    assert measures.geometric_margin(x, 2 * y - 1, w, b) < 0
    sides = torch.sign(found)
    margin = measures.geometric_margin(x, sides, w, b)
    assert margin > 0 and margin == found.abs().min()
    # The probe finds it for a model, and it is above 0 where no sample is on the wrong side.
    model = LinearModel(2, 1).double()
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[3.0, 4.0]]))
        model.head.bias.fill_(-5)
    near = torch.tensor([[3.0, 4.0], [0.0, 0.0], [2.0, 0.0]], dtype=DOUBLE)
    for classes, expected in (([1, 0, 1], 0.2), ([1, 0, 0], -0.2)):
        train = Resident([near], torch.tensor(classes))
        data = Splits(spec=DataSpec((Vector(2),), Classes(2)), train=train)
        figures = MarginProbe(Margin(), Context()).measure(model, data, torch.device("cpu"))
        assert figures["margin"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.catalogue("T080")
def test_relative_loss_is_zero_at_the_minimum_and_above_elsewhere():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, generator=generator), torch.randn(40, 1, generator=generator)
    train, reference = Batch((x,), y), LeastSquaresReference(LeastSquares(), Context())
    best = reference.solve(LinearModel(3, 1).double(), train)
    assert reference.gap(best, best, train)["relative"] == 0
    for _ in range(20):
        other = LinearModel(3, 1).double()
        other.head.weight.data = best.head.weight.data + torch.randn(1, 3, generator=generator)
        other.head.bias.data = best.head.bias.data + torch.randn(1, generator=generator)
        found = reference.gap(other, best, train)
        assert found["relative"] > 0
        loss = torch.nn.functional.mse_loss(other(x.double()), y.double()).item()
        assert found["objective"] == pytest.approx(loss)
        assert found["relative"] == pytest.approx(loss / found["optimum"] - 1)


def test_disparity_is_the_largest_difference_between_groups():
    hits = torch.tensor([1, 1, 0, 1, 0, 0, 1, 0]).bool()
    group = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
    assert measures.disparity(hits, group).item() == pytest.approx(2 / 3 - 1 / 3)
    assert measures.disparity(hits[:3], group[:3]) == 0


@pytest.mark.catalogue("T023")
@pytest.mark.parametrize("seed", range(3))
def test_two_blobs_without_labels_are_found_again(tmp_path, seed):
    data = {
        "name": "blobs",
        "classes": 2,
        "samples": 200,
        "seed": seed,
        "val": 0,
        "test": 0,
        "batch_size": "all",
    }
    config = {
        "data": {**data, "labelled": 0},
        "model": {"name": "prototypes", "centres": 2},
        "objective": "clustering",
        "optimizer": {"name": "sgd", "lr": 0.5},
        "trainer": {"epochs": 40, "eval_every": 40, "device": "cpu", "diagnose": False},
        "reference": {"name": "kmeans"},
    }
    done = run(config, tmp_path)
    trained = Trained(done.folder)
    train = trained.source("train")
    assert trained.splits.spec.target is None and train.target is None
    truth = read_data(check({**config, "data": data})).train.target
    best = KmeansReference(Kmeans(), Context()).solve(trained.model, train.gather(torch.arange(200)))
    assert done.summary["reference"]["relative"] == pytest.approx(0, abs=1e-4)
    for model in (best, trained.model):
        groups = model(train.inputs[0]).argmax(1)
        table = torch.zeros(2, 2).index_put((truth, groups), torch.ones(200), accumulate=True)
        assert measures.adjusted_rand_index(table).item() >= 0.95


@pytest.mark.catalogue("T023")
@pytest.mark.parametrize("labelled", [True, False])
def test_descent_on_distances_groups_blobs_without_their_labels(tmp_path, labelled):
    x, classes = make_blobs(200, centers=[[-3.0, 0.0], [3.0, 1.0]], cluster_std=1.0, random_state=0)
    x, classes = torch.tensor(x).float(), torch.tensor(classes)
    config = given(
        x,
        classes if labelled else None,
        model={"name": "prototypes", "centres": 2},
        objective="clustering",
        optimizer={"name": "sgd", "lr": 0.5},
        trainer={"epochs": 40, "device": "cpu", "diagnose": False},
        reference={"name": "kmeans"},
    )
    done = run(config, tmp_path)
    trained = Trained(done.folder)
    found = trained.evaluate("train")
    assert ("ari" in found) == labelled
    groups = torch.tensor(trained.predict(trained.source("train"))["cluster"])
    table = torch.zeros(2, 2).index_put((classes, groups), torch.ones(200), accumulate=True)
    assert measures.adjusted_rand_index(table).item() >= 0.95
    if labelled:
        assert found["ari"] == pytest.approx(measures.adjusted_rand_index(table).item())
    assert done.summary["reference"]["relative"] == pytest.approx(0, abs=1e-4)


def test_a_run_leaves_out_what_has_weight_zero(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator)
    classes, weights = (x[:, 0] > 0).long() + (x[:, 1] > 0), torch.ones(60)
    hidden = torch.arange(60) % 3 == 0
    weights[hidden], classes[hidden] = 0, -1  # whatever stands there
    nodes = {"model": "linear", "trainer": {"epochs": 4, "device": "cpu", "diagnose": False}}
    with_all = run(given(x, classes, weights=weights, **nodes), tmp_path / "all")
    with_some = run(given(x[~hidden], classes[~hidden], **nodes), tmp_path / "some")
    one, two = (r.summary["figures"] for r in (with_all, with_some))
    assert one.keys() == two.keys() and one == pytest.approx(two, abs=1e-5)


def regions(model, spec, train, test, **fields):
    splits = Splits(spec=spec, train=Resident([train[0]], train[1]), test=Resident([test[0]], test[1]))
    return RegionProbe(ErrorByRegion(**fields)).measure(model, splits, torch.device("cpu"))


def test_errors_are_told_by_region_of_an_input_of_the_target_and_of_its_curvature():
    x = torch.arange(-100, 101)[:, None] / 100
    bent = torch.where(x > 0, x**2, 0.0)  # its second derivative is 0, then 2
    spec, zero = DataSpec((Vector(1),), Values(1)), torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(zero.weight), torch.nn.init.zeros_(zero.bias)
    noisy = (x[::4], bent[::4] + 0.5)
    for fields in ({"edges": (0.0,)}, {"by": "curvature", "edges": (1.5,)}):
        found = regions(zero, spec, noisy, (x, bent), **fields)
        assert found["samples_1"] == 101 and found["samples_2"] == 100
        assert found["error_1"] == 0
        assert found["error_2"] == pytest.approx((bent[101:] ** 2).mean().item())
        assert found["train_samples_1"] + found["train_samples_2"] == 51
        assert found["train_error_1"] == pytest.approx(0.25, abs=1e-3)
    found = regions(zero, spec, noisy, (x, bent), by="target", edges=(0.25,))
    assert found["error_2"] == pytest.approx((bent[bent > 0.25] ** 2).mean().item())
    found = regions(zero, spec, noisy, (x, bent), bins=4)
    assert [found[f"samples_{n}"] for n in (1, 2, 3, 4)] == [51, 50, 50, 50]
    # The share of wrong classes, of a model that says 1 where the number is above 0.
    classes, identity = DataSpec((Vector(1),), Classes(2)), torch.nn.Identity()
    wrong = (x[:, 0] > 0.5).long()
    found = regions(identity, classes, (x, wrong), (x, wrong), edges=(0.0, 0.5))
    assert [found[f"error_{n}"] for n in (1, 2, 3)] == [0, 1, 0]


def test_regions_without_a_meaning_are_refused():
    config = {"data": "linear_teacher", "model": "linear", "optimizer": "sgd"}
    for fields, message in (
        ({"edges": [1.0, 0.0]}, "do not rise"),
        ({"by": "curvature"}, "no curvature"),
        ({"column": 1000}, "no number 1000"),
    ):
        with pytest.raises(ConfigError, match=message):
            check(config | {"probes": {"error_by_region": fields}})
