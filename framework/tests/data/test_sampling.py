"""Which samples an epoch has: each once, or draws by weight and by class; the same wherever a run is cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from calls import count_calls
from pegboard import PegboardError, Resident
from pegboard.config.check import check
from pegboard.data import Sampler, padding_share
from pegboard.data.draw_weights import class_shares, weight_shares
from pegboard.data.sampling import by_shares
from pegboard.engine.loop import Loop
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import Plan, assemble, make_plan
from pegboard.testing.runs import cut_and_resumed, differences, points, whole
from sweeps import first_of_each
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

HERE = Path(__file__).parents[1]
LOCAL = [
    str(HERE / "toy.py"),
    str(HERE / "drawn.py"),
    str(HERE.parents[1] / "tests" / "support" / "parts" / "worded.py"),
]
SAMPLING = ("replacement", "weighted", "balanced")
WEIGHTS = [3.0, 0.0, 1.0, 0.5]
Config = Callable[..., dict[str, Any]]


@pytest.fixture
def drawn(config: Config) -> Config:
    """A config of drawn data; keyword arguments are fields of the data node, or nodes by their names."""

    def make(**fields: Any) -> dict[str, Any]:
        names = ("seed", "model", "objective", "optimizer", "regularizers", "trainer")
        nodes = {name: fields.pop(name) for name in names if name in fields}
        base = {"objective": {"name": "weighed"}, "plugins": {"local": LOCAL}}
        return config(**(base | {"data": {"name": "drawn", "batch_size": 16, **fields}} | nodes))

    return make


def plan_of(given: dict[str, Any]) -> Plan:
    return make_plan(check(given), read=True)


def sampler_of(given: dict[str, Any]) -> Sampler:
    sampler = plan_of(given).sampler
    assert sampler is not None
    return sampler


def loop_of(given: dict[str, Any], folder: Path) -> Loop:
    class Nobody:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *args: None

    plan, watcher = plan_of(given), Nobody()
    assert plan.splits is not None
    return Loop(assemble(plan, "cpu"), plan.splits, choose_precision("fp32", "cpu"), watcher, folder)  # type: ignore[arg-type]


def gradient(plan: Plan, model: torch.nn.Module, objective: Any, rows: Tensor, weigh: bool) -> Tensor:
    """The gradient of the loss of some samples, as one vector."""
    assert plan.splits is not None
    batch = plan.splits.train.gather(rows)
    weight = batch.weight.double() if weigh and batch.weight is not None else None
    loss = objective.loss(model(*[x.double() for x in batch.inputs]), batch.target, weight)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


# Draws.


@pytest.mark.catalogue("T076")
def test_draws_that_are_independent_leave_out_what_an_epoch_of_each_once_does_not(drawn: Config) -> None:
    once, anew = (
        sampler_of(drawn(counts=[4096, 4096], batch_size=32, sampling=s)) for s in ("epoch", "replacement")
    )
    assert once.updates(0) == anew.updates(0) == 256
    for epoch in range(5):
        assert torch.equal(once.order(epoch).sort().values, torch.arange(8192))
        order = anew.order(epoch)
        assert len(order) == 8192
        assert 1 - len(order.unique()) / 8192 == pytest.approx(math.exp(-1), abs=0.02)  # six deviations


@pytest.mark.catalogue("S3-062")
def test_an_epoch_has_as_many_updates_as_batches_and_a_step_costs_the_same_of_any_data(
    drawn: Config, root: Path
) -> None:
    given = drawn(counts=[37, 20], batch_size=10, trainer={"epochs": 2, "device": "cpu"})
    run = pegboard.train(given, root=root, quiet=True)
    assert run.summary["steps"] == 2 * math.ceil(57 / 10)
    for epoch in range(2):
        assert sorted(sampler_of(given).order(epoch).tolist()) == list(range(57))
    costs = set()
    for size in (500, 50_000):  # samples of each class
        loop = loop_of(drawn(counts=[size, size], batch_size=32), root)
        groups = loop.groups(0)
        loop.span(groups, 3)

        def steps(loop: Loop = loop, groups: Any = groups, count: int = 5) -> None:
            loop.span(groups, loop.progress.position + count)

        with FlopCounterMode(display=False) as counter:
            steps()
        costs.add((count_calls(steps), counter.get_total_flops()))
    assert len(costs) == 1


@pytest.mark.parametrize("sampling", first_of_each(SAMPLING))
def test_draws_are_keyed_by_seed_and_epoch_and_leave_the_global_stream_alone(
    drawn: Config, sampling: str
) -> None:
    keys = [(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    before = torch.get_rng_state()

    def orders() -> dict[Any, Any]:
        made = {seed: sampler_of(drawn(seed=seed, sampling=sampling, weights=WEIGHTS)) for seed in (0, 1)}
        return {(seed, epoch): tuple(made[seed].order(epoch).tolist()) for seed, epoch in keys}

    found = orders()
    assert len(set(found.values())) == len(keys) and {len(order) for order in found.values()} == {48}
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4321)
    assert orders() == found


@pytest.mark.catalogue("T077")
def test_the_expected_gradient_of_weighted_draws_is_that_of_the_weighted_loss(drawn: Config) -> None:
    plan = plan_of(drawn(counts=[7, 5, 4], weights=WEIGHTS, sampling="weighted"))
    assembly = assemble(plan, "cpu")
    model = assembly.model.double()
    assert plan.sampler is not None and plan.sampler.shares is not None
    shares = plan.sampler.shares
    each = [gradient(plan, model, assembly.objective, torch.tensor([row]), False) for row in range(16)]
    expected = gradient(plan, model, assembly.objective, torch.arange(16), True)
    torch.testing.assert_close(torch.stack(each).T @ shares, expected, rtol=0, atol=1e-6)
    drawn_rows = torch.cat([plan.sampler.order(epoch) for epoch in range(3000)])
    found = torch.bincount(drawn_rows, minlength=16) / len(drawn_rows)
    torch.testing.assert_close(found.double(), shares, rtol=0, atol=0.01)


@pytest.mark.catalogue("T077")
def test_balanced_draws_of_90_and_10_give_batches_of_half_and_half(drawn: Config) -> None:
    sampler = sampler_of(drawn(counts=[900, 100], batch_size=50, sampling="balanced"))
    batches = [batch for epoch in range(5) for batch in sampler.order(epoch).split(50)]
    halves = torch.tensor([float((batch >= 900).float().mean()) for batch in batches])
    assert halves.mean() == pytest.approx(0.5, abs=0.03)  # four deviations
    assert halves.min() > 0.2 and halves.max() < 0.8
    assert sampler.shares is not None
    assert float(sampler.shares[:900].sum()) == pytest.approx(0.5)


@pytest.mark.catalogue("S3-065")
@pytest.mark.parametrize("seed", [0, 1])
def test_batches_of_sorted_data_are_biased_and_of_shuffled_data_are_not(
    drawn: Config, root: Path, seed: int
) -> None:
    aligned, right = {}, {}
    for shuffle in (False, True):
        fields = {"counts": [128] * 4, "shuffle": shuffle, "seed": seed}
        plan = plan_of(drawn(**fields, batch_size=128))
        assembly = assemble(plan, "cpu")
        model, rows = assembly.model.double(), torch.arange(512)
        assert plan.sampler is not None
        full = gradient(plan, model, assembly.objective, rows, False)
        parts = plan.sampler.order(0).split(128)
        grads = [gradient(plan, model, assembly.objective, part, False) for part in parts]
        aligned[shuffle] = sum(float(torch.cosine_similarity(g, full, 0)) for g in grads) / len(grads)
        given = drawn(**fields, objective={"name": "guess"}, optimizer={"name": "plain", "lr": 0.5})
        history = pegboard.train(given, root=root, quiet=True).history
        right[shuffle] = [row["val/right"] for row in history if "val/right" in row][-1]
    assert aligned[False] < 0.5 and aligned[True] > 0.9
    assert right[True] > right[False] + 0.1


def test_a_share_of_zero_is_never_drawn_whatever_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = by_shares(torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64))
    numbers = torch.tensor([0.0, 0.25, 0.5, 1 - 2**-53], dtype=torch.float64)  # from the least to the largest
    monkeypatch.setattr(torch, "rand", lambda *size, **options: numbers)
    assert draw(4, torch.Generator()).tolist() == [1, 1, 3, 3]


def test_classes_that_are_not_known_are_never_drawn_and_absent_ones_take_no_share() -> None:
    x = torch.zeros(6, 1)
    target = torch.tensor([0, 0, 0, 2, -1, 2])
    weight = torch.tensor([1.0, 5.0, 1.0, 1.0, 1.0, 0.0])
    third = 0.5 / 3
    found = class_shares(Resident([x], target, weight), 4, 0)
    torch.testing.assert_close(found, torch.tensor([third, third, third, 0.5, 0.0, 0.0], dtype=torch.float64))
    soft = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    found = class_shares(Resident([x[:3]], soft), 4, 0)  # a class is drawn, then a sample that belongs to it
    torch.testing.assert_close(found, torch.tensor([0.25, 0.375, 0.375], dtype=torch.float64))
    with pytest.raises(PegboardError, match="no training sample has a class"):
        class_shares(Resident([x], torch.full((6,), -1)), 4, 0)


# Runs.


@pytest.mark.parametrize("sampling", ["epoch", "weighted"])
def test_weights_decide_either_the_draws_or_the_loss(drawn: Config, root: Path, sampling: str) -> None:
    given = drawn(weights=WEIGHTS, sampling=sampling, trainer={"epochs": 2, "device": "cpu"})
    run = pegboard.train(given, root=root, quiet=True)
    plan = plan_of(given)
    model = assemble(plan, "cpu").model
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    assert plan.sampler is not None and isinstance(plan.splits.train, Resident)  # type: ignore[union-attr]
    (x,), y, weight = plan.splits.train.inputs, plan.splits.train.target, plan.splits.train.weight  # type: ignore[union-attr]
    assert y is not None and weight is not None
    weight = weight if sampling == "epoch" else torch.ones(len(y))
    for epoch in range(2):
        for rows in plan.sampler.order(epoch).split(16):
            optimizer.zero_grad()
            losses = torch.nn.functional.cross_entropy(model(x[rows]), y[rows], reduction="none")
            ((losses * weight[rows]).sum() / weight[rows].sum()).backward()
            optimizer.step()
    found = pegboard.load(run, which="last").state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(found[name], tensor)


@pytest.mark.parametrize("sampling", first_of_each(SAMPLING))
def test_draws_are_the_same_from_memory_streamed_and_from_any_source(
    drawn: Config, root: Path, sampling: str
) -> None:
    held, *others = (
        pegboard.train(drawn(kept=kept, workers=n, weights=WEIGHTS, sampling=sampling), root=root, quiet=True)
        for kept, n in (("held", 0), ("streamed", 2), ("bare", 0))
    )
    for other in others:
        assert other.history == held.history and other.figures == held.figures


CUT: dict[str, dict[str, Any]] = {
    "replacement": {"sampling": "replacement", "drop_last": True},
    "weighted and read ahead": {"sampling": "weighted", "weights": WEIGHTS, "kept": "streamed", "workers": 2},
    "balanced": {"sampling": "balanced", "batch_size": 7, "trainer": {"accumulate": 3}},
    "growing": {
        "batch_size": 8,
        "batch_schedule": {1: 20, 2: "all"},
        "sampling": "replacement",
        "trainer": {"accumulate": 2},
    },
    "growing and read ahead": {"batch_schedule": {1: 20, 2: 30}, "kept": "streamed", "workers": 2},
    "all": {"batch_size": "all", "optimizer": {"name": "ends", "after": 3}},
}


@pytest.mark.parametrize("kind", first_of_each(CUT))
def test_a_run_cut_anywhere_resumes_exactly(drawn: Config, root: Path, kind: str) -> None:
    fields = dict(CUT[kind])
    trainer = {"epochs": 3, "device": "cpu", "log_every": 2} | fields.pop("trainer", {})
    given = drawn(**fields, counts=[30, 15], trainer=trainer)
    uncut, events = whole(given, root)
    for cut in points(events, 1, turn=list(CUT).index(kind)):
        assert differences(uncut, cut_and_resumed(given, root, cut)) == []


@pytest.mark.parametrize("streamed", first_of_each([False, True]))
def test_sequences_that_are_drawn_still_share_batches_with_their_like(
    drawn: Config, root: Path, streamed: bool
) -> None:
    given = drawn(model={"name": "bag"}, objective={"name": "guess"}, trainer={"epochs": 2, "device": "cpu"})
    given["data"] = {"name": "worded", "count": 200, "streamed": streamed, "sampling": "replacement"}
    given["data"] |= {"batch_size": 16, "batch_schedule": {1: 32}}
    sampler = sampler_of(given)
    lengths = sampler.splits.train.lengths  # type: ignore[attr-defined]
    for epoch in (0, 1):
        order = sampler.order(epoch)
        assert len(order) == 200 and len(order.unique()) < 150
        assert padding_share(lengths, torch.split(order, sampler.size(epoch))) < 0.35  # at random half
    uncut, events = whole(given, root)
    for cut in points(events, 1, turn=4):
        assert differences(uncut, cut_and_resumed(given, root, cut)) == []


# What cannot be.


@pytest.mark.parametrize("kept", ["held", "streamed"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], "have no weights"),
        ([1.0, -2.0], "found -2 for sample 1"),
        ([0.0], "found 0 for every sample"),
    ],
)
def test_weights_that_cannot_be_drawn_by_are_told_before_there_is_a_run(
    drawn: Config, root: Path, kept: str, weights: list[float], message: str
) -> None:
    with pytest.raises(PegboardError, match=message):
        pegboard.train(drawn(weights=weights, kept=kept, sampling="weighted"), root=root, quiet=True)
    assert not list(root.glob("*"))  # not even a folder for its name


def test_a_weight_that_is_no_number_names_its_sample() -> None:
    weight = torch.tensor([1.0, 1.0, math.nan])
    with pytest.raises(PegboardError, match="found nan for sample 2"):
        weight_shares(Resident([torch.zeros(3, 1)], weight=weight), 2, 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sampling": "balanced", "values": True}, r"the target of dataset 'drawn' is Values\(1\)"),
        ({"sampling": "replacement", "shuffle": False}, "what sampling: replacement draws is in no order"),
        ({"sampling": "weighed"}, "did you mean 'weighted'"),
    ],
)
def test_draws_that_the_data_does_not_allow_are_mistakes(
    drawn: Config, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(PegboardError, match=message):
        pegboard.plan(drawn(**fields))
