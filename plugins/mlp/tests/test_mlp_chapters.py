"""What the models are trained for: classes, exclusive or, depth, and the range of their outputs."""

import pytest
import torch
from pegboard import DataSpec, Resident, Splits, Values, Vector
from pegboard.config.check import check
from pegboard.inference.trained import Trained
from pegboard.planning.plan import assemble, make_plan
from pegboard_mlp.constructions import hyperplanes, network, permuted
from pegboard_mlp.gradients import GradientProbe
from pegboard_mlp.modules import LinearModel, Mlp
from points import given, run
from torch import nn

F64 = torch.float64
CORNERS = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
XOR = torch.tensor([0, 1, 1, 0])
LOGISTIC = {"objective": "binary_cross_entropy"}


def assembled(config):
    return assemble(make_plan(check(config), read=True), "cpu")


@pytest.mark.catalogue("T010", "T018", "S4-030")
def test_a_softmax_output_makes_a_classifier_that_is_never_certain():
    model = Mlp(3, [], 3, output="softmax").double()
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(3))
        model.head.bias.zero_()
    known = torch.tensor([[0.66524096, 0.24472847, 0.09003057]], dtype=F64)
    torch.testing.assert_close(model(torch.tensor([[1.0, 0, -1]], dtype=F64)), known, atol=1e-7, rtol=0)
    y = 10 * torch.randn(500, 3, dtype=F64)
    p = model(y)
    torch.testing.assert_close(p.sum(1), torch.ones(500, dtype=F64), atol=1e-6, rtol=0)
    assert (p >= 0).all() and (p <= 1).all()
    assert torch.equal(p.argsort(1), y.argsort(1))
    torch.testing.assert_close(model(y + 1000), p, atol=1e-9, rtol=0)
    order = [2, 0, 1]
    torch.testing.assert_close(model(y[:, order]), p[:, order])
    assert model(torch.tensor([[300.0, 0, -300]], dtype=F64)).min() > 0
    assert model(torch.tensor([[1e4, -1e4, 0.0]], dtype=F64)).isfinite().all()
    two = Mlp(1, [], 2, output="softmax").double()  # z and 0: of two classes it is the logistic function
    with torch.no_grad():
        two.head.weight.copy_(torch.tensor([[1.0], [0.0]]))
        two.head.bias.zero_()
    torch.testing.assert_close(two(y[:, :1])[:, 0], y[:, 0].sigmoid())
    # A classifier of the framework says the same probabilities, from outputs without softmax.
    deep = assembled(given(torch.randn(9, 4), torch.arange(9) % 3, model={"name": "mlp", "hidden": [5]}))
    logits = deep.model(torch.randn(50, 4))
    said = deep.objective.predict(logits)
    torch.testing.assert_close(said["probability"], logits.softmax(1).amax(1))
    assert torch.equal(said["class"], logits.argmax(1))


@pytest.mark.catalogue("T034")
@pytest.mark.parametrize("n", [1, 2, 3, 11])
def test_logistic_regression_has_one_parameter_more_than_inputs(n):
    x = torch.randn(6, n)
    made = assembled(given(x, torch.tensor([0, 1, 0, 1, 1, 0]), model="linear", **LOGISTIC))
    assert sum(p.numel() for p in made.model.parameters()) == n + 1
    a, b = made.model.head.weight[0], made.model.head.bias
    p = torch.sigmoid((x * a).sum(1) + b)
    said = made.objective.predict(made.model(x))
    torch.testing.assert_close(
        torch.where(said["class"] == 1, said["probability"], 1 - said["probability"]), p
    )


