"""The records: light to import, checked before torch, chosen by target; predictions, tables, the hot path."""

import sys

import pytest
import torch
import torch.nn.functional as F
from light import loaded
from pegboard import (
    Batch,
    Classes,
    Context,
    DataSpec,
    Facts,
    Labels,
    Objective,
    Series,
    Tokens,
    Values,
    Vector,
)
from pegboard.config.check import ConfigError, check, refine
from pegboard.registry.discovery import Registry
from pegboard.testing import PARTNERS
from pegboard_objectives import pegboard_objectives
from pegboard_transformer import Masked, Span
from pegboard_transformer import pegboard_objectives as text_objectives
from torch import nn

PARTS = {part.name: part for part in (*pegboard_objectives(), *text_objectives())}


def build(name, spec, **fields):
    part = PARTS[name]
    return part.build(part.config(**fields), Context(spec=DataSpec((), spec)))


def problems(name, spec, **fields):
    part = PARTS[name]
    data = None if spec is None else DataSpec((), spec)
    return [] if part.check is None else list(part.check(part.config(**fields), Facts(spec=data)))


def test_light_module_imports_neither_torch_nor_numpy():
    code = "import pegboard_objectives as p; p.pegboard_objectives()"
    assert not loaded(code, ("torch", "numpy", "torchmetrics"))


def test_objectives_measure_without_torchmetrics():
    code = (
        "import torch; from pegboard import Classes, Context, DataSpec;"
        "from pegboard_objectives import pegboard_objectives; part = pegboard_objectives()[0];"
        "made = part.build(part.config(), Context(spec=DataSpec((), Classes(3)))).metrics();"
        "[metric.update(torch.eye(3), torch.arange(3)) for metric in made.values()];"
        "assert float(made['accuracy'].compute()) == 1"
    )
    assert loaded(code, ("torch", "torchmetrics", "sympy", "scipy", "sklearn", "matplotlib")) == {"torch"}


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (Classes, "cross_entropy"),
        (Tokens, "cross_entropy"),
        (Labels, "binary_cross_entropy"),
        (Values, "mse"),
        (Series, "mse"),
        (Span, "span"),
        (Masked, "pretraining"),
    ],
)
def test_each_target_has_one_default(spec, name):
    assert [part.name for part in PARTS.values() if spec in part.default_for] == [name]


def test_no_target_has_two_defaults_among_all_plugins_here():
    registry = Registry.discover()
    made = [spec for e in registry.entries("objective") if registry.indexed(e) for spec in e.part.default_for]
    assert len(made) == len(set(made)) > 6
    assert {e.part.name for e in registry.indexed_entries("objective")} >= {"mse", "span"}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_defaults_build_for_every_target_and_name_the_loss(part):
    made = {Classes: Classes(2), Tokens: Tokens(9, 4), Labels: Labels(3), Values: Values(2)}
    made |= {Span: Span(4), Masked: Masked(9, 4), Series: Series(4, 2)}
    for target in part.targets:
        objective = build(part.name, made[target])
        assert isinstance(objective, Objective)
        assert objective.formula == f"{part.name}(f(x), y)"
        assert problems(part.name, made[target]) == []
        assert problems(part.name, target()) == []
    assert problems(part.name, None) == []


def test_outputs_follow_the_target():
    def outputs(name, spec):
        part = PARTS[name]
        return part.outputs(part.config(), spec)

    for name in ("hinge", "perceptron"):
        assert [outputs(name, Classes(n)) for n in (2, 5, None)] == [1, 5, None]
    assert outputs("binary_cross_entropy", Classes(None)) == 1
    assert outputs("binary_cross_entropy", Labels(4)) == 4


@pytest.mark.parametrize(
    ("name", "spec", "fields", "field", "words"),
    [
        ("binary_cross_entropy", Classes(3), {}, "", "use the objective cross_entropy"),
        ("cross_entropy", Classes(3), {"class_weights": (1.0, 2.0)}, "class_weights", "2 numbers"),
        ("cross_entropy", Classes(2), {"class_weights": (0.0, 0.0)}, "class_weights", "above 0"),
        ("binary_cross_entropy", Labels(3), {"pos_weight": (1.0, 2.0)}, "pos_weight", "1 number, or 3"),
        ("binary_cross_entropy", Classes(2), {"pos_weight": (1.0, 2.0)}, "pos_weight", "class 1"),
        ("mse", Values(1), {"metrics": ("accuracy",)}, "metrics", "r2, mae"),
        ("mse", Classes(3), {"metrics": ("r2",)}, "metrics", "accuracy, topk"),
        ("l1", Values(1), {"metrics": ("r2", "r2")}, "metrics", "twice"),
        ("hinge", Classes(3), {"metrics": ("topk",)}, "k", "below 3"),
        ("cross_entropy", Classes(1), {}, "", "a single class: there"),
        ("mse", Classes(1, ("yes",)), {}, "", "a single class, 'yes': there"),
        ("hinge", Classes(1), {}, "", "two classes or more"),
        ("perceptron", Classes(1), {}, "", "two classes or more"),
    ],
)
def test_wrong_combinations_are_found_by_check(name, spec, fields, field, words):
    [problem] = problems(name, spec, **fields)
    assert problem.field == field
    assert words in f"{problem.message} {problem.expected} {problem.hint}"


