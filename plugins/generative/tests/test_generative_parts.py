"""The models as parts: tricks on them, samples of them, probes, and mistakes in configs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import PegboardError
from pegboard.cli import main
from pegboard.testing.runs import lean, plugins_once
from sweeps import first_of_each

MODELS: dict[str, dict[str, Any]] = {
    "pca": {"latent": 2},
    "autoencoder": {"latent": 2, "hidden": [8]},
    "vae": {"latent": 2, "hidden": [8]},
    "gan": {"latent": 2, "hidden": [8]},
    "flow": {"layers": 2, "hidden": [8]},
    "diffusion": {"width": 8, "levels": [1], "steps": 20, "sample_steps": 4},
    "hopfield": {"sweeps": 2},
}
NETWORKS = [name for name in MODELS if name not in ("pca", "hopfield")]


def config(model: str, /, **nodes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "seed": 1,
        "data": {"name": "digits", "limit": 64, "batch_size": 32},
        "model": {"name": model, **MODELS[model]},
        "optimizer": {"name": "adam", "lr": 1e-3},
        "trainer": {"epochs": 1, "device": "cpu", "threads": 1},
    }
    return base | nodes


@pytest.mark.parametrize("model", first_of_each(MODELS))
def test_every_model_trains_and_samples_to_the_same_bytes(model: str, root: Path, tmp_path: Path) -> None:
    with plugins_once():
        run = pegboard.train(config(model), root=root, quiet=True)
        assert (run.folder / "figures" / "samples.png").is_file()
        files = [tmp_path / f"{n}.png" for n in "ab"]
        for file in files:
            assert main(["sample", str(run.folder), "-n", "4", "-o", str(file), "--device", "cpu"]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert all(math.isfinite(v) for v in run.summary["figures"].values())


@pytest.mark.parametrize("model", first_of_each(NETWORKS))
def test_dropout_batchnorm_and_weight_decay_act_on_every_network(model: str, root: Path) -> None:
    tricks = {"dropout": {"p": 0.5}, "batchnorm": {}, "weight_decay": {"value": 0.1}}
    weights = []
    with lean():
        for chosen in ({}, *({name: fields} for name, fields in tricks.items())):
            run = pegboard.train(config(model, regularizers=chosen), root=root, quiet=True)
            weights.append(pegboard.load(run, which="last").state_dict())
    plain = weights[0]
    for state in weights[1:]:
        assert not all(torch.equal(plain[k], state[k]) for k in plain)


@pytest.mark.parametrize("model", [m for m in MODELS if m != "gan"])
@pytest.mark.parametrize("trick", ["label_smoothing", "distillation"])
def test_tricks_on_targets_say_why_they_mean_nothing(model: str, trick: str, tmp_path: Path) -> None:
    fields = {"teacher": str(tmp_path)} if trick == "distillation" else {}
    wrong = {
        "label_smoothing": "takes no soft targets",
        "distillation": "generates samples and answers nothing",
    }
    with pytest.raises(PegboardError, match=wrong[trick]):
        pegboard.plan(config(model, regularizers={trick: fields}))
    bare = config(model, regularizers={trick: fields})
    bare["data"] = {"name": "digits", "labelled": 0}
    with pytest.raises(PegboardError, match="but the target of 'digits' is nothing"):
        pegboard.plan(bare)


def test_a_memory_has_no_place_for_what_hangs() -> None:
    with pytest.raises(PegboardError, match=r"regularizers.dropout found nothing to act on"):
        pegboard.plan(config("hopfield", regularizers={"dropout": {}})).explain()


def test_a_model_and_an_objective_that_do_not_fit_are_told() -> None:
    with pytest.raises(PegboardError, match="vae is trained by the objective 'elbo'"):
        pegboard.plan(config("vae", objective={"name": "cross_entropy"}))
    mlp = config("vae", objective={"name": "elbo"})
    mlp["model"] = {"name": "mlp"}
    with pytest.raises(PegboardError, match="'elbo' reads what only vae gives, and the model is 'mlp'"):
        pegboard.plan(mlp)


def test_pictures_too_small_for_the_layers_are_told() -> None:
    given = config("vae")
    given["model"] = {"name": "vae", "form": "convolutional", "channels": [4, 4, 4, 4]}
    with pytest.raises(PegboardError, match="pictures of 8x8 cannot be halved 4 times"):
        pegboard.plan(given)
    given["data"] = {"name": "iris"}
    with pytest.raises(PegboardError, match="is no picture to convolve"):
        pegboard.plan(given)


@pytest.mark.parametrize(
    ("model", "fields", "said"),
    [
        ("autoencoder", {"corrupt": 1.0}, "model.corrupt\n.*a mask of 1 leaves nothing of a sample"),
        ("flow", {"coupling": "spline", "bins": 1000}, "model.bins\n.*found 1000"),
    ],
)
def test_fields_with_which_nothing_is_left_are_told(model: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(PegboardError, match=said):
        pegboard.plan(config(model, model={"name": model, **fields}))
    pegboard.plan(config("autoencoder", model={"name": "autoencoder", "corrupt": 2.0, "corruption": "noise"}))


@pytest.mark.parametrize("loss", ["squared", "bernoulli"])
def test_the_plan_says_which_loss_a_reconstruction_has(loss: str) -> None:
    given = config("autoencoder", objective={"name": "reconstruction", "sparse": 0.5})
    given["model"]["loss"] = loss
    text = pegboard.plan(given).explain()
    shown = "mean((f(x) - x)^2)" if loss == "squared" else "-mean(x log f(x) + (1 - x) log(1 - f(x)))"
    assert f"\n  {shown} + 0.5 mean |code|\n" in text


@pytest.mark.parametrize("model", MODELS)
def test_samples_without_weight_teach_nothing(model: str) -> None:
    from pegboard.config.check import check
    from pegboard.planning.plan import assemble, make_plan

    assembly = assemble(make_plan(check(config(model)), read=True), "cpu")
    x = torch.rand(4, 1, 8, 8) - 0.5
    found = []
    for other in (x[2:], x[2:] + 1):  # the last two differ, and weigh nothing
        torch.manual_seed(0)
        weight, rows = torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.arange(4)
        loss, _ = assembly.kits[0].player.loss(
            assembly.model, pegboard.Batch((torch.cat([x[:2], other]),), None, weight, rows)
        )
        found.append(float(loss.detach()))
        none = pegboard.Batch((x,), None, torch.zeros(4), rows)
        assert math.isfinite(float(assembly.kits[0].player.loss(assembly.model, none)[0].detach()))
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_a_traversal_of_components_goes_as_far_as_the_data(root: Path) -> None:
    from pegboard.inference.sample_files import Generator
    from pegboard.inference.trained import Trained

    given = config("pca", data={"name": "iris", "normalize": "none", "batch_size": 16})
    with lean():
        trained = Trained(pegboard.train(given, root=root, quiet=True).folder, device="cpu")
    made, _ = Generator(trained).make("traverse", 8)
    source = trained.source("train")
    with torch.no_grad():
        codes = trained.model.encode(source.gather(torch.arange(len(source))).inputs[0])
        reached = trained.model.encode(made)[[0, 7], 0]
    between = codes[:, 0].mean() - codes[:, 0].std() * 3, codes[:, 0].mean() + codes[:, 0].std() * 3
    assert torch.allclose(reached, torch.stack(between), atol=float(codes[:, 0].std()))


def test_bernoulli_numbers_must_be_between_0_and_1(root: Path) -> None:
    given = config("vae")
    given["model"] = {"name": "vae", "decoder": "bernoulli"}
    with pytest.raises(PegboardError, match="decoder bernoulli expects .* from 0 to 1"):
        pegboard.train(given, root=root, quiet=True)


@pytest.fixture
def ring_run(root: Path) -> Path:
    given = config(
        "flow",
        data={"name": "ring", "samples": 200, "noise": 0.1, "batch_size": 50},
        probes={"modes": {"samples": 100}, "entropy": {}},
    )
    with lean():
        return pegboard.train(given, root=root, quiet=True).folder


def test_probes_measure_modes_and_the_true_entropy(ring_run: Path) -> None:
    figures = pegboard.Run(ring_run).summary["figures"]
    assert figures["modes/of"] == 8 and 0 <= figures["modes/quality"] <= 1
    assert figures["entropy/gap"] > 0  # it has hardly learned
    true = -(math.log(8) + math.log(2 * math.pi * math.e * 0.1**2))
    assert abs(figures["entropy/true_log_likelihood"] - true) < 0.5


def test_a_perfect_sampler_reaches_all_modes() -> None:
    from pegboard import Resident, Splits
    from pegboard_datasets import made
    from pegboard_generative.configs import Modes
    from pegboard_generative.probes import ModesProbe

    class True_(torch.nn.Module):  # noqa: N801
        def sample(self, count: int, generator: torch.Generator) -> torch.Tensor:
            return made.ring(count, 8, 2.0, 0.05, generator=generator).x

    centres = made.ring_centres(8, 2.0)
    splits = Splits(
        spec=pegboard.DataSpec((pegboard.Vector(2),)),
        train=Resident([torch.zeros(1, 2)]),
        notes={"modes": {"centres": centres.tolist(), "deviation": 0.05}},
    )
    figures = ModesProbe(Modes(), 0).measure(True_(), splits, torch.device("cpu"))
    assert figures["modes"] == 8 and figures["quality"] > 0.99 and figures["unevenness"] < 0.05
    lost = ModesProbe(Modes(), 0)

    class Point(torch.nn.Module):
        def sample(self, count: int, generator: torch.Generator) -> torch.Tensor:
            return centres[:1].expand(count, 2)

    assert lost.measure(Point(), splits, torch.device("cpu"))["modes"] == 1


def test_frechet_needs_a_classifier_and_measures_by_it(root: Path) -> None:
    teacher = config("vae")
    teacher["model"] = {"name": "mlp", "hidden": [16]}
    with lean():
        folder = pegboard.train(teacher, root=root, quiet=True).folder
        given = config("vae", probes={"frechet": {"classifier": str(folder), "samples": 40}})
        given["data"] = {"name": "digits", "limit": 64, "batch_size": 32, "normalize": "none"}
        figures = pegboard.train(given, root=root, quiet=True).summary["figures"]
    assert figures["frechet/frechet"] > figures["frechet/frechet_of_data"] > 0
    assert 0 <= figures["frechet/least_class"] <= figures["frechet/most_class"] <= 1
    with pytest.raises(PegboardError, match="frechet has no classifier"):
        pegboard.plan(config("vae", probes={"frechet": {}}))


def test_a_classifier_that_frechet_cannot_measure_by_is_told(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mlp = {"name": "mlp", "hidden": [4]}
    with lean():
        own = pegboard.train(config("vae"), root=root, quiet=True).folder
        other = pegboard.train(config("vae", model=mlp, data={"name": "iris"}), root=root, quiet=True).folder
        curve = pegboard.train(
            config("vae", model=mlp, data={"name": "cosine"}), root=root, quiet=True
        ).folder
        same = pegboard.train(config("vae", model=mlp), root=root, quiet=True).folder
        for folder, samples, said in (
            (other, 40, r"reads Vector\(4\), and samples are Image"),
            (own, 40, "is no classifier: its model 'vae' generates samples"),
            (curve, 40, r"is no classifier: its model 'mlp' predicts Values"),
            (same, 3, "found 3 samples of it, expected at least 4"),
        ):
            words = ["probe", str(own), "frechet", f"classifier={folder}", f"samples={samples}"]
            assert main(words) == 2
            assert re.search(said, capsys.readouterr().err)


def test_importance_weights_bound_more_closely_than_the_elbo(root: Path) -> None:
    with lean():
        given = config("vae", probes={"importance_weighted": {"draws": 20, "samples": 50}})
        figures = pegboard.train(given, root=root, quiet=True).summary["figures"]
    assert figures["importance_weighted/log_likelihood"] > figures["importance_weighted/elbo"]


@pytest.mark.catalogue("S3-155")
def test_both_terms_of_the_bound_make_codes_that_hold_classes(root: Path) -> None:
    found = {}
    terms = {"likelihood": {"beta": 0.0}, "divergence": {"likelihood": 0.0}, "both": {}}
    for name, factors in terms.items():
        given = config(
            "vae",
            data={"name": "digits", "normalize": "none", "batch_size": 128},
            objective={"name": "elbo", **factors},
            optimizer={"name": "adam", "lr": 5e-3},
            trainer={"epochs": 30, "eval_every": 30, "device": "cpu", "threads": 1, "monitor": "train/loss"},
            probes={"latent_codes": {}},
        )
        given["model"] = {"name": "vae", "latent": 2, "hidden": [64], "decoder": "bernoulli"}
        with lean():
            figures = pegboard.train(given, root=root, quiet=True).summary["figures"]
        found[name] = [figures[f"latent_codes/{f}"] for f in ("neighbour_accuracy", "kl", "active")]
    right, divergence, active = ({n: f[i] for n, f in found.items()} for i in range(3))
    assert right["likelihood"] > 0.6 and divergence["likelihood"] > 5 * divergence["both"]
    assert right["divergence"] < 0.2 and divergence["divergence"] < 0.02  # of ten classes, by chance
    assert right["both"] > 0.6 and 1 < divergence["both"] < 10
    assert active == {"likelihood": 2, "divergence": 0, "both": 2}


@pytest.mark.sweep
def test_compiled_steps_train_a_game_or_say_what_keeps_them(root: Path) -> None:
    text = pegboard.plan(config("gan", trainer={"epochs": 1, "device": "cpu", "compile": "step"})).explain()
    (line,) = [line for line in text.splitlines() if line.startswith("compile ")]
    assert "whole steps" in line
    given = config("gan", objective={"name": "adversarial", "variant": "wasserstein"})
    given["trainer"]["compile"] = "step"
    text = pegboard.plan(given).explain()
    (line,) = [line for line in text.splitlines() if line.startswith("compile ")]
    assert "whole steps" in line or "because" in line
