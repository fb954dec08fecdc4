"""The trick as a run uses it: strength zero, targets of every spec, what `check` finds, the formula."""

from __future__ import annotations

from dataclasses import dataclass

import pegboard
import points
import pytest
import torch
import torch.nn.functional as F
from light import loaded
from pegboard import (
    Choices,
    Classes,
    Context,
    DataSpec,
    Facts,
    Labels,
    ObjectivePart,
    PegboardError,
    Resident,
    Tokens,
    Trick,
    Values,
    Vector,
)
from pegboard.config.check import ConfigError, refine
from pegboard.config.check import check as read
from pegboard.testing import PARTNERS
from pegboard_label_smoothing import LabelSmoothing, build, check, pegboard_regularizers
from pegboard_label_smoothing.trick import LabelSmoothingTrick, replace_target
from sweeps import first_of_each
from torch import nn

MATRIX = ((0.8, 0.1, 0.1), (0.0, 1.0, 0.0), (0.25, 0.25, 0.5))


@dataclass(frozen=True)
class Nothing:
    """No fields."""


def objective(name: str, soft: bool) -> ObjectivePart:
    return ObjectivePart(name, Nothing, lambda config, context: None, soft=soft)


def facts(target=None, part=None) -> Facts:
    spec = None if target is None else DataSpec((Vector(4),), target)
    return Facts(spec=spec, objective=part)


def trick(target, device="cpu", **fields) -> LabelSmoothingTrick:
    built = build(LabelSmoothing(**fields), Context(spec=DataSpec((Vector(4),), target), device=device))
    assert isinstance(built, LabelSmoothingTrick)
    return built


def messages(config: LabelSmoothing, known: Facts | None = None) -> list[str]:
    return [problem.message for problem in check(config, known or Facts())]


@pytest.mark.catalogue("S4-161")
def test_training_with_the_trick_equals_torch_on_a_tiny_module():
    torch.manual_seed(0)
    x, y = torch.randn(32, 4), torch.randint(3, (32,))
    smoothing = trick(Classes(3), epsilon=0.2)
    weights = []
    for target, epsilon in ((smoothing.edit_target(y), 0.0), (y, 0.2)):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for _ in range(20):
            optimizer.zero_grad()
            F.cross_entropy(model(x), target, label_smoothing=epsilon).backward()
            optimizer.step()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-5)


@pytest.mark.catalogue("S4-161")
@pytest.mark.parametrize("kind", ["epsilon", "confusion", "identity"])
def test_a_run_ends_at_the_smoothed_distribution(kind, tmp_path):
    """A sample of each class, whose logits are free: a linear model of one number for each sample."""
    wrong = torch.tensor(
        [[0.7, 0.1, 0.1, 0.1], [0.0, 0.6, 0.2, 0.2], [0.2, 0.2, 0.5, 0.1], [0.3, 0.3, 0.2, 0.2]]
    )
    smooth = 0.9 * torch.eye(4) + 0.025
    goal = {"epsilon": smooth, "confusion": 0.95 * wrong + 0.0125, "identity": torch.eye(4)}[kind]
    fields = {"epsilon": 0.1} if kind == "epsilon" else {"confusion": goal.tolist()}
    steps = 100 if kind == "identity" else 6
    config = points.given(
        torch.eye(4), torch.arange(4), model={"name": "linear", "bias": False, "init": "zeros"},
        regularizers={"label_smoothing": fields},
        trainer={"epochs": steps, "eval_every": steps, "device": "cpu", "diagnose": False},
    )  # fmt: skip
    if kind == "identity":  # plain cross entropy, which has no minimum: the same steps as without the trick
        config["optimizer"] = {"name": "sgd", "lr": 1.0}
    run = points.run(config, tmp_path)
    logits = run.model.state_dict()["head.weight"].T
    if kind == "identity":
        config["regularizers"] = {}
        plain = points.run(config, tmp_path).model.state_dict()["head.weight"].T
        torch.testing.assert_close(logits, plain, rtol=0, atol=1e-6)
        return
    torch.testing.assert_close(logits.softmax(-1), goal, rtol=0, atol=1e-3)
    loss = F.cross_entropy(logits, goal)
    torch.testing.assert_close(loss, -(goal * goal.log()).sum(-1).mean(), rtol=0, atol=1e-4)
    if kind == "epsilon":
        gap = logits.diagonal()[:, None] - logits[~torch.eye(4, dtype=torch.bool)].view(4, 3)
        assert (gap - 3.6109).abs().max() < 0.01 and abs(loss.item() - 0.34878) < 1e-4