def test_a_size_that_only_the_data_knows_is_checked_when_it_is_read():
    objective = {"name": "cross_entropy", "class_weights": [1, 2, 3]}
    partners = {section: {"name": "partner"} for section in ("data", "model", "optimizer")}
    settings = check({**partners, "objective": objective, "plugins": {"local": [str(PARTNERS)]}})
    with pytest.raises(ConfigError, match=r"class_weights has 3 numbers, and the target is Classes\(2\)"):
        refine(settings, DataSpec((Vector(4),), Classes(2)))


def test_class_predictions_are_indices_with_probabilities():
    found = build("cross_entropy", Classes(3)).predict(torch.tensor([[0.0, 1.0, 2.0], [9.0, 0.0, 0.0]]))
    assert found["class"].tolist() == [2, 0]
    assert found["probability"][0].item() == pytest.approx(0.66524096)  # softmax(0, 1, 2)
    tokens = build("cross_entropy", Tokens(6, 4)).predict(torch.randn(2, 4, 6))
    assert tokens["class"].shape == tokens["probability"].shape == (2, 4)


def test_one_output_predicts_the_class_on_its_side():
    output = torch.tensor([[2.0], [-1.0]])
    found = build("binary_cross_entropy", Classes(2)).predict(output)
    assert found["class"].tolist() == [1, 0]
    assert found["probability"].tolist() == pytest.approx([0.88079708, 0.73105858])
    found = build("hinge", Classes(2)).predict(output)
    assert found["class"].tolist() == [1, 0]
    assert found["margin"].tolist() == [2, 1]


def test_label_and_value_predictions():
    found = build("binary_cross_entropy", Labels(2)).predict(torch.tensor([[0.5, -3.0]]))
    assert found["labels"].tolist() == [[1, 0]]
    assert found["probability"].shape == (1, 2)
    assert build("mse", Values(1)).predict(torch.tensor([[4.0], [5.0]]))["value"].tolist() == [4, 5]
    assert build("mse", Values(2)).predict(torch.zeros(3, 2))["value"].shape == (3, 2)


def test_confusion_table_counts_true_rows_and_predicted_columns():
    objective = build("cross_entropy", Classes(3, ("ant", "bee", "cat")))
    output = torch.eye(3)[[0, 1, 1, 2, 0]]
    table = objective.tables(output, torch.tensor([0, 0, 1, 2, 2]))["confusion"]
    assert list(table.columns) == ["true", "ant", "bee", "cat"]
    assert [list(row) for row in table.rows] == [["ant", 1, 1, 0], ["bee", 0, 1, 0], ["cat", 1, 0, 1]]
    single = build("hinge", Classes(2)).tables(torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 1]))
    assert [list(row) for row in single["confusion"].rows] == [["0", 0, 0], ["1", 1, 1]]


def test_label_table_counts_each_label():
    objective = build("binary_cross_entropy", Labels(2, ("red", "round")))
    output, target = torch.tensor([[1.0, 1], [1, -1], [-1, -1]]), torch.tensor([[1.0, 0], [0, 1], [0, 0]])
    rows = objective.tables(output, target)["labels"].rows
    assert [list(row) for row in rows] == [["red", 1, 1, 0, 1], ["round", 0, 1, 1, 1]]


def test_no_table_where_nobody_could_read_it():
    assert build("cross_entropy", Tokens(6, 4)).tables(torch.randn(2, 4, 6), torch.zeros(2, 4).long()) == {}
    assert build("cross_entropy", Classes(500)).tables(torch.randn(2, 500), torch.zeros(2).long()) == {}
    assert build("mse", Values(1)).tables(torch.zeros(2, 1), torch.zeros(2, 1)) == {}


def count_calls(function):
    """Python functions entered while `function` runs, its own call left out."""
    entered = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(entered) - 1


@pytest.mark.parametrize(
    ("name", "spec", "most"),
    [("cross_entropy", Classes(4), 1), ("mse", Values(4), 2), ("binary_cross_entropy", Labels(4), 2)],
)
def test_step_costs_few_calls_more_than_torch_alone(name, spec, most):
    model, x = nn.Linear(3, 4), torch.randn(8, 3)
    target = torch.zeros(8).long() if name == "cross_entropy" else torch.zeros(8, 4)
    plain = {
        "cross_entropy": F.cross_entropy,
        "mse": F.mse_loss,
        "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    }[name]
    [player] = build(name, spec).players(model)
    batch = Batch((x,), target)
    by_hand = count_calls(lambda: plain(model(x), target))
    assert count_calls(lambda: player.loss(model, batch)) - by_hand <= most


@pytest.mark.parametrize(
    ("data", "model"), [("digits", "cnn"), ("copying", "seq2seq"), ("karate", "gcn"), ("iris", "mlp")]
)
def test_clustering_goes_with_no_model_of_hidden_layers(data, model):
    with pytest.raises(ConfigError, match="distances to centres, and it has none") as raised:
        check({"data": data, "model": model, "objective": "clustering", "optimizer": "sgd"})
    assert [m.path for m in raised.value.mistakes] == ["objective"]
