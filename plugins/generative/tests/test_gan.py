"""Generator and discriminator: the game in closed form, and as two players of the one loop."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import Batch, PegboardError
from pegboard.config.errors import ConfigError
from pegboard.testing.runs import cut_and_resumed, differences, lean, points, whole
from pegboard_generative import configs
from pegboard_generative.functional import discriminator_loss, generator_loss, jensen_shannon
from pegboard_generative.gan import Gan, gradient_norms
from pegboard_generative.objectives import AdversarialLoss, right_answers
from points import given as written
from sweeps import first_of_each
from torch.nn import functional

P, Q = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], dtype=torch.float64)


def config(**nodes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "seed": 1,
        "data": {"name": "ring", "samples": 160, "noise": 0.1, "batch_size": 16},
        "model": {"name": "gan", "latent": 2, "hidden": [16]},
        "optimizer": {"name": "adam", "lr": 1e-3, "players": {"generator": {"lr": 5e-4}}},
        "trainer": {"epochs": 2, "device": "cpu", "threads": 1},
    }
    return base | nodes


@pytest.mark.catalogue("S3-186")
def test_two_networks_share_nothing_and_each_moves_its_own() -> None:
    model = Gan((2,), 5, hidden=(8,))
    z = torch.randn(7, 5)
    made = model.decode(z)
    assert made.shape == (7, 2)
    odds = model(made).sigmoid()
    assert odds.shape == (7,) and bool(((odds > 0) & (odds < 1)).all())
    objective = AdversarialLoss(configs.Adversarial())
    players = objective.players(model)
    names = [{n for n, _ in p.parameters} for p in players]
    assert not names[0] & names[1] and names[0] | names[1] == {n for n, _ in model.named_parameters()}
    for player, own in zip(players, names, strict=True):
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        optimizer = torch.optim.SGD([p for _, p in player.parameters], 0.1)
        loss, _ = player.loss(model, Batch((torch.randn(7, 2),)))
        loss.backward(inputs=[p for _, p in player.parameters])  # type: ignore[no-untyped-call]
        optimizer.step()
        assert {n for n, p in model.named_parameters() if not torch.equal(p, before[n])} == own


@pytest.mark.catalogue("S3-187")
def test_the_discriminators_loss_is_that_of_a_yes_or_no() -> None:
    real, fake = torch.randn(50), torch.randn(50)
    found = discriminator_loss(real, fake, "non_saturating")
    both = functional.binary_cross_entropy(real.sigmoid(), torch.ones(50))
    both = both + functional.binary_cross_entropy(fake.sigmoid(), torch.zeros(50))
    assert abs(float(found - both)) < 1e-6
    assert abs(float(discriminator_loss(torch.zeros(3), torch.zeros(3), "minimax")) - math.log(4)) < 1e-6
    assert float(discriminator_loss(torch.full((3,), 50.0), torch.full((3,), -50.0), "minimax")) < 1e-6
    value = fake.sigmoid()
    assert torch.allclose(generator_loss(fake, "minimax"), (1 - value).log().mean(), atol=1e-6)
    assert torch.allclose(generator_loss(fake, "non_saturating"), -value.log().mean(), atol=1e-6)


def game(scores: torch.Tensor) -> torch.Tensor:
    """What the discriminator loses where samples of P and Q have the scores of a table."""
    real, fake = (scores[torch.arange(3).repeat_interleave((10 * p).round().long())] for p in (P, Q))
    return discriminator_loss(real, fake, "minimax")


@pytest.mark.catalogue("S3-189", "S3-190")
def test_the_best_discriminator_and_what_is_left_of_the_game() -> None:
    scores = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([scores], 5.0)
    for _ in range(400):
        optimizer.zero_grad()
        game(scores).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    best = scores.detach().sigmoid()
    assert torch.allclose(best, P / (P + Q), rtol=0, atol=1e-3)
    assert torch.allclose(best, torch.tensor([0.83333, 0.75, 0.2], dtype=torch.float64), atol=1e-3)
    divergence = jensen_shannon(P, Q)
    value = -game(torch.logit(P / (P + Q)))
    assert abs(float(value - (2 * divergence - math.log(4)))) < 1e-12
    assert abs(float(value) + 0.995673) < 1e-6 and abs(float(divergence) - 0.195311) < 1e-6
    for one, two in torch.rand(1000, 2, 4, dtype=torch.float64):
        one, two = one / one.sum(), two / two.sum()
        found = float(jensen_shannon(one, two))
        assert 0 < found < math.log(2) and abs(found - float(jensen_shannon(two, one))) < 1e-12
        assert abs(float(jensen_shannon(one, one))) < 1e-12
    apart = jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    assert abs(float(apart) - math.log(2)) < 1e-6


@pytest.mark.catalogue("S3-191")
def test_a_discriminator_that_wins_leaves_the_minimax_generator_without_a_gradient() -> None:
    """Samples of the data lie where the generator puts none, and the discriminator alone learns."""
    torch.manual_seed(0)
    model, x = Gan((1,), 1, hidden=(16,)), 8 + 0.1 * torch.randn(64, 1)
    objective = AdversarialLoss(configs.Adversarial())
    player = objective.players(model)[0]
    optimizer = torch.optim.Adam([p for _, p in player.parameters], 0.05)
    for _ in range(400):
        loss, _ = player.loss(model, Batch((x,)))
        optimizer.zero_grad()
        loss.backward(inputs=[p for _, p in player.parameters])  # type: ignore[no-untyped-call]
        optimizer.step()
    _, judged = objective.evaluate(model, Batch((x,)))
    assert right_answers(judged) > 0.99
    told = objective.metrics()["discriminator_accuracy"]  # of an evaluation of a run
    told.update(judged, None)
    assert float(told.compute()) > 0.99
    sizes = {}
    for variant in ("minimax", "non_saturating"):
        generator = AdversarialLoss(configs.Adversarial(variant=variant)).players(model)[1]
        torch.manual_seed(1)
        slopes = torch.autograd.grad(
            generator.loss(model, Batch((x,)))[0], [p for _, p in generator.parameters]
        )
        sizes[variant] = float(torch.cat([s.flatten() for s in slopes]).norm())
    assert sizes["non_saturating"] > 0 and sizes["minimax"] < 1e-3 * sizes["non_saturating"]


def test_the_penalty_of_a_linear_critic_is_its_length() -> None:
    weight = torch.tensor([3.0, 4.0])
    assert torch.allclose(gradient_norms(lambda x: x @ weight, torch.randn(5, 2)), torch.full((5,), 5.0))
    objective = AdversarialLoss(configs.Adversarial(variant="wasserstein"))
    slope = objective._slope(lambda x: x @ weight, torch.randn(5, 2), torch.randn(5, 2))
    assert abs(float(slope) - 16) < 1e-4 and objective.penalty == 10


@pytest.mark.catalogue("S3-186")
def test_in_a_run_each_player_moves_its_own_network(root: Path) -> None:
    def trained(**rates: float) -> dict[str, torch.Tensor]:
        players = {name: {"lr": rate} for name, rate in rates.items()}
        given = config(
            data={"name": "ring", "samples": 40, "batch_size": 8},
            optimizer={"name": "sgd", "lr": 0.1, "players": players},
            trainer={"steps": 2, "device": "cpu", "threads": 1, "diagnose": False},
        )
        with lean():
            run = pegboard.train(given, root=root, quiet=True)
        return dict(pegboard.load(run, which="last").state_dict())

    still = 1e-30  # less than rounding
    start = trained(discriminator=still, generator=still)
    for player, other in itertools.permutations(("discriminator", "generator")):
        moved = {name for name, p in trained(**{other: still}).items() if not torch.equal(p, start[name])}
        assert moved == {name for name in start if name.startswith(player)}


@pytest.mark.catalogue("S3-188")
@pytest.mark.parametrize("seed", first_of_each(range(4)))
def test_a_game_about_one_number_ends_near_the_data(seed: int, root: Path) -> None:
    x = 2 + 0.5 * torch.randn(1024, 1, generator=torch.Generator().manual_seed(seed))
    given = written(
        x, seed=seed, model={"name": "gan", "latent": 1, "hidden": [16], "activation": "tanh"},
        objective={"name": "adversarial", "penalty": 0.1},
        optimizer={"name": "adam", "lr": 0.01, "betas": [0.5, 0.9], "schedule": "linear"},
        trainer={"epochs": 60, "eval_every": 60, "device": "cpu", "diagnose": False},
    )  # fmt: skip
    given["data"]["batch_size"] = 128
    with lean():
        done = pegboard.train(given, root=root, quiet=True)
    made = pegboard.load(done, which="last").sample(5000).detach()
    assert abs(float(made.mean()) - 2) < 0.3 and abs(float(made.std()) - 0.5) < 0.2
    assert abs(done.figures["test/discriminator_loss"] - math.log(4)) < 0.1


@pytest.mark.parametrize("variant", first_of_each(["non_saturating", "minimax", "wasserstein", "hinge"]))
def test_every_variant_trains_with_clip_average_and_accumulation(variant: str, root: Path) -> None:
    given = config(
        objective={"name": "adversarial", "variant": variant, "steps": 2},
        trainer={"epochs": 2, "device": "cpu", "accumulate": 2, "log_every": 1},
        regularizers={"clip": {"bound": 1.0}, "ema": {"decay": 0.9}},
    )
    run = pegboard.train(given, root=root, quiet=True)
    row = run.history[-2]
    assert {"train/discriminator/loss", "train/generator/loss"} <= {k for r in run.history for k in r}
    assert all(math.isfinite(v) for v in row.values() if isinstance(v, float))
    assert math.isfinite(run.summary["figures"]["test/energy_distance"])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_game_resumes_exactly(tmp_path: Path, precision: str) -> None:
    given = config(
        objective={"name": "adversarial", "variant": "wasserstein", "steps": 2},
        trainer={
            "epochs": 2, "accumulate": 2, "device": "cpu", "save_every": 2,
            "precision": precision,
        },
        regularizers={"clip": {"bound": 1.0}, "ema": {"decay": 0.9}},
    )  # fmt: skip
    with lean():
        reference, events = whole(given, tmp_path / "whole")
        (cut,) = points(events, 1)
        assert not differences(reference, cut_and_resumed(given, tmp_path / "cut", cut))


def test_each_player_has_settings_of_its_own() -> None:
    text = pegboard.plan(config()).explain()
    lines = [line.split() for line in text.splitlines() if line.startswith(("discriminator ", "generator "))]
    assert [(line[0], line[3]) for line in lines] == [("discriminator", "0.001"), ("generator", "0.0005")]


def test_one_sided_label_smoothing_tells_the_discriminator_less(root: Path) -> None:
    plan = pegboard.plan(config(regularizers={"label_smoothing": {"epsilon": 0.2}}))
    assert plan.told.target == pegboard.Labels(1, ("real",))
    from pegboard.config.check import check
    from pegboard.planning.plan import assemble, make_plan

    given = config(regularizers={"label_smoothing": {"epsilon": 0.2}})
    assembly = assemble(make_plan(check(given), read=True), "cpu")
    (smooth,) = assembly.linked("edit_target", "discriminator")
    player = assembly.kits[0].player
    assert player.target is not None
    told = smooth[1](player.target(Batch((torch.zeros(3, 2),))))
    assert torch.allclose(told, torch.full((3, 1), 0.9))
    assert pegboard.train(given, root=root, quiet=True).status == "finished"


@pytest.mark.parametrize("variant", ["wasserstein", "hinge"])
def test_where_nobody_is_told_labels_smoothing_says_so(variant: str) -> None:
    given = config(
        objective={"name": "adversarial", "variant": variant}, regularizers={"label_smoothing": {}}
    )
    with pytest.raises(PegboardError, match=f"discriminator of {variant} is told no labels"):
        pegboard.plan(given)


def test_a_trick_on_targets_for_the_player_that_learns_none_says_so() -> None:
    given = config(regularizers={"label_smoothing": {"players": ["generator"]}})
    with pytest.raises(
        PegboardError, match="edits targets, and none is learned by generator; .* discriminator"
    ):
        pegboard.plan(given).explain()
    both = pegboard.plan(config(regularizers={"label_smoothing": {}})).explain()
    assert both.count("  edit_target label_smoothing") == 1


def test_every_wrong_player_is_told_at_once() -> None:
    given = config(regularizers={"dropout": {"players": ["generatr"]}, "weight_decay": {"players": ["xx"]}})
    given["optimizer"]["players"] = {"discriminater": {"lr": 1e-3}}
    with pytest.raises(ConfigError) as caught:
        pegboard.plan(given)
    mistakes = {mistake.path: mistake for mistake in caught.value.mistakes}
    assert sorted(mistakes) == [
        "optimizer.players.discriminater",
        "regularizers.dropout.players.0",
        "regularizers.weight_decay.players.0",
    ]
    assert mistakes["regularizers.dropout.players.0"].nearest == ("generator",)
    assert all("discriminator, generator" in mistake.expected for mistake in mistakes.values())


@pytest.mark.parametrize(
    "more",
    [
        {"model": {"name": "gan", "norm": "batch"}},
        {
            "model": {"name": "gan", "norm": "batch", "form": "convolutional", "channels": [2, 2, 2]},
            "data": {"name": "digits", "limit": 9, "batch_size": 1},
        },
    ],
)
def test_a_norm_over_a_batch_of_one_says_what_to_do(more: dict[str, Any], root: Path) -> None:
    given = config(data={"name": "ring", "samples": 20, "batch_size": 1}) | more
    with lean(), pytest.raises(PegboardError, match="A last batch of one sample is the usual cause"):
        pegboard.train(given, root=root, quiet=True)


def test_both_names_of_the_discriminators_loss_are_one_number(root: Path) -> None:
    given = config(data={"name": "ring", "samples": 100, "batch_size": 7, "eval_batch_size": 7})
    with lean():
        figures = pegboard.train(given, root=root, quiet=True).summary["figures"]
    assert figures["test/loss"] == pytest.approx(figures["test/discriminator_loss"], rel=1e-5)


def test_tricks_touch_the_players_that_they_name() -> None:
    given = config(
        regularizers={
            "dropout": {"p": 0.3, "players": ["discriminator"]},
            "batchnorm": {"players": ["generator"]},
            "weight_decay": {"value": 0.1, "players": ["discriminator"]},
        }
    )
    text = pegboard.plan(given).explain()
    hung = {line.split()[0]: line for line in text.splitlines() if ".body." in line and " NC" in line}
    assert hung and all(
        ("dropout" in line) == n.startswith("discriminator") for n, line in hung.items() if "hidden" in line
    )
    assert all(
        ("batchnorm" in line) == n.startswith("generator") for n, line in hung.items() if "affine" in line
    )
    groups = [line for line in text.splitlines() if line.startswith(("discriminator ", "generator "))]
    assert any("decoupled_decay 0.1" in line for line in groups if line.startswith("discriminator"))
    assert not any("decoupled_decay 0.1" in line for line in groups if line.startswith("generator"))


@pytest.mark.sweep
def test_a_game_of_pictures_has_convolutions_and_batch_norms(root: Path, tmp_path: Path) -> None:
    given = config(
        data={"name": "digits", "normalize": "none", "limit": 128, "batch_size": 32},
        model={
            "name": "gan", "form": "convolutional", "channels": [4, 8], "output": "sigmoid", "norm": "batch",
            "latent": 4,
        },
        trainer={"epochs": 1, "device": "cpu", "threads": 1},
    )  # fmt: skip
    run = pegboard.train(given, root=root, quiet=True)
    from pegboard.cli import main

    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for file in files:
        assert main(["sample", str(run.folder), "-n", "16", "-o", str(file), "--device", "cpu"]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert main(["sample", str(run.folder), "--kind", "interpolate", "-n", "16", "-o", str(files[0])]) == 0
    assert main(["sample", str(run.folder), "--kind", "reconstruct", "-o", str(files[0])]) == 2
