"""Every optimizer of the plugin against the class of torch.optim it stands for."""

import copy
import inspect
import io
import pickle
from dataclasses import fields, replace
from types import SimpleNamespace

import pegboard_optimizers
import pytest
import torch
from light import loaded
from pegboard import Context, Facts, Optimizer, PegboardError
from pegboard_optimizers import configs, factories, functional
from torch import nn

PARTS = {p.name: p for p in pegboard_optimizers.pegboard_optimizers() if isinstance(p, Optimizer)}
TORCH = {
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
    "nadam": "NAdam",
    "radam": "RAdam",
    "adamax": "Adamax",
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "asgd": "ASGD",
    "rmsprop": "RMSprop",
    "rprop": "Rprop",
    "adafactor": "Adafactor",
    "muon": "Muon",
    "lbfgs": "LBFGS",
}
OWN = ("gd", "nesterov", "perceptron")  # which torch.optim does not have
FUSED = ("sgd", "adam", "adamw", "adagrad")
SINGLE = [n for n in TORCH if n not in ("muon", "lbfgs")]

# A value other than the default for every field that goes to torch under its own name.
OTHER = {
    "sgd": {"lr": 0.2, "momentum": 0.8, "dampening": 0.1},
    "adam": {"lr": 0.2, "betas": (0.8, 0.9), "eps": 1e-3, "amsgrad": True},
    "adamw": {"lr": 0.2, "betas": (0.8, 0.9), "eps": 1e-3, "amsgrad": True},
    "nadam": {"lr": 0.2, "betas": (0.8, 0.9), "eps": 1e-3, "momentum_decay": 0.1},
    "radam": {"lr": 0.2, "betas": (0.8, 0.9), "eps": 1e-3},
    "adamax": {"lr": 0.2, "betas": (0.8, 0.9), "eps": 1e-3},
    "adadelta": {"lr": 0.2, "rho": 0.7, "eps": 1e-3},
    "adagrad": {"lr": 0.2, "lr_decay": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-3},
    "asgd": {"lr": 0.2, "lambd": 0.01, "alpha": 0.5, "t0": 2.0},
    "rmsprop": {"lr": 0.2, "alpha": 0.8, "eps": 1e-3, "momentum": 0.5, "centered": True},
    "rprop": {"lr": 0.2, "etas": (0.4, 1.5), "step_sizes": (1e-4, 2.0)},
    "adafactor": {"lr": 0.2, "beta2_decay": -0.5, "d": 2.0},
    "muon": {
        "lr": 0.2,
        "momentum": 0.5,
        "nesterov": False,
        "ns_steps": 3,
        "eps": 1e-4,
        "adjust_lr_fn": "original",
    },
    "lbfgs": {
        "lr": 0.2,
        "max_iter": 7,
        "max_eval": 9,
        "tolerance_grad": 1e-3,
        "tolerance_change": 1e-4,
        "history_size": 5,
        "line_search_fn": "strong_wolfe",
    },
    "gd": {"lr": 0.2, "line_search": "exact"},
    "nesterov": {"lr": 0.2, "momentum": None},
    "perceptron": {"lr": 0.2},
}


def network(device="cpu"):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)


def data(device="cpu"):
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(16, n, generator=generator) for n in (4, 2))
    return x.to(device), y.to(device)


def build(name, groups, config=None, **values):
    part = PARTS[name]
    return part.build(config or part.config(**values), Context())(groups)


def train(model, optimizer, steps, closure=False):
    x, y = data(next(model.parameters()).device)

    def evaluate():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        if closure:
            optimizer.step(evaluate)
        else:
            evaluate()
            optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_every_dense_optimizer_of_torch_is_there():
    there = {
        n for n, c in vars(torch.optim).items() if inspect.isclass(c) and issubclass(c, torch.optim.Optimizer)
    }
    assert there - {"Optimizer", "SparseAdam"} == set(TORCH.values())
    assert set(PARTS) == {*TORCH, *OWN} == set(OTHER)


def test_importing_the_plugin_imports_neither_torch_nor_numpy():
    code = (
        "import pegboard_optimizers as p\n"
        "from pegboard import Context\n"
        "for part in p.pegboard_optimizers():\n"
        "    if part.kind == 'schedule': part.build(part.config(), Context(steps=10))(3)"
    )
    assert not loaded(code)


@pytest.mark.parametrize("name", TORCH)
def test_fields_have_the_names_and_defaults_of_torch(name):
    expected = inspect.signature(getattr(torch.optim, TORCH[name])).parameters
    own = {"kernels", "bias_correction", "eps1", "eps2", "adamw_lr", "adamw_betas", "adamw_eps"}
    for field in fields(PARTS[name].config):
        if field.name not in own and (name, field.name) != ("muon", "adjust_lr_fn"):
            assert field.default == expected[field.name].default, field.name