@pytest.mark.catalogue("S4-161")
@pytest.mark.parametrize("seed", first_of_each(range(3)))
def test_with_noisy_labels_smoothing_lowers_confidence_and_test_loss(seed, tmp_path):
    torch.manual_seed(seed)
    centres = 1.5 * torch.tensor([[0.0, 1.0], [-0.866, -0.5], [0.866, -0.5]])
    clean = torch.randint(3, (1500,))
    x = centres[clean] + 0.8 * torch.randn(1500, 2)
    noisy = torch.where(torch.rand(1500) < 0.3, torch.randint(3, (1500,)), clean)
    confidence, loss = {}, {}
    for epsilon in (0.0, 0.3):
        config = points.given(
            x[:150], classes=noisy[:150], seed=seed, model={"name": "mlp", "hidden": [32]},
            optimizer={"name": "adam", "lr": 0.02}, regularizers={"label_smoothing": {"epsilon": epsilon}},
            trainer={"epochs": 300, "eval_every": 300, "device": "cpu", "diagnose": False},
        )  # fmt: skip
        model = pegboard.load(points.run(config, tmp_path), which="last")
        with torch.no_grad():
            output = model(x[150:])
        confidence[epsilon] = output.softmax(-1).amax(-1).mean().item()
        loss[epsilon] = F.cross_entropy(output, noisy[150:]).item()
    assert confidence[0.3] < confidence[0.0] - 0.05
    assert loss[0.3] < loss[0.0]


@pytest.mark.parametrize(
    ("target", "values"),
    [
        (Classes(3), torch.tensor([0, 2])),
        (Tokens(3, 2), torch.tensor([[0, -100]])),
        (Labels(3), torch.tensor([[0.0, 1.0, 1.0]])),
    ],
)
def test_strength_zero_hands_back_the_same_tensor(target, values):
    assert trick(target, epsilon=0.0).edit_target(values) is values
    size = 2 if isinstance(target, Labels) else 3
    identity = tuple(tuple(float(i == j) for j in range(size)) for i in range(size))
    assert trick(target, confusion=identity).edit_target(values) is values


def test_the_default_is_a_tenth():
    torch.testing.assert_close(
        trick(Classes(4)).edit_target(torch.tensor([0])), torch.tensor([[0.925, 0.025, 0.025, 0.025]])
    )


def test_each_spec_is_smoothed_in_its_own_way():
    tokens = trick(Tokens(5, 2), epsilon=0.5).edit_target(torch.tensor([[1, -100]]))
    torch.testing.assert_close(tokens, torch.tensor([[[0.1, 0.6, 0.1, 0.1, 0.1], [0.0] * 5]]))
    labels = trick(Labels(3), epsilon=0.5).edit_target(torch.tensor([[1.0, 0.0, 0.0]]))
    torch.testing.assert_close(labels, torch.tensor([[0.75, 0.25, 0.25]]))
    labels = trick(Labels(3), confusion=((0.9, 0.1), (0.3, 0.7))).edit_target(torch.tensor([[1.0, 0.0, 0.0]]))
    torch.testing.assert_close(labels, torch.tensor([[0.7, 0.1, 0.1]]))
    classes = trick(Classes(3), confusion=MATRIX).edit_target(torch.tensor([2, 0]))
    torch.testing.assert_close(classes, torch.tensor([MATRIX[2], MATRIX[0]]))


