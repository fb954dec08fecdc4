"""The trick as a run uses it: the mixed loss, the frozen teacher, strength zero, errors, the formula."""

from __future__ import annotations

import copy

import pegboard
import points
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
    PegboardError,
    Tokens,
    Trick,
    Values,
    Vector,
)
from pegboard_distillation import Distillation, build, check, pegboard_regularizers
from pegboard_distillation.trick import DistillationTrick, SequenceTrick
from pegboard_transformer import Masked, Span
from sweeps import first_of_each
from torch import nn


def network(outputs: int = 3, width: int = 8) -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.5), nn.Linear(width, outputs)
    )


def hard_loss(output: torch.Tensor, batch: Batch) -> torch.Tensor:
    assert batch.target is not None
    return F.cross_entropy(output, batch.target)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def batch() -> Batch:
    return Batch((torch.randn(16, 4),), torch.randint(3, (16,)))


@pytest.mark.catalogue("S4-163")
@pytest.mark.parametrize(("alpha", "temperature"), [(0.7, 4.0), (0.2, 1.0), (1.0, 2.0)])
def test_loss_is_the_mix_of_labels_and_teacher(batch, alpha, temperature):
    student, teacher = network(), network(width=16)
    trick = DistillationTrick(Distillation("t", temperature, alpha), teacher, Classes(3))
    output = student(*batch.inputs)
    hard = hard_loss(output, batch)
    answer = teacher(*batch.inputs)
    soft = F.kl_div(
        (output / temperature).log_softmax(-1), (answer / temperature).softmax(-1), reduction="batchmean"
    )
    expected = (1 - alpha) * hard + alpha * temperature**2 * soft
    torch.testing.assert_close(trick.edit_loss(hard, output, batch), expected)


@pytest.mark.catalogue("S4-163")
@pytest.mark.parametrize("seed", first_of_each(range(3)))
def test_a_student_without_labels_comes_to_agree_with_its_teacher(seed, tmp_path):
    torch.manual_seed(seed)
    centres = 2.0 * torch.tensor([[0.0, 1.0], [-0.866, -0.5], [0.866, -0.5]])
    y = torch.randint(3, (1500,))
    x = centres[y] + 0.9 * torch.randn(1500, 2)

    def train(seen: slice, target: torch.Tensor, **nodes: object) -> pegboard.Run:
        config = points.given(
            x[seen], classes=target[seen], seed=seed,
            model={"name": "mlp", "hidden": [16], "activation": "tanh"},
            optimizer={"name": "adam", "lr": 0.03},
            trainer={"epochs": 150, "eval_every": 150, "device": "cpu", "diagnose": False}, **nodes,
        )  # fmt: skip
        return points.run(config, tmp_path)

    few, many = slice(0, 15), slice(0, 500)
    taught = train(many, y)
    soft = {"teacher": str(taught.folder), "temperature": 2.0, "alpha": 1.0}
    # At alpha 1 labels do not count: these are drawn.
    student = train(many, torch.randint(3, (1500,)), regularizers={"distillation": soft})
    teacher, distilled, alone = (pegboard.load(r, which="last") for r in (taught, student, train(few, y)))
    with torch.no_grad():
        said = teacher(x[500:]).argmax(-1)
        agreement = (distilled(x[500:]).argmax(-1) == said).double().mean().item()
        without = (alone(x[500:]).argmax(-1) == said).double().mean().item()
    assert agreement >= 0.97
    assert agreement > without


def test_strength_zero_is_the_same_loss_and_no_teacher(batch, monkeypatch):
    monkeypatch.setitem(vars(pegboard), "load", lambda *a, **k: pytest.fail("the teacher was loaded"))
    context = Context(spec=DataSpec((Vector(4),), Classes(3)))
    loss = torch.tensor(1.5)
    trick = build(Distillation("runs/none", alpha=0.0), context)
    assert trick.edit_loss(loss, torch.zeros(16, 3), batch) is loss

    class Untouched(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pytest.fail("the teacher was run")

    trick = DistillationTrick(Distillation("t", alpha=0.0), Untouched(), Classes(3))
    assert trick.edit_loss(loss, torch.zeros(16, 3), batch) is loss


def test_build_loads_the_teacher_onto_the_device(monkeypatch):
    asked = []

    def load(reference: str, device: str) -> nn.Module:
        asked.append((reference, device))
        return network().to(device)

    monkeypatch.setitem(vars(pegboard), "load", load)
    context = Context(spec=DataSpec((Vector(4),), Classes(3)), device="meta")
    trick = build(Distillation("zoo:digits/mlp"), context)
    assert isinstance(trick, DistillationTrick) and trick.teacher is not None
    assert asked == [("zoo:digits/mlp", "meta")]
    assert {p.device.type for p in trick.teacher.parameters()} == {"meta"}
    assert trick.target == Classes(3)


@pytest.mark.catalogue("S4-163")
def test_the_teacher_is_frozen_in_eval_mode_and_never_changes(batch):
    student, teacher = network().train(), network().train()
    trick = DistillationTrick(Distillation("t"), teacher, Classes(3))
    assert not any(module.training for module in teacher.modules())
    assert not any(p.requires_grad for p in teacher.parameters())
    before = copy.deepcopy(teacher.state_dict())
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        output = student(*batch.inputs)
        trick.edit_loss(hard_loss(output, batch), output, batch).backward()
        optimizer.step()
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())
    assert all(p.grad is None for p in teacher.parameters())
    assert student.training
    assert trick.state_dict() == {}