@pytest.mark.parametrize("name", TORCH)
def test_every_field_reaches_torch(name):
    default = PARTS[name].config()
    known = {"kernels", "bias_correction", "nesterov", "eps1", "eps2", "adamw_lr", "adamw_betas", "adamw_eps"}
    assert {f.name for f in fields(default)} - known <= set(OTHER[name])
    optimizer = build(name, [{"params": list(network().parameters())}], **OTHER[name])
    for key, value in OTHER[name].items():
        assert getattr(default, key) != value
        assert optimizer.param_groups[0][key] == value


def test_fields_under_other_names_reach_torch():
    params = [{"params": list(network().parameters())}]
    assert build("adafactor", params, eps1=0.1, eps2=0.2).param_groups[0]["eps"] == (0.1, 0.2)
    assert build("sgd", params, momentum=0.9, nesterov=True).param_groups[0]["nesterov"]
    muon = build("muon", params, adamw_lr=0.3, adamw_betas=(0.1, 0.2), adamw_eps=0.4)
    assert [muon.param_groups[1][k] for k in ("lr", "betas", "eps")] == [0.3, (0.1, 0.2), 0.4]


@pytest.mark.parametrize("name", SINGLE)
def test_takes_the_same_steps_as_the_torch_class(name):
    mine, theirs = network(), network()
    reference = getattr(torch.optim, TORCH[name])
    options = {"fused": True} if name in FUSED else {}
    if name == "adamw":
        options["weight_decay"] = 0
    expected = train(theirs, reference(theirs.parameters(), **OTHER[name], **options), 8)
    found = train(mine, build(name, [{"params": list(mine.parameters())}], **OTHER[name]), 8)
    assert same(found, expected)
    assert not same(found, list(network().parameters()))


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("kernels", ["foreach", "plain"])
def test_kernels_change_the_speed_and_not_the_result(name, kernels):
    mine, other = network(), network()
    auto = train(mine, build(name, [{"params": list(mine.parameters())}]), 5)
    optimizer = build(name, [{"params": list(other.parameters())}], kernels=kernels)
    assert optimizer.defaults["foreach"] == (kernels == "foreach") and not optimizer.defaults.get("fused")
    for a, b in zip(auto, train(other, optimizer, 5), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_the_kernel_counts_for_all_parameters_at_once_and_for_each_after_a_graph(name):
    mine, theirs = network(), network()
    ours, reference = (build(name, [{"params": list(m.parameters())}]) for m in (mine, theirs))
    train(mine, ours, 1)
    expected = train(theirs, reference, 8)
    x, y = data()

    def moved(update, times):
        for _ in range(times):
            grads = torch.autograd.grad((mine(x) - y).square().mean(), list(mine.parameters()))
            update(list(grads), [group["lr"] for group in ours.param_groups])

    update = functional(ours, False)
    moved(update, 4)
    steps = [ours.state[p]["step"] for p in mine.parameters()]
    assert len({step.untyped_storage().data_ptr() for step in steps}) == 1
    ours.load_state_dict(copy.deepcopy(ours.state_dict()))  # as a run that is resumed
    update = functional(ours, False)
    functional(ours, True)  # a graph that changes them has to have them apart
    steps = [ours.state[p]["step"] for p in mine.parameters()]
    assert len({step.untyped_storage().data_ptr() for step in steps}) == len(steps)
    moved(update, 3)
    assert {float(ours.state[p]["step"]) for p in mine.parameters()} == {8.0}
    assert same(list(mine.parameters()), expected)


def parameters(*types):
    return [
        {"params": [SimpleNamespace(device=torch.device(t), is_floating_point=lambda: True) for t in types]}
    ]


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("Adam", "cpu", {"fused": True}),
        ("AdamW", "cuda", {"fused": True}),
        ("SGD", "mps", {"fused": True}),
        ("Adagrad", "mps", {"foreach": False}),
        ("RMSprop", "cpu", {"foreach": False}),
        ("RMSprop", "cuda", {"foreach": True}),
        ("Adam", "meta", {"foreach": False}),
        ("Adam", "xla", {"foreach": False}),
    ],
)
def test_the_device_of_the_parameters_decides_the_kernels(name, device, expected):
    assert factories.variant(name, "auto", parameters(device)) == expected
    assert factories.variant(name, "plain", parameters(device)) == {"foreach": False}


