"""The losses against torch, scikit-learn and closed forms."""

import math

import pegboard
import points
import pytest
import torch
import torch.nn.functional as F
from pegboard import Batch, Classes, Context, DataSpec, Labels, PegboardError, Tokens, Values, Vector
from pegboard.config.check import ConfigError, check
from pegboard_objectives import functional as losses
from pegboard_objectives import measures, pegboard_objectives
from pegboard_transformer import Masked, Span
from pegboard_transformer import pegboard_objectives as text_objectives
from sklearn.metrics import brier_score_loss, hinge_loss, log_loss
from torch import nn

# Those of texts, which pegboard-transformer has, obey the same laws.
PARTS = {part.name: part for part in (*pegboard_objectives(), *text_objectives())}
CLASSES, TOKENS, LABELS, VALUES = Classes(4), Tokens(6, 5), Labels(3), Values(2)
CASES = [
    ("cross_entropy", {}, CLASSES),
    ("cross_entropy", {"class_weights": (1.0, 2.0, 0.5, 3.0)}, CLASSES),
    ("cross_entropy", {}, TOKENS),
    ("cross_entropy", {}, Tokens(6, 5, padding=0)),
    ("binary_cross_entropy", {}, Classes(2)),
    ("binary_cross_entropy", {"pos_weight": (3.0,)}, Classes(2)),
    ("binary_cross_entropy", {"pos_weight": (3.0, 1.0, 0.5)}, LABELS),
    ("mse", {}, VALUES),
    ("mse", {"features": "sum"}, VALUES),
    ("mse", {}, CLASSES),
    ("mse", {"half": True, "features": "sum"}, VALUES),
    ("mse", {"half": True, "features": "sum"}, CLASSES),
    ("mse", {"missing": True}, VALUES),
    ("binary_cross_entropy", {"missing": True}, LABELS),
    ("brier", {}, Classes(2)),
    ("brier", {}, CLASSES),
    ("brier", {"missing": True}, LABELS),
    ("lp", {}, VALUES),
    ("lp", {"p": 1.0}, VALUES),
    ("lp", {"p": 3.0, "missing": True}, VALUES),
    ("lp", {"p": float("inf")}, VALUES),
    ("clustering", {}, CLASSES),
    ("l1", {}, VALUES),
    ("huber", {"delta": 0.5, "features": "sum"}, VALUES),
    ("hinge", {}, Classes(2)),
    ("hinge", {"squared": True}, CLASSES),
    ("hinge", {"multiclass": "weston_watkins"}, CLASSES),
    ("perceptron", {}, Classes(2)),
    ("perceptron", {}, CLASSES),
    ("span", {}, Span(5)),
    ("pretraining", {}, Masked(6, 5)),
]
IDS = [f"{name}-{spec}-{'-'.join(map(str, (*fields, *fields.values())))}" for name, fields, spec in CASES]


def build(name, spec, device="cpu", **fields):
    part = PARTS[name]
    config = part.config(**fields)
    outputs = part.outputs(config, spec) if part.outputs else None
    outputs = getattr(spec, "size", None) if outputs is None else outputs
    outputs = spec.length if isinstance(spec, Span) else outputs
    return part.build(config, Context(spec=DataSpec((), spec), outputs=outputs, device=device)), outputs