def test_the_symbol_that_pads_is_ignored_as_the_loss_ignores_it():
    target = torch.tensor([[1, 4, -100]])
    for fields in ({"epsilon": 0.5}, {"confusion": ((0.2,) * 5,) * 5}):
        soft = trick(Tokens(5, 3, padding=4), **fields).edit_target(target)
        assert (soft[0, 1:] == 0).all() and soft[0, 0].sum().item() == pytest.approx(1)
        soft = trick(Tokens(5, 3), **fields).edit_target(target)
        assert soft.sum(-1)[0].tolist() == pytest.approx([1, 1, 0])


def test_a_matrix_that_does_not_fit_the_data_is_found_when_its_size_is_known():
    partners = {section: {"name": "partner"} for section in ("data", "model", "optimizer")}
    smoothing = {"regularizers": {"label_smoothing": {"confusion": MATRIX}}}
    settings = read({**partners, **smoothing, "plugins": {"local": [str(PARTNERS)]}})
    with pytest.raises(ConfigError, match=r"3 classes, and the target is Classes\(10\)"):
        refine(settings, DataSpec((Vector(4),), Classes(10)))


def test_rows_written_with_few_digits_are_made_to_sum_to_one():
    thirds = ((0.3333333, 0.3333333, 0.3333333),) * 3
    assert messages(LabelSmoothing(confusion=thirds)) == []
    total = trick(Classes(3), confusion=thirds).edit_target(torch.tensor([1])).sum().item()
    assert total == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("fields", [{"epsilon": 0.1}, {"confusion": MATRIX}, {"epsilon": 0.0}])
@pytest.mark.parametrize("soft", [False, True])
def test_the_trick_runs_on_the_meta_device(fields, soft):
    edit = trick(Classes(3), "meta", **fields).edit_target
    index = torch.zeros(6, dtype=torch.long, device="meta")
    out = edit(torch.zeros(6, 3, device="meta") if soft else index)
    assert out.device.type == "meta"
    assert out.shape == ((6,) if fields == {"epsilon": 0.0} and not soft else (6, 3))


def test_the_trick_runs_on_the_meta_device_for_tokens_and_labels():
    tokens = torch.zeros(2, 5, dtype=torch.long, device="meta")
    assert trick(Tokens(7, 5), "meta").edit_target(tokens).shape == (2, 5, 7)
    labels = torch.zeros(2, 5, device="meta")
    assert trick(Labels(5), "meta").edit_target(labels).shape == (2, 5)
    confused = trick(Labels(5), "meta", confusion=((0.9, 0.1), (0.3, 0.7))).edit_target(labels)
    assert confused.shape == (2, 5) and confused.device.type == "meta"


def test_a_target_of_unknown_size_is_explained():
    for target in (None, Classes()):
        with pytest.raises(PegboardError, match="how many classes"):
            LabelSmoothingTrick(LabelSmoothing(), target)
        index = torch.tensor([0])
        assert LabelSmoothingTrick(LabelSmoothing(epsilon=0.0), target).edit_target(index) is index


def test_check_accepts_what_is_right():
    soft = objective("cross_entropy", soft=True)
    assert messages(LabelSmoothing(), facts(Classes(10), soft)) == []
    assert messages(LabelSmoothing(confusion=MATRIX), facts(Classes(3), soft)) == []
    assert messages(LabelSmoothing(confusion=MATRIX), facts(Classes())) == []
    assert messages(LabelSmoothing(confusion=((1.0, 0.0), (0.2, 0.8))), facts(Labels(7))) == []
    assert messages(LabelSmoothing(epsilon=0.2), facts(Labels(7), objective("bce", soft=True))) == []


def test_check_names_an_objective_that_takes_no_soft_targets():
    hard = objective("hinge", soft=False)
    (problem,) = check(LabelSmoothing(), facts(Classes(10), hard))
    assert "'hinge'" in problem.message and "{name: cross_entropy}" in problem.hint
    (problem,) = check(LabelSmoothing(), facts(Labels(10), hard))
    assert "{name: binary_cross_entropy}" in problem.hint
    assert messages(LabelSmoothing(epsilon=0.0), facts(Classes(10), hard)) == []


