"""Threshold units and prototypes."""

import itertools

import pegboard
import pytest
import torch
from pegboard import Classes, Context, DataSpec, Facts, PegboardError, Vector
from pegboard_mlp import Prototypes as PrototypesConfig
from pegboard_mlp import Threshold as ThresholdConfig
from pegboard_mlp import pegboard_models
from pegboard_mlp.units import Prototypes, Threshold
from points import given, run

PARTS = {part.name: part for part in pegboard_models()}
CORNERS = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
XOR = torch.tensor([0, 1, 1, 0])


def table(signs, theta):
    """What a unit says of all inputs, as a tuple of bits."""
    inputs = torch.tensor(list(itertools.product([0.0, 1.0], repeat=len(signs))))
    found = Threshold(len(signs), [signs], [theta])(inputs)
    assert found.shape == (len(inputs), 1) and set(found.flatten().tolist()) <= {0.0, 1.0}
    return tuple(int(bit) for bit in found[:, 0])


@pytest.mark.catalogue("S4-001")
def test_threshold_units_are_gates_and_reach_ten_functions_of_two_inputs():
    assert table([1, 1], 2) == (0, 0, 0, 1)  # and
    assert table([1, 1], 1) == (0, 1, 1, 1)  # or
    assert table([1, -1], 1) == (0, 0, 1, 0)  # the first and not the second
    assert table([-1], 0) == (1, 0)  # not
    thetas = [theta / 2 for theta in range(-6, 7)]
    reached = {table(s, t) for s in itertools.product((-1, 1), repeat=2) for t in thetas}
    assert len(reached) == 10
    assert (0, 1, 1, 0) not in reached and (1, 0, 0, 1) not in reached


def test_units_stand_side_by_side_with_signs_of_their_own():
    model = PARTS["threshold"].build(
        ThresholdConfig(thresholds=(2.0, 1.0), signs=((1, 1), (1, -1))),
        Context(spec=DataSpec((Vector(2),), Classes(2)), outputs=2),
    )
    assert model(CORNERS).tolist() == [[0, 0], [0, 0], [0, 1], [1, 0]]
    assert not list(model.parameters())
    assert not model(CORNERS.clone().requires_grad_()).requires_grad


def test_a_unit_that_learns_nothing_is_not_trained_and_says_why(tmp_path):
    config = given(CORNERS, XOR, model="threshold", objective="binary_cross_entropy")
    for attempt in (
        lambda: run(config, tmp_path),
        lambda: pegboard.plan(config).explain(),
    ):
        with pytest.raises(
            PegboardError, match="model 'threshold' has nothing to train: it has no parameters"
        ):
            attempt()
    assert not list(tmp_path.glob("*/*"))
    config["objective"] = "cross_entropy"
    with pytest.raises(
        PegboardError, match=r"has 1 units, and the objective reads 2 numbers[\s\S]*readout=true"
    ):
        pegboard.plan(config).explain()


def test_a_readout_of_fixed_units_learns_what_no_single_unit_can(tmp_path):
    model = {"name": "threshold", "thresholds": [1, 2], "readout": True}
    config = given(CORNERS, XOR, model=model, objective="binary_cross_entropy")
    done = run(config, tmp_path)
    assert done.figures["test/accuracy"] == 1


@pytest.mark.parametrize(
    ("fields", "inputs", "count"),
    [
        ({"signs": ((1, 1),), "thresholds": (1.0, 2.0)}, 2, 1),
        ({"signs": ((1, 1), (1,)), "thresholds": (1.0, 2.0)}, None, 1),
        ({"signs": ((1, 1, 1),)}, 2, 1),
        ({"signs": ((1,), (1,))}, 2, 2),
        ({"signs": ((1, -1),)}, 2, 0),
        ({}, None, 0),
    ],
)
def test_signs_that_do_not_fit_are_found(fields, inputs, count):
    facts = Facts(spec=None if inputs is None else DataSpec((Vector(inputs),), Classes(2)))
    found = list(PARTS["threshold"].check(ThresholdConfig(**fields), facts))
    assert [problem.field for problem in found] == ["signs"] * count
    if count and inputs is not None:
        with pytest.raises(ValueError, match="a row of 2 signs for each threshold"):
            config = ThresholdConfig(**fields)
            Threshold(2, config.signs, config.thresholds)


def test_prototypes_give_minus_squared_distances():
    model = Prototypes(6, 4).double()
    x = torch.randn(50, 3, 2, dtype=torch.float64)
    distances = torch.cdist(x.flatten(1), model.centres.detach()).square()
    torch.testing.assert_close(model(x), -distances, atol=1e-12, rtol=0)
    assert torch.equal(model(x).argmax(1), distances.argmin(1))
    assert [name for name, _ in model.named_parameters()] == ["centres"]


def test_prototypes_learn_to_tell_clouds_apart(tmp_path):
    data = {"name": "blobs", "classes": 4, "samples": 200, "box": 3, "noise": 0.3, "seed": 1, "val": 0}
    config = {
        "data": {**data, "batch_size": 400},
        "model": "prototypes",
        "optimizer": "lbfgs",
        "trainer": {"epochs": 5, "device": "cpu"},
    }
    done = run(config, tmp_path)
    assert done.figures["test/accuracy"] >= 0.95
    assert done.model.centres.shape == (4, 2)


def test_the_number_of_centres_is_the_objectives_or_ones_own():
    def build(centres, outputs, target=None):
        context = Context(spec=DataSpec((Vector(3),), target), outputs=outputs)
        return PARTS["prototypes"].build(PrototypesConfig(centres=centres), context).centres.shape

    assert build(None, 5) == (5, 3) and build(7, None) == (7, 3) and build(5, 5) == (5, 3)
    assert build(None, None, Classes(2)) == (2, 3) and build(7, None, Classes(2)) == (7, 3)
    with pytest.raises(PegboardError, match=r"model\.centres is 7, and the objective reads 5 numbers"):
        build(7, 5)
    with pytest.raises(PegboardError, match="prototypes needs to know how many numbers to predict"):
        build(None, None)


def test_clustering_of_known_classes_takes_any_number_of_centres_and_no_other_model():
    config = {"data": {"name": "blobs", "samples": 60}, "objective": "clustering", "optimizer": "sgd"}
    for centres in (2, 5):
        model = {"name": "prototypes", "centres": centres}
        assert pegboard.plan(config | {"model": model}).explain()
    for model in ("linear", "mlp"):
        with pytest.raises(
            PegboardError, match="distances to centres, and it has none(.|\n)*the model prototypes"
        ):
            pegboard.plan(config | {"model": model})