@pytest.mark.catalogue("T038")
def test_scaling_a_logistic_regression_keeps_its_boundary_and_changes_how_steep_it_is():
    made = assembled(given(torch.randn(4, 2), XOR, model="linear", **LOGISTIC))
    model, predict = made.model.double(), made.objective.predict
    x = torch.randn(200, 2, dtype=F64)
    before = predict(model(x))
    a, b = model.head.weight.detach()[0], model.head.bias.detach()
    along = torch.tensor([-a[1], a[0]])
    on = -b * a / a.square().sum() + torch.linspace(-3, 3, 9, dtype=F64)[:, None] * along

    def boundary():
        return (model(on).sigmoid() - 0.5).abs().max()

    assert boundary() < 1e-6
    with torch.no_grad():
        for p in model.parameters():
            p *= 10
    after = predict(model(x))
    assert torch.equal(after["class"], before["class"]) and boundary() < 1e-6
    assert (after["probability"] > before["probability"]).all()
    with torch.no_grad():
        for p in model.parameters():
            p *= -1
    assert torch.equal(predict(model(x))["class"], 1 - before["class"])


@pytest.mark.catalogue("S3-041")
def test_far_points_move_a_thresholded_regression_and_not_a_logistic_one(tmp_path):
    made = assembled(given(CORNERS, XOR, model="linear", **LOGISTIC))
    logits = torch.tensor([[-2.0], [-1e-6], [0.0], [1e-6], [3.0]])
    assert made.objective.predict(logits)["class"].tolist() == [0, 0, 0, 1, 1]
    assert torch.equal(logits.double().sigmoid() > 0.5, logits > 0)
    near = torch.tensor([-2, -0.7, -0.5, -0.3, 0.2, -0.2, 0.3, 0.5, 0.7, 2])[:, None]
    classes = torch.tensor([0] * 5 + [1] * 5)
    far, positive = torch.cat((near, torch.full((5, 1), 20.0))), torch.cat((classes, torch.ones(5).long()))

    def wrong(x, y, **nodes):
        target = {"values": y.float()[:, None]} if "objective" not in nodes else {"classes": y}
        model = run(given(x, **target, model="linear", **nodes), tmp_path).model
        decided = model(near)[:, 0] > (0 if "objective" in nodes else 0.5)
        return int((decided != classes.bool()).sum())

    assert wrong(near, classes) == wrong(near, classes, **LOGISTIC) == 2
    assert wrong(far, positive, **LOGISTIC) == 2
    assert wrong(far, positive) > 2


@pytest.mark.catalogue("T022")
@pytest.mark.parametrize("count", [1, 2])
def test_cells_of_hyperplanes_are_told_apart(tmp_path, count):
    data = {"name": "hyperplanes", "count": count, "samples": 300, "seed": 3, "val": 0, "test": 0}
    for model in ({"name": "mlp", "hidden": [16]}, "linear"):  # the cells are convex
        config = {
            "data": {**data, "batch_size": "all"},
            "model": model,
            "optimizer": {"name": "lbfgs", "line_search_fn": "strong_wolfe"},
            "trainer": {"epochs": 8, "eval_every": 8, "device": "cpu", "diagnose": False},
        }
        done = run(config, tmp_path)
        trained = Trained(done.folder, "last")
        assert trained.evaluate("train")["accuracy"] >= 0.99
    # A network that is written down makes no mistake, in the run's data or anywhere else.
    teacher = trained.splits.notes["teacher"]
    normals, offsets = torch.tensor(teacher["normals"]), torch.tensor(teacher["offsets"])
    known = hyperplanes(normals, offsets)
    batch = trained.source("train").gather(torch.arange(300))
    assert torch.equal(known(batch.inputs[0]).argmax(1), batch.target)
    assert batch.target.unique().tolist() == list(range(2**count))
    x = 2 * torch.rand(2000, 2) - 1
    sides = (x @ normals.T + offsets > 0).long()
    assert torch.equal(known(x).argmax(1), (sides * 2 ** torch.arange(count)).sum(1))


