"""Sequences of different lengths: what a batch holds, and how little of it is padding."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import worded
from calls import count_calls
from pegboard import (
    Batch,
    Classes,
    DataSpec,
    Objective,
    PegboardError,
    Ragged,
    Resident,
    Sequences,
    Splits,
    Stream,
    Tokens,
)
from pegboard.config.check import check
from pegboard.data import epoch_order, padded_splits, padding_share, similar_order
from pegboard.engine import loop as loops
from pegboard.engine.evaluate import Evaluator, collect
from pegboard.engine.precision import choose_precision
from pegboard.planning.plan import assemble, make_plan
from pegboard.run.provenance import fingerprint
from torch import Tensor, nn
from torch.nn import functional

Config = Callable[..., dict[str, Any]]
LOCAL = [str(Path(__file__).parents[1].joinpath("toy.py")), worded.__file__]


def made(count: int, seed: int = 0, most: int = 30) -> list[list[int]]:
    """Lists of 0 to `most` symbols above 0."""
    draw = random.Random(seed)
    return [[draw.randrange(1, 90) for _ in range(draw.randrange(most + 1))] for _ in range(count)]


def by_hand(rows: list[list[int]], padding: int) -> list[list[int]]:
    longest = max(1, *map(len, rows))
    return [row + [padding] * (longest - len(row)) for row in rows]


def test_a_batch_holds_the_samples_padded_to_the_longest_of_them() -> None:
    rows, tags = made(40), [[n % 7 for n in row] for row in made(40)]
    plain, classes, weight = torch.randn(40, 3), torch.arange(40) % 5, torch.rand(40)
    source = Ragged([Sequences.join(rows, 0), plain], Sequences.join(tags, -100), weight)
    assert len(source) == 40
    for size in (1, 2, 7, 40):
        for index in torch.split(torch.randperm(40), size):
            batch = source.gather(index)
            tokens, numbers = batch.inputs
            assert tokens.dtype == torch.int64
            assert tokens.tolist() == by_hand([rows[i] for i in index.tolist()], 0)
            assert batch.target is not None and batch.weight is not None and batch.rows is not None
            assert batch.target.tolist() == by_hand([tags[i] for i in index.tolist()], -100)
            assert torch.equal(numbers, plain[index]) and torch.equal(batch.weight, weight[index])
            assert torch.equal(batch.rows, index)
    found = Ragged([Sequences.join(rows, 0)], classes).gather(torch.tensor([3, 3, 0]))
    assert found.target is not None and found.target.tolist() == [3, 3, 0]


def test_samples_without_a_symbol_are_padding_alone() -> None:
    source = Ragged([Sequences.join([[], [], [4, 5]], 9)])
    assert source.gather(torch.tensor([0, 1])).inputs[0].tolist() == [[9], [9]]
    assert source.gather(torch.tensor([1, 2])).inputs[0].tolist() == [[9, 9], [4, 5]]
    assert Ragged([Sequences.join([[]], 9)]).gather(torch.tensor([0])).inputs[0].tolist() == [[9]]
    assert source.gather(torch.zeros(0, dtype=torch.long)).inputs[0].shape == (0, 1)


def test_sources_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="lengths of 3 symbols in all, for symbols of shape"):
        Sequences(torch.arange(4), torch.tensor([1, 2]), 0)
    with pytest.raises(ValueError, match=r"differ in their number of samples: \[2, 3\]"):
        Ragged([Sequences.join([[1], [2]], 0)], torch.arange(3))
    with pytest.raises(ValueError, match="Resident holds samples of one shape"):
        Ragged([torch.ones(3, 2)])


def test_memory_holds_the_symbols_and_no_padding() -> None:
    rows = [[1]] * 999 + [[1] * 1000]
    source = Ragged([Sequences.join(rows, 0)], torch.zeros(1000))
    symbols = 8 * 1999
    assert (
        symbols
        < source.nbytes
        < symbols + 30 * 1000 + 8 * 1000
        < Resident([source.gather(torch.arange(1000)).inputs[0]]).nbytes / 100
    )


def test_nothing_waits_for_the_device_to_know_how_long_a_batch_is() -> None:
    """Reading a number of a tensor on the meta device is an error."""
    rows = made(40)
    tags = Sequences.join(rows, -100)
    source = Ragged([Sequences.join(rows, 0), torch.ones(40, 2)], tags, torch.ones(40)).to("meta")
    index = torch.tensor([3, 4, 5])
    batch = source.gather(index)
    longest = max(len(rows[i]) for i in (3, 4, 5))
    assert batch.inputs[0].shape == (3, longest) and batch.target is not None
    assert batch.target.shape == (3, longest)
    tensors = (*batch.inputs, batch.target, batch.weight, batch.rows)
    assert all(t is not None and t.device.type == "meta" for t in tensors)
    assert sorted(similar_order(source.lengths, 8, 0, 0, True).tolist()) == list(range(40))
    with pytest.raises(NotImplementedError):
        source.gather(index.to("meta"))


def test_a_batch_takes_as_many_python_calls_whatever_its_size() -> None:
    rows = made(2000)
    source = Ragged([Sequences.join(rows, 0)], Sequences.join(rows, -100), torch.ones(2000))
    counts = []
    for size in (8, 512):
        index = torch.randperm(2000)[:size]
        counts.append(count_calls(lambda index=index: source.gather(index)))
    assert counts[0] == counts[1] < 40


def test_symbols_lengths_and_padding_show_in_the_fingerprint() -> None:
    def of(rows: list[list[int]]) -> str:
        return fingerprint({"train": Ragged([Sequences.join(rows, 0)], torch.arange(2))})

    assert of([[1, 2], [3]]) == of([[1, 2], [3]])
    assert len({of([[1, 2], [3]]), of([[1], [2, 3]]), of([[1, 2], [4]])}) == 3


# Orders.


def drawn(name: str, count: int) -> Tensor:
    g = torch.Generator().manual_seed(7)
    normal = torch.randn(count, generator=g)
    lengths = {
        "log-normal": torch.exp(3 + 0.6 * normal),
        "log-normal, cut": torch.exp(4 + normal).clamp(max=512),
        "geometric": torch.empty(count).geometric_(1 / 60, generator=g),
        "bimodal": torch.where(torch.rand(count, generator=g) < 0.5, 20 + 5 * normal, 300 + 40 * normal),
    }[name]
    return lengths.ceil().clamp(min=1).long()


@pytest.mark.parametrize("batch_size", [8, 64])
@pytest.mark.parametrize("name", ["log-normal", "log-normal, cut", "geometric", "bimodal"])
def test_less_than_a_tenth_of_a_batch_is_padding(name: str, batch_size: int) -> None:
    for count in (6000, 30_000):
        lengths = drawn(name, count)
        for epoch in range(2):
            order = similar_order(lengths, batch_size, 3, epoch, True)
            assert padding_share(lengths, torch.split(order, batch_size)) < 0.1
        # Shuffled without a look at the lengths, about half is padding and more.
        assert padding_share(lengths, torch.split(epoch_order(count, 3, 0, True), batch_size)) > 0.4


def test_the_share_of_padding_is_that_of_real_batches() -> None:
    rows = made(300)
    source = Ragged([Sequences.join(rows, 0)])
    order = similar_order(source.lengths, 16, 0, 0, True)
    batches = [source.gather(index).inputs[0] for index in torch.split(order, 16)]
    padding = sum(int((tokens == 0).sum()) for tokens in batches)
    share = padding / sum(tokens.numel() for tokens in batches)
    assert share == pytest.approx(padding_share(source.lengths, torch.split(order, 16))) and 0 < share < 0.3


@pytest.mark.parametrize(("size", "batch_size"), [(1, 4), (3, 4), (4, 4), (1000, 8), (1003, 8), (5000, 8)])
def test_every_sample_comes_once_in_an_order_of_seed_and_epoch(size: int, batch_size: int) -> None:
    lengths = drawn("geometric", size).int()
    keys = [(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    orders = {key: tuple(similar_order(lengths, batch_size, *key, True).tolist()) for key in keys}
    assert all(sorted(order) == list(range(size)) for order in orders.values())
    assert len(set(orders.values())) == (len(keys) if size > 100 else len(set(orders.values())))
    before = torch.get_rng_state()
    torch.manual_seed(99)
    assert orders == {key: tuple(similar_order(lengths, batch_size, *key, True).tolist()) for key in keys}
    torch.set_rng_state(before)
    assert similar_order(lengths, batch_size, 0, 0, False).tolist() == list(range(size))


def test_batches_come_in_no_order_of_length_and_are_made_anew_every_epoch() -> None:
    lengths = drawn("geometric", 4000)
    epochs = [similar_order(lengths, 8, 0, epoch, True).view(-1, 8) for epoch in range(2)]
    longest = lengths[epochs[0]].amax(1).float()
    assert abs(torch.corrcoef(torch.stack([longest, torch.arange(500.0)]))[0, 1]) < 0.15
    together = [{frozenset(batch) for batch in order.tolist()} for order in epochs]
    assert len(together[0] & together[1]) < 10


def test_what_drop_last_leaves_out_has_all_lengths() -> None:
    lengths = drawn("geometric", 1003)
    left = torch.cat([similar_order(lengths, 8, 0, epoch, True)[1000:] for epoch in range(400)])
    assert len(left.unique()) > 500  # and not the same all the time
    assert lengths[left].float().mean() == pytest.approx(float(lengths.float().mean()), rel=0.15)


# Runs.


@pytest.fixture(scope="session")
def given(config: Config) -> Config:
    def make(**nodes: Any) -> dict[str, Any]:
        base = {
            "data": {"name": "worded", "batch_size": 16},
            "model": {"name": "bag"},
            "optimizer": {"name": "plain", "lr": 0.5, "momentum": 0.9},
            "trainer": {"epochs": 2, "device": "cpu", "log_every": 3},
            "plugins": {"local": LOCAL},
        }
        return config(**(base | nodes))

    return make


@pytest.fixture(scope="module")
def whole(given: Config, tmp_path_factory: pytest.TempPathFactory) -> pegboard.Run:
    """A run that others are compared with."""
    return pegboard.train(given(), root=tmp_path_factory.mktemp("whole"), quiet=True)


def weights(run: pegboard.Run) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in pegboard.load(run, which="last").state_dict().items()}


def written_out(given: dict[str, Any], batch: int, accumulate: int, drop: bool) -> dict[str, Tensor]:
    """The same training by hand, every sample padded to the full length."""
    plan = make_plan(check(given), read=True)
    model = assemble(plan, "cpu").model
    optimizer = torch.optim.SGD(model.parameters(), 0.5, 0.9, foreach=False)
    rows, classes = worded.texts(500, 1)
    x = torch.tensor([row + [0] * (worded.LONGEST - len(row)) for row in rows])
    y, lengths = torch.tensor(classes), torch.tensor([len(row) for row in rows])
    for epoch in range(2):
        parts = list(torch.split(similar_order(lengths, batch, given["seed"], epoch, True), batch))
        parts = [part for part in parts if len(part) == batch] if drop else parts
        for at in range(0, len(parts), accumulate):
            index = torch.cat(parts[at : at + accumulate])
            optimizer.zero_grad()
            functional.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize(("accumulate", "drop"), [(1, False), (3, True)])
def test_a_run_is_that_of_a_loop_over_padded_samples(
    given: Config, root: Path, accumulate: int, drop: bool
) -> None:
    config = given(
        data={"name": "worded", "batch_size": 16, "drop_last": drop},
        trainer={"epochs": 2, "device": "cpu", "accumulate": accumulate},
    )
    run = pegboard.train(config, root=root, quiet=True)
    expected = written_out(config, 16, accumulate, drop)
    for name, found in weights(run).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-4, atol=1e-5)
    assert run.figures["val/right"] > 0.8


def test_padding_all_to_one_length_gives_the_same_losses(given: Config, root: Path) -> None:
    data = {"name": "worded", "batch_size": 16, "shuffle": False}
    trainer = {"epochs": 1, "device": "cpu", "log_every": 3}
    short, full = (
        pegboard.train(given(data={**data, "lengths": way}, trainer=trainer), root=root, quiet=True)
        for way in ("bucket", "pad")
    )
    for one, two in zip(short.history, full.history, strict=True):
        assert one == pytest.approx(two, rel=1e-4)


@pytest.mark.parametrize("step", [5, 40])
def test_a_run_stopped_in_an_epoch_resumes_exactly(
    given: Config, root: Path, whole: pegboard.Run, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    gather, count = Ragged.gather, itertools.count(1)

    def counted(self: Any, index: Tensor) -> Batch:
        if len(self) == 500 and next(count) == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return gather(self, index)

    monkeypatch.setattr(Ragged, "gather", counted)
    with pytest.raises(loops.Interrupted, match=f"after step {step}, saved"):
        pegboard.train(given(), root=root / "cut", quiet=True)
    monkeypatch.undo()
    (folder,) = (root / "cut" / "run").glob("2*")
    run = pegboard.resume(folder, quiet=True)
    assert run.history == whole.history and run.figures == whole.figures
    expected = weights(whole)
    assert all(torch.equal(found, expected[name]) for name, found in weights(run).items())


@pytest.mark.sweep
def test_streamed_sequences_train_to_the_same_bits(given: Config, root: Path, whole: pegboard.Run) -> None:
    data = {"name": "worded", "batch_size": 16, "streamed": True, "workers": 2}
    run = pegboard.train(given(data=data), root=root, quiet=True)
    assert run.history == whole.history and run.figures == whole.figures
    expected = weights(whole)
    assert all(torch.equal(found, expected[name]) for name, found in weights(run).items())


def test_with_pad_every_batch_has_the_length_of_the_spec() -> None:
    for streamed in (False, True):
        found = worded.build(worded.Worded(streamed=streamed), pegboard.Context())
        splits = padded_splits(found)
        assert isinstance(splits.train, Stream if streamed else Resident)
        assert getattr(splits.train, "lengths", None) is None
        index = torch.arange(5)
        short, full = found.train.gather(index), splits.train.gather(index)
        assert full.inputs[0].shape == (5, worded.LONGEST) and full.target is not None
        width = short.inputs[0].shape[1]
        assert torch.equal(full.inputs[0][:, :width], short.inputs[0]) and not full.inputs[0][:, width:].any()
        assert short.target is not None and torch.equal(full.target, short.target)


def test_a_target_for_every_step_is_padded_to_the_length_of_its_spec() -> None:
    rows = made(6, most=5)
    source = Ragged([Sequences.join(rows, 0)], Sequences.join(rows, -100), torch.ones(6))
    spec = DataSpec((Tokens(90, 8, 0),), Tokens(90, 9, -100))
    splits = padded_splits(Splits(spec=spec, train=source))
    assert isinstance(splits.train, Resident)
    (tokens,), target = splits.train.inputs, splits.train.target
    assert target is not None and (tokens.shape, target.shape) == ((6, 8), (6, 9))
    assert tokens.tolist() == [row + [0] * (8 - len(row)) for row in rows]
    assert target.tolist() == [row + [-100] * (9 - len(row)) for row in rows]


def test_explain_says_how_much_is_padding(given: Config) -> None:
    text = pegboard.plan(given()).explain()
    line = next(line for line in text.splitlines() if line.startswith("padding"))
    share = float(line.split()[1].rstrip("%"))
    assert 0 < share < 10
    assert "padding " not in pegboard.plan(given(data={"name": "worded", "lengths": "pad"})).explain()


def test_another_way_with_lengths_is_an_error_that_names_both(given: Config) -> None:
    with pytest.raises(PegboardError, match=r"bucket.*pad"):
        check(given(data={"name": "worded", "lengths": "sorted"}))


# Measuring.


class Lengths(nn.Module):
    """How many symbols a sample has, as two logits."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: list[int] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.widths.append(tokens.shape[1])
        count = (tokens != 0).sum(1).float()
        return torch.stack([count, -count / 9], 1)