def test_the_teacher_sees_the_edited_batch(batch):
    teacher, changed = network(), Batch((batch.inputs[0] + 1,), batch.target)
    trick = DistillationTrick(Distillation("t", 1.0, 1.0), teacher, Classes(3))
    output = teacher(*changed.inputs)
    assert trick.edit_loss(torch.tensor(0.0), output, changed).item() == pytest.approx(0, abs=1e-6)
    assert trick.edit_loss(torch.tensor(0.0), output, batch).item() > 1e-4


def test_several_inputs_reach_the_teacher():
    class Pair(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

    batch = Batch((torch.randn(2, 3), torch.randn(2, 3)), torch.tensor([0, 1]))
    trick = DistillationTrick(Distillation("t", alpha=1.0), Pair(), Classes(3))
    assert trick.edit_loss(torch.tensor(0.0), batch.inputs[0] + batch.inputs[1], batch).item() == 0


def test_real_targets_are_compared_by_squared_distance(batch):
    student, teacher = network(2), network(2)
    trick = DistillationTrick(Distillation("t", temperature=9.0, alpha=0.4), teacher, Values(2))
    output = student(*batch.inputs)
    expected = 0.6 * 5.0 + 0.4 * F.mse_loss(output, teacher(*batch.inputs))
    real = Batch(batch.inputs, torch.randn(16, 2))
    torch.testing.assert_close(trick.edit_loss(torch.tensor(5.0), output, real), expected)


@pytest.mark.parametrize(("target", "outputs"), [(Labels(3), 3), (Classes(2), 1)])
def test_yes_or_no_outputs_are_compared_by_sigmoids(batch, target, outputs):
    student, teacher = network(outputs), network(outputs)
    trick = DistillationTrick(Distillation("t", 2.0, 1.0), teacher, target)
    output, answer = student(*batch.inputs), teacher(*batch.inputs)
    p = (answer / 2).sigmoid()
    bce = F.binary_cross_entropy_with_logits
    expected = 4 * (bce(output / 2, p) - bce(answer / 2, p))
    labels = Batch(batch.inputs, torch.ones(16, 3) if outputs == 3 else torch.ones(16, dtype=torch.long))
    torch.testing.assert_close(trick.edit_loss(torch.tensor(0.0), output, labels), expected)


def test_weights_of_samples_weigh_the_teacher_too(batch):
    student, teacher = network().eval(), network().eval()
    trick = DistillationTrick(Distillation("t", alpha=1.0), teacher, Classes(3))
    output, zero = student(*batch.inputs), torch.tensor(0.0)
    weight = torch.cat([torch.ones(8), torch.zeros(8)])
    assert batch.target is not None
    half = Batch((batch.inputs[0][:8],), batch.target[:8])
    torch.testing.assert_close(
        trick.edit_loss(zero, output, batch._replace(weight=weight)), trick.edit_loss(zero, output[:8], half)
    )


@pytest.mark.parametrize("form", ["ignored", "padding", "soft"])
def test_padding_is_left_out_of_the_teachers_loss(form):
    teacher = nn.Embedding(7, 7)
    tokens = torch.randint(7, (4, 5))
    target = torch.randint(6, (4, 5))
    target[:, 3:] = 6 if form == "padding" else -100
    output, zero = torch.randn(4, 5, 7), torch.tensor(0.0)
    trick = DistillationTrick(
        Distillation("t", alpha=1.0), teacher, Tokens(7, 5, 6 if form == "padding" else -1)
    )
    short = trick.edit_loss(zero, output[:, :3], Batch((tokens[:, :3],), target[:, :3]))
    given = target
    if form == "soft":
        given = F.one_hot(target.clamp(min=0), 7) * (target != -100).unsqueeze(-1).float()
    torch.testing.assert_close(trick.edit_loss(zero, output, Batch((tokens,), given)), short)


@pytest.mark.parametrize(
    "spec", [Classes(3), Labels(3), Values(3), Tokens(3, 5), Span(3), Masked(3, 4)], ids=str
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_runs_on_the_meta_device(spec, weighted):
    meta = torch.device("meta")
    shape = (6, *spec.example(1, "meta").shape[1:], 4) if isinstance(spec, Tokens | Span | Masked) else (6, 4)
    student, teacher = nn.Linear(4, 3, device=meta), nn.Linear(4, 3, device=meta)
    trick = DistillationTrick(Distillation("t"), teacher, spec)
    weight = torch.ones(6, device=meta) if weighted else None
    batch = Batch((torch.zeros(shape, device=meta),), spec.example(6, "meta"), weight)
    output = student(*batch.inputs)
    loss = trick.edit_loss(output.mean(), output, batch)
    loss.backward()
    assert loss.shape == () and loss.device.type == "meta"
    assert student.weight.grad is not None and teacher.weight.grad is None


def test_a_teacher_for_another_target_is_found_on_the_meta_device():
    student, teacher = nn.Linear(4, 3, device="meta"), nn.Linear(4, 10, device="meta")
    trick = DistillationTrick(Distillation("runs/other"), teacher, Classes(3))
    batch = Batch((torch.zeros(6, 4, device="meta"),), torch.zeros(6, dtype=torch.long, device="meta"))
    output = student(*batch.inputs)
    with pytest.raises(PegboardError, match=r"(?s)'runs/other' does not fit.*\(6, 10\).*\(6, 3\)"):
        trick.edit_loss(output.mean(), output, batch)


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_teacher_that_reads_other_inputs_is_explained(inputs):
    trick = DistillationTrick(Distillation("runs/other"), nn.Linear(5, 3, device="meta"), Classes(3))
    batch = Batch((torch.zeros(6, 4, device="meta"),) * inputs, torch.zeros(6, device="meta").long())
    with pytest.raises(PegboardError, match=r"'runs/other' cannot read .* \(6, 4\)"):
        trick.edit_loss(torch.zeros((), device="meta"), torch.zeros(6, 3, device="meta"), batch)


def test_outputs_that_are_not_one_tensor_are_explained(batch):
    trick = DistillationTrick(Distillation("t"), network(), Classes(3))
    with pytest.raises(PegboardError, match="student gave tuple"):
        trick.edit_loss(torch.tensor(0.0), (torch.zeros(16, 3),), batch)
    with pytest.raises(PegboardError, match=r"student gave \(16,\)"):
        trick.edit_loss(torch.tensor(0.0), torch.zeros(16), batch)
    with pytest.raises(PegboardError, match="needs a teacher"):
        DistillationTrick(Distillation("t"), None)


def test_check_asks_for_a_teacher():
    (problem,) = check(Distillation(), Facts())
    assert problem.field == "teacher" and "zoo:name" in problem.expected
    assert not list(check(Distillation(alpha=0.0), Facts()))
    assert not list(check(Distillation("zoo:digits/mlp-large"), Facts()))


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (Classes(3), "4^2 * KL(softmax(teacher(x)/4) || softmax(f(x)/4))"),
        (Labels(3), "4^2 * KL(sigmoid(teacher(x)/4) || sigmoid(f(x)/4))"),
        (Values(3), "mean((teacher(x) - f(x))^2)"),
    ],
    ids=str,
)
def test_the_formula_shows_the_mix(target, shown):
    trick = DistillationTrick(Distillation("t"), network(), target)
    assert trick.formula("loss(f(x), y)") == f"(1-0.7) * loss(f(x), y) + 0.7 * {shown}"
    one = DistillationTrick(Distillation("t"), network(), Classes(2), outputs=1)
    assert "sigmoid(f(x)/4)" in one.formula("loss")
    assert trick.formula("a(x) + b(x)") == f"(1-0.7) * (a(x) + b(x)) + 0.7 * {shown}"
    assert DistillationTrick(Distillation(alpha=0.0), None, target).formula("loss") == "loss"


def test_the_record_names_what_the_trick_overrides():
    (record,) = pegboard_regularizers()
    assert record.name == "distillation"
    overridden = {
        n
        for kind in (DistillationTrick, SequenceTrick)
        for n in vars(kind)
        if n in vars(Trick) and not n.startswith("_")
    }
    assert overridden == {*record.stages, "prepare", "formula"}


def test_the_light_module_imports_neither_torch_nor_numpy():
    code = (
        "import pegboard_distillation as p; p.pegboard_regularizers(); "
        "list(p.check(p.Distillation('runs/none'), None))"
    )
    assert not loaded(code)