def test_a_fused_kernel_that_does_not_exist_is_an_error():
    complex_numbers = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(
        PegboardError, match=r"no fused Adam for parameters on cpu.*real numbers on cpu, cuda"
    ):
        build("adam", [{"params": [complex_numbers]}], kernels="fused")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_descent_on_weights_of_16_bits_is_that_of_the_plain_kernel(dtype):
    mine, theirs = (torch.nn.Parameter(torch.ones(20, dtype=dtype)) for _ in range(2))
    ours, reference = build("sgd", [{"params": [mine]}], lr=0.25), torch.optim.SGD([theirs], 0.25)
    for optimizer, p in ((ours, mine), (reference, theirs)):
        for _ in range(3):
            p.grad = torch.full_like(p, 0.5)
            optimizer.step()
    assert torch.equal(mine, theirs)
    with pytest.raises(PegboardError, match="numbers of at least 32 bits on cpu"):
        build("sgd", [{"params": [mine]}], kernels="fused")


@pytest.mark.parametrize("options", [{}, {"dampening": 0.3}, {"nesterov": True}])
def test_a_parameter_may_get_its_first_gradient_after_the_others(options):
    groups = [[torch.nn.Parameter(torch.ones(3)) for _ in range(2)] for _ in range(2)]
    made = [
        build("sgd", [{"params": params, "weight_decay": 0.1}], momentum=0.9, kernels=kernels, **options)
        for params, kernels in zip(groups, ("auto", "plain"), strict=True)
    ]
    for optimizer, (early, late) in zip(made, groups, strict=True):
        for step in range(4):
            early.grad = torch.arange(3.0) - step
            late.grad = torch.arange(3.0) if step > 1 else None
            optimizer.step()
    torch.testing.assert_close(*groups)


def test_a_fused_optimizer_explains_itself_on_meta():
    made = build("adam", [{"params": list(network("meta").parameters())}], kernels="fused")
    assert made.defaults["foreach"] is False
    assert factories.variant("Adam", "auto", parameters("cpu", "meta")) == {"foreach": False}


@pytest.mark.parametrize("name", PARTS)
def test_lowers_a_quadratic(name):
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    x, y = torch.eye(3), torch.arange(12.0).reshape(3, 4) / 4
    part = PARTS[name]
    config = part.config() if name in ("adadelta", "lbfgs") else part.config(lr=0.05)
    optimizer = build(name, [{"params": list(model.parameters())}], config)

    def evaluate():
        optimizer.zero_grad()
        loss = (model(x) - y).square().sum()
        loss.backward()
        return loss

    start = evaluate().item()
    for _ in range(100):
        evaluate()
        optimizer.step(evaluate) if part.closure else optimizer.step()
    assert evaluate().item() < (0.9 if name == "adadelta" else 0.2) * start


@pytest.mark.parametrize("name", PARTS)
def test_a_run_that_is_saved_and_resumed_equals_one_that_is_not(name):
    part = PARTS[name]
    values = OTHER[name] | ({"nesterov": True, "dampening": 0.0} if name == "sgd" else {})

    def start():
        model = network()
        first, second = list(model.parameters())[:2], list(model.parameters())[2:]
        groups = [{"params": first}, {"params": second} | ({} if name == "lbfgs" else {"lr": 0.05})]
        return model, build(name, groups, **values)

    model, optimizer = start()
    unbroken = train(model, optimizer, 7, part.closure)

    model, optimizer = start()
    train(model, optimizer, 3, part.closure)
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    model, optimizer = start()
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    assert same(train(model, optimizer, 4, part.closure), unbroken)


@pytest.mark.parametrize("name", PARTS)
def test_a_step_on_the_meta_device_shows_who_waits_for_the_device(name):
    part = PARTS[name]
    model = network("meta")
    optimizer = build(name, [{"params": list(model.parameters())}])
    if part.synchronizes:
        with pytest.raises(RuntimeError, match="meta"):
            train(model, optimizer, 2, part.closure)
    else:
        assert all(p.is_meta for p in train(model, optimizer, 2, part.closure))


@pytest.mark.parametrize("name", PARTS)
def test_groups_keep_their_own_settings_and_the_callers_dicts_stay_as_they_are(name):
    model = network()
    group = {
        "params": list(model.parameters()),
        "lr": 0.5,
        "decoupled_decay": 0.1,
        "names": ["a", "b", "c", "d"],
    }
    before = dict(group)
    optimizer = build(name, [group])
    assert group == before
    assert {g["lr"] for g in optimizer.param_groups} == {0.5}
    assert {g["decoupled_decay"] for g in optimizer.param_groups} == {0.1}
    named = {n: p for g in optimizer.param_groups for n, p in zip(g["names"], g["params"], strict=True)}
    assert all(named[n] is p for n, p in zip(group["names"], group["params"], strict=True))