class Crossed(Objective):
    """Cross entropy over all places but those of -100."""

    def loss(self, output: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        return functional.cross_entropy(output.flatten(0, -2), target.flatten(), ignore_index=-100)

    def mass(self, batch: Batch) -> Tensor | float:
        assert batch.target is not None
        return (batch.target != -100).sum()


def test_predictions_come_in_the_order_of_the_samples_from_batches_of_like_lengths() -> None:
    rows, precision = made(100), choose_precision("fp32", "cpu")
    source, model = Ragged([Sequences.join(rows, 0)], torch.arange(100)), Lengths()
    output, target, _ = collect(model, source, 8, "cpu", precision)
    assert output[:, 0].tolist() == [len(row) for row in rows]
    assert target is not None and target.tolist() == list(range(100))
    lengths = sorted((max(len(row), 1) for row in rows), reverse=True)
    assert model.widths == lengths[::8]
    rows = [[1] * n for n in (1, 2, 90, 3, 40, 1, 1, 2)]  # in one batch padding for the most part
    source, model = Ragged([Sequences.join(rows, 0)], torch.arange(8)), Lengths()
    output, target, _ = collect(model, source, 8, "cpu", precision)
    assert output[:, 0].tolist() == [len(row) for row in rows] and len(model.widths) > 1
    assert target is not None and target.tolist() == list(range(8))


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize(("count", "size"), [(80, 256), (600, 64), (5, 8), (3, 1)])
def test_evaluations_are_less_than_a_tenth_padding(count: int, size: int, steps: bool) -> None:
    """Few samples in one batch, some far longer than the rest, classes and a label for each step."""
    lengths = drawn("geometric", count)
    lengths[count // 2] = 900
    rows, precision = [[1] * n for n in lengths.tolist()], choose_precision("fp32", "cpu")
    target = Sequences.join(rows, -100) if steps else torch.ones(count).long()
    source, shapes = Ragged([Sequences.join(rows, 0)], target), []
    model = nn.Sequential(nn.Embedding(2, 2)) if steps else Lengths()

    def watch(output: Any, batch: Batch) -> None:
        shapes.append(batch.inputs[0].shape)

    for order in (None, torch.randperm(count)[: max(count // 2, 2)]):
        shapes.clear()
        evaluator = Evaluator(objective=Crossed(), precision=precision, batch_size=size)
        evaluator.measure(model, source, order, watch)
        symbols = int(lengths.sum() if order is None else lengths[order].sum())
        assert symbols > 0.9 * sum(n * width for n, width in shapes)
        assert sum(n for n, _ in shapes) == (count if order is None else len(order))
        assert max(n for n, _ in shapes) <= size
        assert [width for _, width in shapes] == sorted((width for _, width in shapes), reverse=True)


def test_figures_do_not_depend_on_how_batches_are_padded() -> None:
    rows, precision = made(100, seed=4), choose_precision("fp32", "cpu")
    y = torch.arange(100) % 2
    ragged = Ragged([Sequences.join(rows, 0)], y)
    padded = ragged.padded(DataSpec((Tokens(90, 40, 0),), Classes(2)))
    evaluator = Evaluator(objective=Crossed(), precision=precision, batch_size=8)
    found = [evaluator.measure(Lengths(), source) for source in (ragged, padded)]
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-6)


def test_a_loss_over_steps_is_that_of_the_same_batches_padded() -> None:
    rows, precision = made(100, seed=5), choose_precision("fp32", "cpu")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(90, 4), nn.Linear(4, 90))
    ragged = Ragged([Sequences.join(rows, 0)], Sequences.join(rows, -100))
    padded = ragged.padded(DataSpec((Tokens(90, 40, 0),), Tokens(90, 40, -100)))
    evaluator = Evaluator(objective=Crossed(), precision=precision, batch_size=8)
    found = [evaluator.measure(model, source) for source in (ragged, padded)]
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-6)
    output, target, _ = collect(model, ragged, 8, "cpu", precision)
    longest = max(map(len, rows))
    assert target is not None and output.shape == (100, longest, 90)
    assert target.tolist() == by_hand(rows, -100)
    whole, _, _ = collect(model, padded, 8, "cpu", precision)
    there = target != -100
    torch.testing.assert_close(output[there], whole[:, :longest][there])