def sample(spec, outputs, rows=12, seed=0):
    """A random output and target of the spec's shapes."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(spec, Tokens):
        output = torch.randn(rows, spec.length, outputs, generator=generator)
        return output, torch.randint(1, spec.vocab, (rows, spec.length), generator=generator)
    if isinstance(spec, Span):
        target = torch.randint(spec.length, (rows, 2), generator=generator).sort(1).values
        return torch.randn(rows, 2, outputs, generator=generator), target
    if isinstance(spec, Masked):
        target = torch.randint(spec.vocab, (rows, 1 + spec.length), generator=generator)
        target[:, 0] %= 2
        return torch.randn(rows, 1 + spec.length, outputs, generator=generator), target
    output = torch.randn(rows, outputs, generator=generator)
    if isinstance(spec, Classes):
        return output, torch.randint(spec.count, (rows,), generator=generator)
    if isinstance(spec, Labels):
        return output, torch.randint(2, (rows, outputs), generator=generator).float()
    return output, torch.randn(rows, outputs, generator=generator)


every_loss = pytest.mark.parametrize(("name", "fields", "spec"), CASES, ids=IDS)


@every_loss
@pytest.mark.catalogue("T072")
def test_batch_loss_and_gradient_are_the_means_over_samples(name, fields, spec):
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs)
    output.requires_grad_()
    each = torch.stack([objective.loss(output[i : i + 1], target[i : i + 1]) for i in range(len(output))])
    if "class_weights" in fields:  # a mean weighted by the classes, by definition
        share = torch.tensor(fields["class_weights"])[target]
        expected = (each * share).sum() / share.sum()
    else:
        expected = each.mean()
    loss = objective.loss(output, target)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, output, retain_graph=True), torch.autograd.grad(expected, output)
    )


@every_loss
def test_weights_repeat_samples(name, fields, spec):
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs)
    times = torch.tensor([0, 1, 2, 3, 1, 0, 1, 4, 1, 2, 1, 1])
    repeated = objective.loss(output.repeat_interleave(times, 0), target.repeat_interleave(times, 0))
    torch.testing.assert_close(objective.loss(output, target, times.float()), repeated)
    torch.testing.assert_close(objective.loss(output, target, 7.0 * times), repeated)
    torch.testing.assert_close(objective.loss(output, target, torch.ones(12)), objective.loss(output, target))


@every_loss
def test_weights_of_zero_give_zero_and_not_nan(name, fields, spec):
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs)
    loss = objective.loss(output.requires_grad_(), target, torch.zeros(12))
    loss.backward()
    assert loss == 0
    assert (output.grad == 0).all()


@every_loss
@pytest.mark.parametrize("weighted", [False, True])
def test_extreme_outputs_give_finite_and_right_losses_and_gradients(name, fields, spec, weighted):
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs)
    weight = torch.ones(12) if weighted else None
    for scale in (1e4, -1e4, 0.0):
        found = []
        for dtype in (torch.float32, torch.float64):
            extreme = (output.sign() * scale).to(dtype).requires_grad_()
            exact = target.to(dtype) if target.is_floating_point() else target
            loss = objective.loss(extreme, exact, weight)
            loss.backward()
            assert loss.isfinite()
            assert extreme.grad.isfinite().all()
            found.append((loss.detach().double(), extreme.grad.double()))
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@every_loss
def test_a_sample_of_weight_zero_may_have_any_target(name, fields, spec):
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs)
    weight = torch.tensor([0.0, 1, 2, 0, 1, 1, 1, 1, 1, 1, 1, 0])
    expected = objective.loss(output, target, weight)
    for hidden in (torch.nan,) if target.is_floating_point() else (-1, 99, -100):
        masked = target.clone()
        masked[weight == 0] = hidden
        leaf = output.clone().requires_grad_()
        loss = objective.loss(leaf, masked, weight)
        loss.backward()
        torch.testing.assert_close(loss, expected)
        assert leaf.grad.isfinite().all()
        assert (leaf.grad[weight == 0] == 0).all()


@every_loss
def test_what_is_not_known_does_not_count(name, fields, spec):
    if (isinstance(spec, Labels | Values) and not fields.get("missing")) or name == "clustering":
        pytest.skip("nothing can be marked there")
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs)
    hidden = torch.tensor([1, 4, 5])
    masked = target.clone()
    masked[hidden] = torch.nan if target.is_floating_point() else -100
    kept = [i for i in range(12) if i not in hidden]
    for weight in (None, torch.rand(12)):
        leaf = output.clone().requires_grad_()
        loss = objective.loss(leaf, masked, weight)
        loss.backward()
        rest = objective.loss(output[kept], target[kept], None if weight is None else weight[kept])
        torch.testing.assert_close(loss, rest)
        assert (leaf.grad[hidden] == 0).all()
    masked[:] = torch.nan if target.is_floating_point() else -100
    assert objective.loss(output, masked) == 0


@every_loss
def test_the_mass_of_batches_joins_their_losses(name, fields, spec):
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs)
    marks = not target.is_floating_point() or fields.get("missing")
    if marks and name != "clustering":
        target[[0, 1, 2, 5]] = torch.nan if target.is_floating_point() else -100
    if fields.get("missing"):
        target[7, 0] = torch.nan
    for weight in (None, torch.rand(12)):
        total = mass = 0
        for rows in (slice(0, 3), slice(3, 4), slice(4, 12)):
            some = None if weight is None else weight[rows]
            share = objective.mass(Batch((output[rows],), target[rows], some))
            total, mass = total + share * objective.loss(output[rows], target[rows], some), mass + share
        torch.testing.assert_close(torch.as_tensor(total / mass), objective.loss(output, target, weight))


@every_loss
@pytest.mark.parametrize("weighted", [False, True])
def test_step_runs_on_the_meta_device(name, fields, spec, weighted):
    objective, outputs = build(name, spec, device="meta", **fields)
    output, target = sample(spec, outputs)
    model = nn.Linear(outputs, outputs, device="meta")
    [player] = objective.players(model)
    weight = torch.ones(12, device="meta") if weighted else None
    loss, out = player.loss(model, Batch((output.to("meta"),), target.to("meta"), weight))
    loss.backward()
    assert loss.shape == ()
    assert out.shape == output.shape
    assert model.weight.grad.is_meta


@every_loss
def test_player_descends_the_loss_of_the_objective(name, fields, spec):
    objective, outputs = build(name, spec, **fields)
    inputs, target = sample(spec, outputs)
    model = nn.Linear(outputs, outputs)
    model.bias.requires_grad_(False)
    [player] = objective.players(model)
    assert [n for n, _ in player.parameters] == ["weight"]
    for weight in (None, torch.rand(12)):
        loss, output = player.loss(model, Batch((inputs,), target, weight))
        assert torch.equal(output, model(inputs))
        torch.testing.assert_close(loss, objective.loss(output, target, weight))


@every_loss
def test_double_precision_passes_gradcheck(name, fields, spec):
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs, rows=4)
    target = target.double() if target.is_floating_point() else target
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: objective.loss(x, target, weight), output.double().requires_grad_()
    )


@every_loss
def test_half_precision_outputs_are_taken(name, fields, spec):
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs)
    targets = [target]
    if PARTS[name].soft and isinstance(spec, Classes | Tokens | Masked):
        targets.append(F.one_hot(target, spec.size).float())
    for target in targets:
        for weight in (None, torch.rand(12)):
            expected = objective.loss(output, target, weight)
            found = objective.loss(output.bfloat16(), target, weight)
            torch.testing.assert_close(found.float(), expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize(
    ("name", "fields", "spec"),
    [(n, f, s) for n, f, s in CASES if PARTS[n].soft and isinstance(s, Classes | Tokens | Masked)],
)
@pytest.mark.catalogue("S4-031")
def test_one_hot_targets_give_what_indices_give(name, fields, spec):
    objective, outputs = build(name, spec, **fields)
    output, target = sample(spec, outputs)
    soft = F.one_hot(target, spec.size).float()
    for weight in (None, torch.rand(12)):
        torch.testing.assert_close(
            objective.loss(output, soft, weight), objective.loss(output, target, weight)
        )


@pytest.mark.catalogue("T074", "S4-031")
def test_cross_entropy_equals_torch_and_scikit_learn():
    objective, _ = build("cross_entropy", CLASSES)
    output, target = sample(CLASSES, 4, rows=50)
    torch.testing.assert_close(objective.loss(output, target), nn.CrossEntropyLoss()(output, target))
    reference = log_loss(target, output.double().softmax(-1), labels=range(4))
    assert objective.loss(output, target).item() == pytest.approx(reference, abs=1e-6)
    ten, _ = build("cross_entropy", Classes(10))
    assert ten.loss(torch.zeros(3, 10), torch.tensor([0, 5, 9])).item() == pytest.approx(2.302585, abs=1e-6)
    sure = 1e3 * losses.one_hot(torch.tensor([0, 5, 9]), 10, torch.float32)
    assert ten.loss(sure, torch.tensor([0, 5, 9])).item() == 0


@pytest.mark.catalogue("T003")
def test_exact_soft_classifier_has_no_cross_entropy():
    objective, _ = build("cross_entropy", CLASSES)
    target = torch.randint(4, (50,))
    exact = losses.one_hot(target, 4, torch.float64)
    assert torch.equal(exact.sum(-1), torch.ones(50).double()) and (exact.amax(-1) == 1).all()
    assert torch.equal(exact.argmax(-1), target) and measures.on_simplex(exact, 0.0).all()
    assert objective.loss(exact.log(), target) == 0  # chances of 1 and 0
    assert objective.loss(1e4 * exact.float(), target) == 0
    assert objective.loss(1e4 * exact.float(), exact.float()) == 0


def test_class_weights_equal_torch_for_indices_with_sample_weights():
    weights = (1.0, 2.0, 0.5, 3.0)
    objective, _ = build("cross_entropy", CLASSES, class_weights=weights)
    output, target = sample(CLASSES, 4)
    tensor = torch.tensor(weights)
    torch.testing.assert_close(objective.loss(output, target), F.cross_entropy(output, target, tensor))
    weight = torch.rand(12)
    each = F.cross_entropy(output, target, reduction="none")
    expected = (weight * tensor[target] * each).sum() / (weight * tensor[target]).sum()
    torch.testing.assert_close(objective.loss(output, target, weight), expected)


def test_places_without_a_token_do_not_count():
    objective, _ = build("cross_entropy", TOKENS)
    output, target = sample(TOKENS, 6)
    target[:, 3:] = -100
    target[0] = -100
    expected = F.cross_entropy(output[1:, :3].reshape(-1, 6), target[1:, :3].reshape(-1))
    torch.testing.assert_close(objective.loss(output, target), expected)
    # Distributions mark the same places by rows of zeros.
    soft = F.one_hot(target.clamp(min=0), 6) * (target >= 0).unsqueeze(-1)
    torch.testing.assert_close(objective.loss(output, soft.float()), expected)
    # A sequence weighs by its places.
    weight = torch.rand(12)
    each = F.cross_entropy(output.transpose(1, 2), target, reduction="none")
    counted = (target >= 0) * weight[:, None]
    torch.testing.assert_close(
        objective.loss(output, target, weight), (each * weight[:, None]).sum() / counted.sum()
    )


def test_padding_of_the_spec_does_not_count():
    objective, _ = build("cross_entropy", Tokens(6, 5, padding=0))
    plain, _ = build("cross_entropy", TOKENS)
    output, target = sample(TOKENS, 6)
    padded, ignored = target.clone(), target.clone()
    padded[:, 2:], ignored[:, 2:] = 0, -100
    assert torch.equal(objective.loss(output, padded), plain.loss(output, ignored))


def test_a_batch_of_padding_alone_has_loss_zero():
    objective, _ = build("cross_entropy", TOKENS)
    output = torch.randn(2, 5, 6, requires_grad=True)
    loss = objective.loss(output, torch.full((2, 5), -100))
    loss.backward()
    assert loss == 0
    assert (output.grad == 0).all()


@pytest.mark.catalogue("T035", "S3-044", "S4-024")
def test_binary_cross_entropy_of_two_classes():
    objective, outputs = build("binary_cross_entropy", Classes(2))
    assert outputs == 1
    logit = torch.linspace(-8, 8, 33, dtype=torch.float64).unsqueeze(-1).requires_grad_()
    target = torch.arange(33) % 2
    reference = nn.BCEWithLogitsLoss(reduction="sum")(logit.squeeze(-1), target.double())
    loss = 33 * objective.loss(logit, target)
    torch.testing.assert_close(loss, reference)
    [slope] = torch.autograd.grad(loss, logit, create_graph=True)
    torch.testing.assert_close(slope.squeeze(-1), logit.sigmoid().squeeze(-1) - target)
    [curve] = torch.autograd.grad(slope.sum(), logit)
    torch.testing.assert_close(curve, logit.sigmoid() * (1 - logit.sigmoid()))
    for far in (1e3, 1e4):  # as large as the logit where it is wrong, and nothing where it is right
        for sign, index, expected in ((1, 0, far), (1, 1, 0.0), (-1, 1, far), (-1, 0, 0.0)):
            found = objective.loss(torch.tensor([[sign * far]]), torch.tensor([index]))
            assert found.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.catalogue("S3-044", "S4-024")
def test_binary_cross_entropy_is_convex_in_the_weights_of_a_line():
    objective, _ = build("binary_cross_entropy", Classes(2))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, dtype=torch.float64, generator=generator)
    target = torch.randint(2, (30,), generator=generator)
    w = torch.randn(3, 1, dtype=torch.float64, generator=generator).requires_grad_()
    [slope] = torch.autograd.grad(objective.loss(x @ w, target), w)
    torch.testing.assert_close(slope, x.T @ ((x @ w).sigmoid() - target.unsqueeze(-1)).detach() / 30)
    hessian = torch.autograd.functional.hessian(lambda w: objective.loss(x @ w, target), w).reshape(3, 3)
    assert torch.linalg.eigvalsh(hessian).min() >= -1e-10


def test_binary_cross_entropy_equals_softmax_over_two():
    objective, _ = build("binary_cross_entropy", Classes(2))
    output, target = sample(Classes(2), 1)
    two = torch.cat([torch.zeros_like(output), output], -1)
    torch.testing.assert_close(objective.loss(output, target), F.cross_entropy(two, target))
    soft = torch.rand(12, 1)
    soft = torch.cat([1 - soft, soft], -1)
    torch.testing.assert_close(objective.loss(output, soft), F.cross_entropy(two, soft))


def test_pos_weight_weighs_positive_cases():
    output, target = sample(LABELS, 3)
    objective, outputs = build("binary_cross_entropy", LABELS, pos_weight=(3.0, 1.0, 0.5))
    assert outputs == 3
    chance = output.sigmoid()
    each = -torch.tensor([3.0, 1.0, 0.5]) * target * chance.log() - (1 - target) * (1 - chance).log()
    torch.testing.assert_close(objective.loss(output, target), each.mean())
    single, _ = build("binary_cross_entropy", Classes(2), pos_weight=(3.0,))
    expected = torch.tensor([math.log(2), 3 * math.log(2)]).mean()
    torch.testing.assert_close(single.loss(torch.zeros(2, 1), torch.tensor([0, 1])), expected)


@pytest.mark.catalogue("T029", "T073", "S3-021")
def test_squared_error_over_features():
    output, target = (x.double() for x in sample(VALUES, 2))
    mean, _ = build("mse", VALUES)
    total, _ = build("mse", VALUES, features="sum")
    assert torch.equal(mean.loss(output, target), nn.MSELoss()(output, target))
    torch.testing.assert_close(total.loss(output, target), nn.MSELoss(reduction="sum")(output, target) / 12)
    torch.testing.assert_close(total.loss(output, target), 2 * mean.loss(output, target))
    output.requires_grad_()
    [slope] = torch.autograd.grad(total.loss(output, target), output)
    torch.testing.assert_close(12 * slope, 2 * (output - target).detach(), rtol=1e-12, atol=1e-12)
    # The sum over samples has as many times the gradient of the mean as there are samples, and features.
    [summed] = torch.autograd.grad(nn.MSELoss(reduction="sum")(output, target), output)
    torch.testing.assert_close(summed, len(output) * slope, rtol=1e-12, atol=1e-12)
    [averaged] = torch.autograd.grad(mean.loss(output, target), output)
    torch.testing.assert_close(summed, output.numel() * averaged, rtol=1e-12, atol=1e-12)


@pytest.mark.catalogue("S3-021")
def test_sum_and_mean_of_squares_have_one_minimum(tmp_path):
    """Runs with either, at rates that make their steps alike, and the exact optimum of both."""
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    y = x @ torch.tensor([[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]]) + 0.1 * x[:, :2].sin()
    ends = []
    for features, rate in (("sum", 0.1), ("mean", 0.2)):
        config = points.given(
            x,
            values=y,
            model="linear",
            objective={"name": "mse", "features": features},
            optimizer={"name": "gd", "lr": rate, "tolerance": 1e-6},
            trainer={"epochs": 300, "eval_every": 300, "device": "cpu", "diagnose": False},
            reference={"name": "least_squares", "features": features},
        )
        done = points.run(config, tmp_path / features)
        assert abs(done.reference["gap"]) < 1e-9
        ends.append((pegboard.load(done, which="last").head.weight, done.reference["optimum"]))
    torch.testing.assert_close(ends[0][0], ends[1][0], rtol=0, atol=1e-5)
    assert ends[0][1] == pytest.approx(2 * ends[1][1], rel=1e-9) and ends[0][1] > 1e-4


def test_absolute_and_huber_error():
    output, target = torch.tensor([[0.0], [0.0], [0.0]]), torch.tensor([[0.5], [-2.0], [4.0]])
    l1, _ = build("l1", Values(1))
    huber, _ = build("huber", Values(1), delta=2.0)
    assert l1.loss(output, target).item() == pytest.approx(6.5 / 3)
    assert huber.loss(output, target).item() == pytest.approx((0.125 + 2 + 2 * (4 - 1)) / 3)


def test_squared_error_on_classes_compares_with_one_hot_rows():
    objective, outputs = build("mse", Classes(3), features="sum")
    assert outputs == 3
    output = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    assert objective.loss(output, torch.tensor([0, 2])).item() == pytest.approx((0 + 1.5) / 2)


def test_output_that_would_broadcast_is_refused():
    objective, _ = build("mse", Values(1))
    with pytest.raises(ValueError, match=r"gives \(4,\) and the target is \(4, 1\)"):
        objective.loss(torch.zeros(4), torch.zeros(4, 1))


@pytest.mark.catalogue("T053")
def test_binary_hinge_at_its_margins():
    objective, outputs = build("hinge", Classes(2))
    assert outputs == 1
    values = torch.tensor([2.0, 1.0, 0.0, -1.0])
    for sign, index in ((1, 1), (-1, 0)):
        found = [objective.loss(sign * v.reshape(1, 1), torch.tensor([index])).item() for v in values]
        assert found == [0, 0, 1, 2]
    inside = torch.tensor([[0.5]], requires_grad=True)
    objective.loss(inside, torch.tensor([1])).backward()
    assert inside.grad.item() == -1
    # By the weights it is -y x inside the margin or on the wrong side, and nothing outside.
    x, w = torch.tensor([0.3, -0.2]), torch.tensor([0.5, 1.0], requires_grad=True)
    for bias, index, wanted in ((0.0, 1, -x), (0.0, 0, x), (-3.0, 1, -x), (3.0, 1, 0 * x), (-3.0, 0, 0 * x)):
        [slope] = torch.autograd.grad(objective.loss((x @ w + bias).reshape(1, 1), torch.tensor([index])), w)
        torch.testing.assert_close(slope, wanted)
    squared, _ = build("hinge", Classes(2), squared=True)
    assert squared.loss(torch.tensor([[-1.0], [0.5]]), torch.tensor([1, 1])).item() == (4 + 0.25) / 2


def test_hinge_equals_scikit_learn():
    binary, _ = build("hinge", Classes(2))
    output, target = sample(Classes(2), 1)
    assert binary.loss(output, target).item() == pytest.approx(hinge_loss(target, output.squeeze(-1)))
    several, outputs = build("hinge", CLASSES)
    output, target = sample(CLASSES, 4)
    assert outputs == 4
    assert several.loss(output, target).item() == pytest.approx(hinge_loss(target, output, labels=range(4)))


@pytest.mark.parametrize("squared", [False, True])
def test_weston_watkins_is_torch_margin_loss_times_classes(squared):
    objective, _ = build("hinge", CLASSES, multiclass="weston_watkins", squared=squared)
    output, target = sample(CLASSES, 4)
    expected = 4 * F.multi_margin_loss(output, target, p=2 if squared else 1)
    torch.testing.assert_close(objective.loss(output, target), expected)


def test_perceptron_loss_is_zero_where_the_decision_is_right():
    objective, outputs = build("perceptron", Classes(2))
    assert outputs == 1
    output = torch.tensor([[2.0], [2.0], [-0.5], [-0.5]])
    assert objective.loss(output, torch.tensor([1, 0, 1, 0])).item() == (0 + 2 + 0.5 + 0) / 4
    several, outputs = build("perceptron", Classes(3))
    assert outputs == 3
    output = torch.tensor([[3.0, 1.0, 0.0], [3.0, 1.0, 0.0]])
    assert several.loss(output, torch.tensor([0, 2])).item() == (0 + 3) / 2


@pytest.mark.parametrize("count", [2, 3])
def test_perceptron_makes_an_update_from_outputs_of_zero(count):
    objective, outputs = build("perceptron", Classes(count))
    output = torch.zeros(1, outputs, requires_grad=True)
    objective.loss(output, torch.tensor([1])).backward()
    assert output.grad.abs().max() == 1


def test_margin_losses_refuse_an_output_too_many():
    with pytest.raises(RuntimeError):
        losses.binary_hinge(torch.zeros(2, 2), torch.tensor([0, 1]))
    with pytest.raises(RuntimeError):
        losses.two_class_cross_entropy(torch.zeros(2, 2), torch.tensor([0, 1]))


@pytest.mark.catalogue("S4-021", "S4-029")
def test_half_of_the_squares_has_the_error_as_its_gradient():
    x = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.randn(12, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    w = torch.ones(3, 1, dtype=torch.float64, requires_grad=True)
    scalar, _ = build("mse", Values(1), half=True)
    total = 12 * scalar.loss(x @ w, y)  # the sum over samples
    torch.testing.assert_close(total, 0.5 * 12 * F.mse_loss(x @ w, y), rtol=1e-12, atol=0)
    [slope] = torch.autograd.grad(total, w)
    torch.testing.assert_close(slope, x.T @ (x @ w - y).detach(), rtol=1e-12, atol=1e-12)
    vector, _ = build("mse", VALUES, half=True, features="sum")
    output, target = sample(VALUES, 2)
    output.requires_grad_()
    each = torch.stack([vector.loss(output[i : i + 1], target[i : i + 1]) for i in range(12)])
    torch.testing.assert_close(each, 0.5 * ((target - output) ** 2).sum(-1))
    [slope] = torch.autograd.grad(each.sum(), output)
    torch.testing.assert_close(slope, (output - target).detach(), rtol=0, atol=1e-7)


@pytest.mark.catalogue("S3-042")
def test_squared_error_of_a_sigmoid_is_not_convex_and_flat_where_it_is_badly_wrong():
    brier, outputs = build("brier", Classes(2))
    entropy, _ = build("binary_cross_entropy", Classes(2))
    assert outputs == 1

    def slopes(objective, value):
        z = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
        loss = objective.loss(z, torch.tensor([1]))
        [first] = torch.autograd.grad(loss, z, create_graph=True)
        [second] = torch.autograd.grad(first.sum(), z)
        return loss.item(), first.item(), second.item()

    assert slopes(brier, -1.85)[2] == pytest.approx(-0.1202, abs=1e-4)
    curves = [slopes(brier, z)[2] for z in torch.linspace(-8, 8, 321).tolist()]
    assert min(curves) == pytest.approx(-0.1202, abs=1e-4) and max(curves) == pytest.approx(0.154, abs=1e-3)
    assert abs(slopes(brier, -10.0)[1]) < 1e-4
    assert slopes(entropy, -10.0)[1] == pytest.approx(-1, abs=1e-4)
    assert slopes(brier, 0.3)[0] == pytest.approx((1 - 1 / (1 + math.exp(-0.3))) ** 2)


def test_brier_score_equals_scikit_learn():
    for spec in (Classes(2), CLASSES):
        objective, outputs = build("brier", spec)
        output, target = sample(spec, outputs)
        chance = output.double().sigmoid().squeeze(-1) if outputs == 1 else output.double().softmax(-1)
        weight = torch.rand(12)
        for w in (None, weight):
            expected = brier_score_loss(target, chance, sample_weight=w, labels=range(spec.count))
            assert objective.loss(output, target, w).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.catalogue("S3-026")
def test_distances_are_those_of_torch_and_obey_the_triangle_from_one_on():
    generator = torch.Generator().manual_seed(0)
    a, b, c = torch.randn(3, 500, 4, dtype=torch.float64, generator=generator)
    for p in (1.0, 2.0, 3.0, float("inf")):
        objective, _ = build("lp", Values(4), p=p)
        torch.testing.assert_close(measures.lp_norm(a - b, p), torch.linalg.vector_norm(a - b, p, dim=-1))
        torch.testing.assert_close(objective.loss(a, b), torch.linalg.vector_norm(a - b, p, dim=-1).mean())
        slack = measures.lp_norm(a - b, p) + measures.lp_norm(b - c, p) - measures.lp_norm(a - c, p)
        assert slack.min() >= -1e-12
    half = [measures.lp_norm(x, 0.5) for x in (a - b, b - c, a - c)]
    assert (half[0] + half[1] - half[2]).min() < -0.1
    config = {"data": "linear_teacher", "model": "linear", "optimizer": "sgd"}
    with pytest.raises(ConfigError, match=r"expected a number \(at least 1\) or inf"):
        check(config | {"objective": {"name": "lp", "p": 0.5}})
    chosen = check(config | {"objective": {"name": "lp", "p": "inf"}}).objective
    largest = chosen.entry.part.build(chosen.config, Context(spec=DataSpec((Vector(1),), Values(4))))
    torch.testing.assert_close(largest.loss(a, b), (a - b).abs().amax(-1).mean())


def test_powers_of_large_errors_do_not_overflow():
    x = torch.tensor([[3e20, 4e20]], requires_grad=True)
    for p, expected in ((2.0, 5e20), (3.0, 91 ** (1 / 3) * 1e20)):
        norm = measures.lp_norm(x, p)
        assert norm.item() == pytest.approx(expected, rel=1e-6)
        assert torch.autograd.grad(norm.sum(), x)[0].isfinite().all()
    for p in (1.0, 1.5, 2.0, 3.0, float("inf")):
        zero = torch.zeros(2, 3, requires_grad=True)
        measures.lp_norm(zero, p).sum().backward()
        assert (zero.grad == 0).all(), p


def test_missing_values_leave_the_others_of_a_sample_to_count():
    target = torch.tensor([[1.0, torch.nan], [2.0, 3.0], [torch.nan, torch.nan]])
    output, weight = torch.zeros(3, 2), torch.tensor([2.0, 1.0, 5.0])
    mean, _ = build("mse", VALUES, missing=True)
    total, _ = build("mse", VALUES, missing=True, features="sum")
    assert mean.loss(output, target).item() == pytest.approx((1 + 4 + 9) / 3)
    assert mean.loss(output, target, weight).item() == pytest.approx((2 * 1 + 4 + 9) / 4)
    assert total.loss(output, target).item() == pytest.approx((1 + 13) / 2)
    assert total.loss(output, target, weight).item() == pytest.approx((2 * 1 + 13) / 3)
    plain, _ = build("mse", VALUES)
    assert plain.loss(output, target).isnan()  # which ends a run


@pytest.mark.parametrize("name", ["cross_entropy", "hinge", "perceptron"])
def test_a_class_that_cannot_be_is_an_error_in_words(name):
    objective, outputs = build(name, CLASSES)
    output, target = torch.zeros(3, outputs), torch.tensor([0, 7, 1])
    words = "a target is class 7, and there are 4 classes: expected 0 to 3, or -100"
    with pytest.raises(PegboardError, match=words):
        objective.loss(output, target)
    model = nn.Linear(2, outputs)
    with pytest.raises(PegboardError, match=words):
        objective.players(model)[0].loss(model, Batch((torch.zeros(3, 2),), target))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):  # what is wrong elsewhere stays as it is
        objective.players(model)[0].loss(model, Batch((torch.zeros(3, 5),), target))


def test_clustering_is_the_squared_distance_to_the_nearest_centre():
    objective, _ = build("clustering", None)
    x = torch.tensor([[0.0], [1.0], [10.0]])
    centres = torch.tensor([0.5, 8.0])
    output = -((x - centres) ** 2)
    assert objective.loss(output, None).item() == pytest.approx((0.25 + 0.25 + 4) / 3)
    assert objective.loss(output, None, torch.tensor([1.0, 1.0, 0.0])).item() == pytest.approx(0.25)
    assert objective.metrics() == {}
    found = objective.predict(output)
    assert found["cluster"].tolist() == [0, 0, 1] and found["distance"].tolist() == [0.5, 0.5, 2.0]


def test_the_plain_cross_entropy_is_that_of_torch_for_indices_and_distributions() -> None:
    torch.manual_seed(0)
    f64 = torch.float64
    output, index = torch.randn(6, 4, dtype=f64, requires_grad=True), torch.tensor([0, 3, -100, 1, 2, 1])
    soft = torch.rand(6, 4, dtype=f64).softmax(-1)
    soft[2] = 0
    for target in (index, soft):
        mine, theirs = losses.plain_cross_entropy(output, target), F.cross_entropy(output, target)
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=0)
        gradients = [torch.autograd.grad(loss, output)[0] for loss in (mine, theirs)]
        torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-15)
    with pytest.raises(RuntimeError):
        losses.plain_cross_entropy(output, soft[:, :3])