@pytest.mark.catalogue("S4-008")
def test_two_hidden_relus_are_enough_for_exclusive_or():
    data = {"name": "xor", "samples": 4, "noise": 0.0, "val": 0, "test": 0}
    config = {"data": data, "model": {"name": "mlp", "hidden": [2]}, "optimizer": "lbfgs", **LOGISTIC}
    made = assembled(config)
    batch = made.plan.splits.train.gather(torch.arange(4))
    assert sorted(zip(*batch.inputs[0].T.tolist(), batch.target.tolist(), strict=True)) == [
        (0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)
    ]  # fmt: skip
    known = network([([[1.0, 1.0], [1.0, 1.0]], [0.0, -1.0]), ([[1.0, -2.0]], [-0.5])])
    made.model.load_state_dict(known.state_dict())  # relu(a + b) - 2 relu(a + b - 1) > 1/2
    right = made.objective.predict(made.model(*batch.inputs))["class"] == batch.target
    assert right.all()


@pytest.mark.catalogue("S3-068", "S4-033")
def test_exclusive_or_takes_a_nonlinear_layer(tmp_path):
    def accuracy(model):
        return run(given(CORNERS, XOR, model=model, **LOGISTIC), tmp_path).figures["test/accuracy"]

    one = assembled(given(CORNERS, XOR, model={"name": "mlp", "hidden": []}, **LOGISTIC)).model
    logistic = assembled(given(CORNERS, XOR, model="linear", **LOGISTIC)).model
    x = torch.randn(50, 2)
    assert torch.equal(one(x), logistic(x))
    assert accuracy("linear") <= 0.75
    assert accuracy({"name": "mlp", "hidden": [4, 4], "activation": "identity"}) <= 0.75
    assert accuracy({"name": "mlp", "hidden": [8], "activation": "sigmoid"}) == 1


@pytest.mark.catalogue("S3-071")
def test_a_bias_is_a_weight_of_an_input_that_is_always_one():
    model, folded = LinearModel(4, 3).double(), LinearModel(5, 3, bias=False).double()
    with torch.no_grad():
        folded.head.weight.copy_(torch.cat((model.head.weight, model.head.bias[:, None]), 1))
    x = torch.randn(20, 4, dtype=F64)
    longer = nn.functional.pad(x, (0, 1), value=1)
    torch.testing.assert_close(folded(longer), model(x), atol=1e-12, rtol=0)
    model(x).square().sum().backward()
    folded(longer).square().sum().backward()
    torch.testing.assert_close(folded.head.weight.grad[:, :4], model.head.weight.grad)
    torch.testing.assert_close(folded.head.weight.grad[:, 4], model.head.bias.grad)


@pytest.mark.catalogue("S3-072")
def test_the_output_layer_sets_what_values_can_be_reached(tmp_path):
    bounded, free = Mlp(5, [16], 3, output="sigmoid"), Mlp(5, [16], 3)
    x = 5 * torch.randn(10_000, 5)
    assert (bounded(x) > 0).all() and (bounded(x) < 1).all()
    assert (free(x) < 0).any() and (free(x) > 1).any()
    assert list(bounded.state_dict()) == list(free.state_dict())
    inputs, five = torch.linspace(-1, 1, 8)[:, None], torch.full((8, 1), 5.0)
    losses = {}
    for output in ("sigmoid", "identity"):
        model = {"name": "mlp", "hidden": [4], "activation": "tanh", "output": output}
        losses[output] = run(given(inputs, values=five, model=model), tmp_path).figures["test/loss"]
    assert losses["sigmoid"] >= 16 and losses["identity"] < 1e-3