@pytest.mark.catalogue("S4-161")
@pytest.mark.parametrize(
    ("confusion", "found"),
    [
        ((), "no rows"),
        (((1.0, 0.0),), "has 1 rows, and row 0 has 2 entries"),
        (((1.0, 0.0), (1.0,)), "has 2 rows, and row 1 has 1 entries"),
        (((0.9, 0.2), (0.0, 1.0)), "row 0 of the confusion matrix sums to 1.1"),
        (((0.9, 0.1), (-0.5, 1.5)), "row 1 of the confusion matrix has the entry -0.5"),
        (((float("nan"), 1.0), (0.0, 1.0)), "row 0 of the confusion matrix has the entry nan"),
    ],
)
def test_check_finds_a_matrix_that_is_no_confusion_matrix(confusion, found):
    problems = list(check(LabelSmoothing(confusion=confusion), Facts()))
    assert [p.field for p in problems] == ["confusion"]
    assert found in problems[0].message


def test_check_compares_the_matrix_with_the_number_of_classes():
    config = LabelSmoothing(confusion=MATRIX)
    assert "3 classes, and the target is Classes(10)" in messages(config, facts(Classes(10)))[0]
    assert "3 classes, and the target is Tokens(65" in messages(config, facts(Tokens(65, 8)))[0]
    assert "each label is on or off" in messages(config, facts(Labels(3)))[0]


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.2])
def test_check_refuses_epsilon_beside_a_matrix(epsilon):
    (problem,) = check(LabelSmoothing(epsilon=epsilon, confusion=MATRIX), facts(Classes(3)))
    assert problem.field == "epsilon" and "both" in problem.message


@pytest.mark.parametrize(
    ("target", "fields", "shown"),
    [
        (Classes(10), {}, "cross_entropy(f(x), (1-0.1) y + 0.1/10)"),
        (Tokens(65, 8), {"epsilon": 0.2}, "cross_entropy(f(x), (1-0.2) y + 0.2/65)"),
        (Labels(7), {}, "cross_entropy(f(x), (1-0.1) y + 0.1/2)"),
        (Classes(3), {"confusion": MATRIX}, "cross_entropy(f(x), confusion[y])"),
        (Classes(10), {"epsilon": 0.0}, "cross_entropy(f(x), y)"),
    ],
)
def test_the_formula_shows_the_smoothed_target(target, fields, shown):
    assert trick(target, **fields).formula("cross_entropy(f(x), y)") == shown


def test_only_a_target_by_itself_goes_without_parentheses():
    assert replace_target("(f(x) - y)^2", "y + z") == "(f(x) - (y + z))^2"
    assert (
        replace_target("lossy(f(x), lam y + (1-lam) y')", "a + b") == "lossy(f(x), lam (a + b) + (1-lam) y')"
    )


def test_the_record_names_what_the_trick_overrides():
    record = next(r for r in pegboard_regularizers() if r.name == "label_smoothing")
    assert record.stages == {"edit_target": "smooth"}
    assert set(record.targets) == {Classes, Labels, Choices} and Values not in record.targets
    overridden = {n for n in vars(LabelSmoothingTrick) if n in vars(Trick) and not n.startswith("_")}
    assert overridden == {"prepare", "edit_target", "formula"}


def test_the_light_module_imports_neither_torch_nor_numpy():
    assert not loaded("import pegboard_label_smoothing as p; p.pegboard_regularizers()")


@pytest.mark.parametrize("fields", [{"epsilon": 0.1}, {"confusion": MATRIX}])
@pytest.mark.parametrize("padding", [-1, 0])
@pytest.mark.parametrize("labels", [[2, 1, 2], [2, 0, 1], [1, -100, 2]])
def test_data_that_was_looked_at_gives_the_same_targets(fields, padding, labels):
    spec = Classes(3) if padding < 0 else Tokens(3, 1, padding=padding)
    target = torch.tensor(labels)
    asked, prepared = trick(spec, **fields), trick(spec, **fields)
    prepared.prepare(Resident([torch.zeros(3, 4)], target), 2)
    assert prepared.whole == all(label >= 0 and label != padding for label in labels)
    assert torch.equal(prepared.edit_target(target), asked.edit_target(target))