@pytest.mark.parametrize("name", [n for n in TORCH if n not in ("rprop", "lbfgs")])
def test_nothing_decays_unless_a_group_asks_for_it(name):
    still, decaying = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    config = PARTS[name].config(lambd=0.0) if name == "asgd" else None
    optimizer = build(name, [{"params": [still]}, {"params": [decaying], "weight_decay": 0.5}], config)
    for p in (still, decaying):
        p.grad = torch.zeros(2, 2)
    optimizer.step()
    assert torch.equal(still, torch.ones(2, 2))
    assert (decaying < 1).all()


@pytest.mark.parametrize("name", ["rprop", "lbfgs", "gd", "nesterov", "perceptron"])
def test_a_decay_that_would_be_ignored_is_an_error(name):
    params = list(network().parameters())
    with pytest.raises(PegboardError, match="has no weight decay of its own"):
        build(name, [{"params": params, "weight_decay": 0.1}])
    build(name, [{"params": params, "weight_decay": 0.0}])


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_equals_torch_and_joins_groups_that_agree(search):
    mine, theirs = network(), network()
    expected = train(theirs, torch.optim.LBFGS(theirs.parameters(), line_search_fn=search), 3, closure=True)
    a, b, c, d = mine.parameters()
    optimizer = build("lbfgs", [{"params": [a, b]}, {"params": [c, d]}], line_search_fn=search)
    assert same(train(mine, optimizer, 3, closure=True), expected)
    with pytest.raises(PegboardError, match="groups differ in lr"):
        build("lbfgs", [{"params": [a, b]}, {"params": [c, d], "lr": 0.1}])


def test_muon_takes_the_matrices_and_adamw_the_rest():
    mine, theirs = network(), network()
    named = dict(theirs.named_parameters())
    muon = torch.optim.Muon(
        [named["0.weight"], named["2.weight"]], lr=0.02, weight_decay=0, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW([named["0.bias"], named["2.bias"]], lr=0.02, weight_decay=0, fused=True)
    x, y = data()
    for _ in range(6):
        theirs.zero_grad()
        (theirs(x) - y).square().mean().backward()
        muon.step()
        adamw.step()
    optimizer = build("muon", [{"params": list(mine.parameters())}], lr=0.02)
    assert same(train(mine, optimizer, 6), list(theirs.parameters()))
    assert len(optimizer.state) == 4


def test_muon_follows_rates_set_from_outside_also_after_loading():
    model = network()
    optimizer = build("muon", [{"params": list(model.parameters())}], lr=0.02)
    train(model, optimizer, 1)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    before = [p.detach().clone() for p in model.parameters()]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    assert same(train(model, optimizer, 2), before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_of_muon_trains_the_copied_model(copied):
    model = network()
    optimizer = build("muon", [{"params": list(model.parameters())}], lr=0.02)
    train(model, optimizer, 2)
    other, twin = copied((model, optimizer))
    assert same(train(other, twin, 2), train(model, optimizer, 2))


def test_muon_evaluates_a_closure_once_and_returns_its_loss():
    model = network()
    optimizer = build("muon", [{"params": list(model.parameters())}])
    calls = []

    def closure():
        calls.append(torch.is_grad_enabled())
        loss = model(data()[0]).square().mean()
        loss.backward()
        return loss

    assert optimizer.step(closure) > 0
    assert calls == [True]


def test_muon_keeps_the_relation_between_rates_of_groups():
    a, b, c, d = network().parameters()
    optimizer = build("muon", [{"params": [a, b]}, {"params": [c, d], "lr": 0.01}], lr=0.1, adamw_lr=0.5)
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    assert [rates[id(p)] for p in (a, b, c, d)] == [0.1, 0.5, 0.01, pytest.approx(0.05)]


def test_muon_without_other_parameters_or_without_matrices():
    matrix = nn.Parameter(torch.ones(2, 3))
    matrix.grad = torch.ones(2, 3)
    build("muon", [{"params": [matrix]}]).step()
    assert (matrix < 1).all()
    with pytest.raises(PegboardError, match="the model has none"):
        build("muon", [{"params": [nn.Parameter(torch.ones(3))]}])


@pytest.mark.parametrize(
    ("name", "config", "wrong"),
    [
        ("sgd", configs.Sgd(nesterov=True), ["nesterov"]),
        ("sgd", configs.Sgd(dampening=0.1), ["dampening"]),
        ("sgd", configs.Sgd(nesterov=True, momentum=0.9, dampening=0.1), ["dampening"]),
        ("sgd", configs.Sgd(nesterov=True, momentum=0.9), []),
        ("rprop", configs.Rprop(step_sizes=(1.0, 0.1)), ["step_sizes"]),
        ("rprop", configs.Rprop(), []),
    ],
)
def test_settings_that_exclude_each_other_are_found(name, config, wrong):
    assert [p.field for p in PARTS[name].check(config, Facts())] == wrong
    groups = [{"params": list(network().parameters())}]
    if not wrong:
        assert build(name, groups, replace(config))