@pytest.mark.catalogue("S3-086")
def test_kinks_have_a_one_sided_derivative_and_minima_are_many(tmp_path):
    zero = torch.zeros(1, requires_grad=True)
    assert torch.autograd.grad(Mlp(1, [1], 1).body[3](zero), zero)[0].item() in (0, 1)
    x = torch.linspace(-2, 2, 30)[:, None]
    config = given(x, values=(2 * x).sin(), model={"name": "mlp", "hidden": [32]})
    runs = [run(config | {"seed": seed}, tmp_path) for seed in (0, 1)]
    one, two = (done.model for done in runs)
    assert (one.head.weight - two.head.weight).abs().max() > 0.1
    assert all(done.figures["test/loss"] < 0.02 for done in runs)
    wide = one.double()
    other = permuted(wide, 0, torch.randperm(32).tolist())
    losses = [(m(x.double()) - (2 * x.double()).sin()).square().mean() for m in (wide, other)]
    assert (losses[0] - losses[1]).abs() < 1e-12


def gradients(model):
    """What the probe finds on normal inputs."""
    x = torch.randn(64, 32)
    splits = Splits(spec=DataSpec((Vector(32),), Values(1)), train=Resident([x], x[:, :1]))
    return GradientProbe(64, double=True).measure(model, splits, torch.device("cpu"))


def probed(folder, hidden, **fields):
    """What the probe says of a run that all but stays where it starts."""
    x = torch.randn(64, 32)
    config = given(
        x, values=x[:, :1], model={"name": "mlp", "hidden": hidden, **fields},
        optimizer={"name": "sgd", "lr": 1e-12}, probes={"gradients": {"samples": 64, "double": True}},
        trainer={"steps": 1, "device": "cpu", "diagnose": False},
    )  # fmt: skip
    figures = run(config, folder).figures
    return {name: figures[f"gradients/{name}"] for name in ("ratio", "input")}


@pytest.mark.catalogue("S3-060")
def test_gradients_vanish_along_thirty_sigmoid_layers_and_not_along_relus(tmp_path):
    assert probed(tmp_path, [32] * 30, activation="sigmoid")["ratio"] < 1e-6
    relu = Mlp(32, [32] * 30, 1)
    for m in relu.modules():
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            nn.init.zeros_(m.bias)
    torch.save(relu.state_dict(), tmp_path / "he.pt")
    assert probed(tmp_path, [32] * 30, weights=str(tmp_path / "he.pt"))["ratio"] > 1e-2


def test_the_probe_gives_the_norms_of_the_gradients():
    model = Mlp(32, [3], 2, "tanh")
    torch.manual_seed(5)
    found = gradients(model)
    torch.manual_seed(5)
    x = torch.randn(64, 32).double().requires_grad_()
    twin = model.double()
    twin(x).sum(1).mean().backward()
    assert found["first"] == pytest.approx(twin.body[1].weight.grad.norm().item())
    assert found["last"] == pytest.approx(twin.head.weight.grad.norm().item())
    each = (64 * x.grad).norm(dim=1).square().mean().sqrt().item()  # root mean square over the samples
    assert found["input"] == pytest.approx(each)


@pytest.mark.catalogue("S4-036")
def test_gradients_pass_a_hundred_residual_layers_and_vanish_in_a_hundred_plain_ones(tmp_path):
    assert 0 < probed(tmp_path, [32] * 100, activation="sigmoid")["input"] < 1e-30
    passed = probed(tmp_path, [32] * 100, activation="sigmoid", form="residual")["input"]
    assert 1e-2 <= passed <= 1e4


@pytest.mark.sweep
@pytest.mark.catalogue("S4-036")
def test_a_hundred_residual_layers_train_and_a_hundred_plain_ones_do_not(tmp_path):
    def accuracy(form):
        config = {
            "data": {"name": "moons", "samples": 200, "seed": 0, "val": 0, "test": 0, "batch_size": 200},
            "model": {"name": "mlp", "hidden": [16] * 100, "activation": "sigmoid", "form": form},
            "optimizer": {"name": "adam", "lr": 3e-3},
            "trainer": {"epochs": 80, "eval_every": 80, "log_every": 80, "device": "cpu"},
        }
        return run(config, tmp_path).figures["train/accuracy"]

    assert accuracy("residual") >= 0.75
    assert accuracy("plain") <= 0.65
