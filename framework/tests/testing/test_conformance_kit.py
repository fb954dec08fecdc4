"""The kit passes what is sound and finds what is not, each defect by the check that is named for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pegboard.base.errors import PegboardError
from pegboard.registry.discovery import Registry
from pegboard.testing import CHECKS, Kit, Outcome, conformance
from pegboard.testing import checks as _checks  # noqa: F401  registers them
from pegboard.testing.kit import Skipped

SOUND = Path(__file__).with_name("sound_plugin.py")
SITES = Path(__file__).with_name("sound_sites.py")
ODD = Path(__file__).with_name("sound_odd.py")
CARD = """# Sound

## Use

```yaml
model: {name: sound_net, width: 4}
```

## Fields

sound_net: width. sound_descent: lr. sound_rate: power. sound_noise: std. sound_data: count.
sound_loss: scale. sound_tracker: unit. sound_probe: power. sound_optimum: by.

## How it works

Simply.

## Where it comes from

Here.
"""

TOP = "if TYPE_CHECKING:\n    import torch\n"

# check -> (part, what is replaced, by what): one defect for every check.
DEFECTS: dict[str, tuple[str, str, str]] = {
    "import_is_light": ("plugin", TOP, f"import numpy\n\n{TOP}"),
    "import_is_quiet": ("plugin", TOP, f"print('hello')\n\n{TOP}"),
    "import_is_quick": (
        "plugin",
        TOP,
        f"import time\nend = time.process_time() + 0.08\nwhile time.process_time() < end:\n    pass\n{TOP}",
    ),
    "import_draws_nothing": ("plugin", TOP, f"import random\nLUCK = random.random()\n\n{TOP}"),
    "import_asks_no_network": (
        "plugin",
        TOP,
        f"import socket\nHERE = socket.getaddrinfo('localhost', 80)\n\n{TOP}",
    ),
    "import_changes_nothing": ("plugin", TOP, f"import os\nos.environ['SOUND'] = '1'\n\n{TOP}"),
    "loads": ("plugin", "def pegboard_models()", "def pegboard_modles()"),
    "hooks_are_plain": ("plugin", "def pegboard_models()", "def pegboard_models(more=())"),
    "record": ("model-sound_net", "def build_net(config: SoundNet, ", "def build_net(config: SoundRate, "),
    "stages_are_declared": (
        "regularizer-sound_noise",
        '"edit_grads": "noise"',
        '"edit_batch": "augment", "after_step": "average"',
    ),
    "schema": ("model-sound_net", "@dataclass(frozen=True)\nclass SoundNet", "@dataclass\nclass SoundNet"),
    "fields_are_documented": ("schedule-sound_rate", "  # how fast", ""),
    "builds_the_same_twice": (
        "model-sound_net",
        "torch.zeros(features))",
        "torch.zeros(features) + int.from_bytes(os.urandom(4)))",
    ),
    "every_parameter_gets_a_gradient": (
        "model-sound_net",
        "            self.last = ",
        "            self.spare = nn.Linear(2, 2)\n            self.last = ",
    ),
    "saves_and_loads": (
        "model-sound_net",
        'self.register_buffer("mean", torch.zeros(features))',
        "self.mean = torch.zeros(features)",
    ),
    "exact_resume": (
        "regularizer-sound_noise",
        'return {"step": self.step}',
        'return {"step": self.step * 0}',
    ),
    "neutral_changes_nothing": (
        "regularizer-sound_noise",
        "            if config.std == 0:\n",
        "            params[0].grad = params[0].grad * 1.0001\n            if config.std == 0:\n",
    ),
    "order_does_not_matter": (
        "regularizer-sound_noise",
        "stages=stages,",
        'stages=stages, after=("partner_edit_grads_clip",),',
    ),
    "runs_on_meta": (
        "model-sound_net",
        "hidden = self.first(",
        "float(x.sum())\n            hidden = self.first(",
    ),
    "has_deterministic_kernels": (
        "model-sound_net",
        "hidden = self.first(",
        "x = x + 0 * x.cumsum(0)\n            hidden = self.first(",
    ),
    "compiles_whole": (
        "model-sound_net",
        "hidden = self.first(",
        "torch._dynamo.graph_break()\n            hidden = self.first(",
    ),
    "trains_under_autocast": (
        "model-sound_net",
        "return self.last(hidden)",
        "kept = torch.zeros(len(x), config.width, device=x.device)\n"
        "            kept[torch.arange(len(x), device=x.device)] = self.first(x)\n"
        "            return self.last(kept + hidden)",
    ),
    "splits_are_sound": (
        "dataset-sound_data",
        "return Batch((self.x[index],),",
        "return Batch((self.x[index.sort()[0]],),",
    ),
    "works_in_spawned_workers": (
        "dataset-sound_data",
        "self.x, self.y = x, y",
        "self.x, self.y, self.f = x, y, lambda: 0",
    ),
    "draws_its_samples": ("dataset-sound_data", "trial=sizes)", "trial=sizes, plot=lambda *_: None)"),
    "descends": ("optimizer-sound_descent", "p.sub_(", "p.add_("),
    "factors_are_sound": (
        "schedule-sound_rate",
        "(1 + step) ** -config.power",
        "-((1 + step) ** -config.power)",
    ),
    "names_players_and_metrics": ("objective-sound_loss", 'players=("model",)', 'players=("critic",)'),
    "weighs_samples": ("objective-sound_loss", "(each * weight).sum() / weight.sum()", "each.sum()"),
    "follows_a_run": ("tracker-sound_tracker", "self.rows += len(table.rows)", "raise RuntimeError('full')"),
    "measures_the_same_twice": (
        "probe-sound_probe",
        "p.detach().norm(self.power))",
        "p.detach().norm(self.power)) + id(self)",
    ),
    "generates_samples": ("model-sound_net", "generator=generator)", "generator=None)"),
    "knows_the_optimum": ("probe-sound_optimum", "copy.deepcopy(model)", "model"),
    "own_spec_survives_a_run": (
        "dataset-sound_data",
        "DataSpec((Triple(),)",
        'DataSpec((dataclass(frozen=True)(type("Late", (Triple,), {}))(),)',
    ),
    "card_is_complete": ("plugin", "", ""),
    "splits_differ": (
        "dataset-sound_data",
        "val=Points(x[:third], y[:third])",
        "val=Points(x[third:], y[third:])",
    ),
    "leaves_batches_alone": (
        "model-sound_net",
        "hidden = self.first(",
        "x.mul_(0.5)\n            hidden = self.first(",
    ),
    "leaves_its_config_alone": (
        "optimizer-sound_descent",
        "    return Descent\n",
        "    object.__setattr__(config, 'lr', 0.5)\n    return Descent\n",
    ),
    "leaves_the_process_alone": (
        "dataset-sound_data",
        "    third = ",
        "    import random\n    random.seed(0)\n    third = ",
    ),
    "is_steady_in_evaluation": (
        "model-sound_net",
        "            if self.training:\n",
        "            if True:\n",
    ),
    "pegs_are_as_declared": (
        "model-sound_net",
        "self.last = nn.Linear(config.width, ",
        "self.peg = __import__('pegboard').Peg('hidden', 3)\n            self.last = nn.Linear(config.width, ",
    ),
    "follows_the_spec": (
        "model-sound_net",
        "nn.Linear(config.width, context.outputs or 1)",
        "nn.Linear(config.width, 3)",
    ),
    "heeds_every_group": ("optimizer-sound_descent", "in self.param_groups:", "in self.param_groups[:1]:"),
    "heeds_the_schedule": (
        "optimizer-sound_descent",
        'group["lr"] * state',
        'state.setdefault("lr", group["lr"]) * state',
    ),
    "functional_is_its_step": (
        "optimizer-sound_descent",
        "return momentum(optimizer) if traced else None",
        "return lambda grads, rates: None",
    ),
    "heeds_the_length": (
        "schedule-sound_rate",
        "lambda step: (1 + step) ** -config.power",
        "lambda step: max(0.0, 1 - step / 1000)",
    ),
    "keeps_what_it_is_given": (
        "regularizer-sound_noise",
        "            self.step += 1\n            scale",
        "            self.step += 1\n            grads = [None] * len(params)\n            scale",
    ),
    "hangs_on_any_peg": (
        "regularizer-site_drop",
        "self.seen.add_(1)",
        "self.seen.add_(1)\n            x = x.mT",
    ),
    "averages_samples": (
        "objective-sound_loss",
        "each.mean() if weight is None else (each * weight).sum() / weight.sum()",
        "each.sum() if weight is None else (each * weight).sum()",
    ),
    "leaves_the_model_alone": (
        "probe-sound_probe",
        "p.detach().norm(self.power))",
        "p.data.mul_(0.9).norm(self.power))",
    ),
    "leaves_rows_alone": ("tracker-sound_tracker", "self.rows += 1", "row.clear()"),
}

# More of the kind that authors make: (check, part, what is replaced, by what), in either of the two files.
AUTHORS: list[tuple[str, str, str, str]] = [
    # Optimizers.
    ("heeds_every_group", "optimizer-sound_descent", 'group["lr"] * state', "config.lr * state"),
    (
        "heeds_every_group",
        "optimizer-sound_descent",
        'group["lr"] * state',
        'self.param_groups[0]["lr"] * state',
    ),
    (
        "exact_resume",
        "optimizer-sound_descent",
        "state = self.state[p]",
        "state = self.__dict__.setdefault('kept', {}).setdefault(p, {})",
    ),
    ("heeds_every_group", "optimizer-sound_descent", 'group["params"]:', 'group["params"][:1]:'),
    (
        "heeds_every_group",
        "optimizer-sound_descent",
        'group["lr"] * state',
        'self.param_groups[-1]["lr"] * state',
    ),
    (
        "heeds_every_group",
        "optimizer-sound_descent",
        'group["lr"] * state',
        '(config.lr if any(group is g for g in self.param_groups[1:-1]) else group["lr"]) * state',
    ),
    ("heeds_every_group", "optimizer-sound_descent", "p.grad is None:", "p.grad is None or p.dim() < 2:"),
    # Models.
    (
        "follows_the_spec",
        "model-sound_net",
        "return self.last(hidden)",
        "return self.last(hidden).argmax(-1)",
    ),
    ("follows_the_spec", "model-sound_net", "    features = spec.features\n", "    features = 4\n"),
    ("follows_the_spec", "model-sound_net", "return self.last(hidden)", "return self.last(hidden).double()"),
    (
        "follows_the_spec",
        "model-site_net",
        "spec.features, config.width, 3, padding=1)",
        "3, config.width, 3, padding=1)",
    ),
    (
        "follows_the_spec",
        "model-site_net",
        "nn.Linear(config.width, context.outputs or 1)",
        "nn.Linear(config.width, 3)",
    ),
    (
        "pegs_are_as_declared",
        "model-site_net",
        'Peg("hidden", config.width, "NCL")',
        'Peg("hidden", 7, "NCL")',
    ),
    (
        "pegs_are_as_declared",
        "model-site_net",
        'Peg("affine", config.width, "NCL")',
        'Peg("affine", config.width, "NLC")',
    ),
    (
        "pegs_are_as_declared",
        "model-site_net",
        'Peg("affine", config.width, "NCL")',
        'Peg("affine", config.width, "NC")',
    ),
    ("pegs_are_as_declared", "model-site_net", '"hidden", "residual"),', '"hidden", "residual", "pooled"),'),
    (
        "pegs_are_as_declared",
        "model-site_net",
        'pegs=("input", "affine", "hidden"',
        'pegs=("input", "hidden"',
    ),
    ("pegs_are_as_declared", "model-site_net", "self.hidden(self.norm(x).relu())", "self.norm(x).relu()"),
    (
        "pegs_are_as_declared",
        "model-site_net",
        "x = self.affine(self.conv(self.input(x).mT))",
        "x = self.conv(self.input(x).mT)\n            self.affine(x)",
    ),
    (
        "leaves_batches_alone",
        "model-sound_net",
        "hidden = self.first(",
        "x.sub_(0 if self.training else 1)\n            hidden = self.first(",
    ),
    (
        "is_steady_in_evaluation",
        "model-site_net",
        "x = self.hidden(",
        "x = x + torch.rand_like(x)\n            x = self.hidden(",
    ),
    (
        "is_steady_in_evaluation",
        "model-site_net",
        "nn.BatchNorm1d(config.width)",
        "nn.BatchNorm1d(config.width, track_running_stats=False)",
    ),
    ("every_parameter_gets_a_gradient", "model-site_net", "+ self.shift\n", "+ self.shift.detach()\n"),
    ("every_parameter_gets_a_gradient", "model-site_net", "self.last(x.mean(2))", "self.last(0 * x.mean(2))"),
    (
        "leaves_batches_alone",
        "model-site_net",
        "            x = self.affine(",
        "            x[:, 0] = 0\n            x = self.affine(",
    ),
    (
        "runs_on_meta",
        "model-site_net",
        "+ self.shift\n",
        "+ self.shift + torch.zeros(len(x), 1, device='cpu')\n",
    ),
    (
        "leaves_the_process_alone",
        "model-site_net",
        "    return Net()",
        "    torch.set_default_dtype(torch.float64)\n    torch.set_default_dtype(torch.float32)\n    import os\n    os.environ['SITE'] = context.key\n    return Net()",
    ),
    # Tricks.
    (
        "is_steady_in_evaluation",
        "regularizer-site_drop",
        "if not self.training or config.p == 0:",
        "if config.p == 0:",
    ),
    ("hangs_on_any_peg", "regularizer-site_drop", "torch.rand_like(x) >=", "torch.rand(4) >="),
    (
        "hangs_on_any_peg",
        "regularizer-site_drop",
        "            return Drop(peg.features) if",
        "            self.one = self.__dict__.get('one', Drop(peg.features))\n            return self.one if",
    ),
    (
        "keeps_what_it_is_given",
        "regularizer-site_mix",
        "return batch.replace(inputs=tuple(x.lerp(x.roll(1, 0), config.share) for x in batch.inputs))",
        "return Batch(batch.inputs, batch.target, None, batch.rows)",
    ),
    (
        "keeps_what_it_is_given",
        "regularizer-site_mix",
        "return batch.replace(inputs=tuple(x.lerp(x.roll(1, 0), config.share) for x in batch.inputs))",
        "return Batch(batch.inputs, batch.target, batch.weight)",
    ),
    (
        "keeps_what_it_is_given",
        "regularizer-site_mix",
        "return [{**group} for group in groups]",
        "return [{**g, 'params': g['params'][1:], 'names': g['names'][1:]} for g in groups]",
    ),
    (
        "keeps_what_it_is_given",
        "regularizer-site_mix",
        "            return None\n",
        "            return True\n",
    ),
    (
        "leaves_batches_alone",
        "regularizer-site_mix",
        "            return batch.replace(",
        "            batch.inputs[0].mul_(0.5)\n            return batch.replace(",
    ),
    (
        "leaves_the_process_alone",
        "regularizer-site_mix",
        "            return batch.replace(",
        "            import random\n            random.random()\n            return batch.replace(",
    ),
    (
        "keeps_what_it_is_given",
        "regularizer-site_mix",
        "return batch.replace(inputs=",
        "return batch.replace(weight=batch.inputs[0].new_ones(batch.samples), inputs=",
    ),
    (
        "keeps_what_it_is_given",
        "regularizer-site_mix",
        "x.lerp(x.roll(1, 0), config.share) for",
        "x[::2] for",
    ),
    (
        "keeps_what_it_is_given",
        "regularizer-site_mix",
        "return [{**group} for group in groups]",
        "return [{'params': g['params'], 'names': g['names']} for g in groups]",
    ),
    # Objectives.
    (
        "leaves_batches_alone",
        "objective-site_both",
        "        hit = (preds",
        "        target.clamp_(max=0)\n        hit = (preds",
    ),
    (
        "leaves_batches_alone",
        "objective-site_both",
        "            each = sum(",
        "            target.clamp_(max=0)\n            each = sum(",
    ),
    (
        "averages_samples",
        "objective-site_both",
        "self.right + (hit * weight).sum(), self.all + weight.sum()",
        "self.right + hit.sum(), self.all + len(hit)",
    ),
    (
        "leaves_batches_alone",
        "objective-sound_loss",
        'return {"class": output.argmax(-1)}',
        'return {"class": output.mul_(2).argmax(-1)}',
    ),
    ("follows_the_spec", "model-site_pair", "context.spec.inputs[0].size or 1", "4"),
    (
        "keeps_what_it_is_given",
        "regularizer-site_mix",
        "    class Mix(Trick):\n        def edit_batch(self, batch: Batch) -> Batch:\n",
        "    stream = context.generator()\n\n    class Mix(Trick):\n"
        "        def edit_batch(self, batch: Batch) -> Batch:\n"
        "            draw = batch.inputs[0].new_empty(batch.samples).uniform_(generator=stream)\n"
        "            return batch.replace(weight=draw)\n",
    ),
    # Data sets.
    (
        "splits_differ",
        "dataset-sound_data",
        "val=Points(x[:third], y[:third])",
        "val=Points(x[third:], y[third:]), test=Points(x[:third], y[:third])",
    ),
    (
        "splits_differ",
        "dataset-sound_data",
        "val=Points(x[:third], y[:third])",
        "val=Points(x[third : 2 * third], y[third : 2 * third])",
    ),
    (
        "splits_are_sound",
        "dataset-sound_data",
        "self.y[index], None, index)",
        "self.y[index], None, index * 0)",
    ),
    (
        "splits_are_sound",
        "dataset-sound_data",
        "    y = (x.sum(1) > 0).long()",
        "    y = 1 + (x.sum(1) > 0).long()",
    ),
    (
        "splits_are_sound",
        "dataset-sound_data",
        "    y = (x.sum(1) > 0).long()",
        "    y = (x.sum(1) > 0).long()\n    x = x.double()",
    ),
    (
        "splits_are_sound",
        "dataset-sound_data",
        "    y = (x.sum(1) > 0).long()",
        "    y = (x.sum(1) > 0).long()\n    x[:, 0] = x[:, 0].log()",
    ),
    (
        "splits_are_sound",
        "dataset-sound_data",
        "    y = (x.sum(1) > 0).long()",
        "    y = (x.sum(1) > 0).long()\n    x = x[:, :2]",
    ),
    (
        "splits_differ",
        "dataset-sound_data",
        "val=Points(x[:third], y[:third])",
        "val=Points(x[:third], y[:third]), test=Points(x[:third], y[:third])",
    ),
    (
        "splits_differ",
        "dataset-sound_data",
        "val=Points(x[:third], y[:third])",
        "val=Points(x, y)",
    ),
    (
        "splits_differ",
        "dataset-sound_data",
        "val=Points(x[:third], y[:third])",
        "val=Points(x[: 2 * third], y[: 2 * third])",
    ),
    (
        "splits_differ",
        "dataset-sound_data",
        "val=Points(x[:third], y[:third])",
        "val=Points(x[:third], y[:third]), test=Points(x[:third].flip(0), y[:third].flip(0))",
    ),
    (
        "splits_differ",
        "dataset-sound_data",
        "val=Points(x[:third], y[:third])",
        "val=Points(x[:third], y[:third]), test=Points(x[2:third], y[2:third])",
    ),
    # Probes.
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        model.padded = True\n        return {"length"',
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        model.head.weight = copy.deepcopy(model.head.weight)\n        return {"length"',
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        splits.val.inputs[0].zero_()\n        return {"length"',
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        model.train()\n        return {"length"',
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        [*model.parameters()][0].requires_grad_(False)\n        return {"length"',
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        sum(p.sum() for p in model.parameters()).backward()\n        return {"length"',
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        model.register_forward_hook(lambda *more: None)\n        return {"length"',
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        splits.train.gather.__self__.inputs[0].zero_()\n        return {"length"',
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        "        __import__('torch').manual_seed(0)\n        return {\"length\"",
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        [buffer.zero_() for buffer in model.buffers()]\n        return {"length"',
    ),
    (
        "leaves_the_model_alone",
        "probe-sound_probe",
        '        return {"length"',
        '        model.train()(splits.train.inputs[0][:4])\n        model.eval()\n        return {"length"',
    ),
    # Trackers and records.
    ("follows_a_run", "tracker-sound_tracker", "self.rows += 1", "__import__('time').sleep(600)"),
    ("follows_a_run", "tracker-sound_tracker", "self.rows += 1", "row['nothing']"),
    ("schema", "schedule-sound_rate", "power: Annotated[float, Ge(0)] = 1.0", "power = 1.0"),
]
# ruff: noqa: E501
DISTRIBUTIONS_ONLY = {"core_range"}


def outcomes(path: Path, *ids: str) -> dict[str, Outcome]:
    cases = Kit(str(path)).cases()
    return {case.id: case.run() for case in cases if not ids or case.id in ids}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text(CARD)
    return tmp_path


def test_there_is_a_defect_for_every_check() -> None:
    assert set(DEFECTS) | DISTRIBUTIONS_ONLY == set(CHECKS)
    assert len(DEFECTS) >= 15


def test_what_is_sound_passes_every_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "sound.py"
    path.write_text(SOUND.read_text())
    found = outcomes(path)
    assert "warning" not in capsys.readouterr().err  # of the kit's own configs
    assert not {i: o.message for i, o in found.items() if o.status == "failed"}
    skipped = {i for i, o in found.items() if o.status == "skipped"}
    assert skipped == {
        "plugin-core_range",
        "dataset-sound_data-works_in_spawned_workers",
        "probe-sound_optimum-has_deterministic_kernels",
        "probe-sound_probe-knows_the_optimum",
        "model-sound_net-pegs_are_as_declared",
        "regularizer-sound_noise-hangs_on_any_peg",
        "optimizer-sound_descent-functional_is_its_step",
    }
    checked = {i.rpartition("-")[2] for i in found}
    assert checked == set(CHECKS)


@pytest.mark.parametrize("check", DEFECTS)
def test_a_defect_is_caught_by_the_check_named_for_it(check: str, folder: Path) -> None:
    part, old, new = DEFECTS[check]
    text = (SITES if "site_" in part else SOUND).read_text()
    if check == "card_is_complete":
        (folder / "README.md").write_text(
            CARD.replace("sound_rate: power.", "").replace("## Use", "## Usage")
        )
    else:
        assert text.count(old) == 1
    path = folder / f"defect_{check}.py"
    path.write_text(text.replace(old, new) if old else text)
    if "os.urandom" in new:
        path.write_text(path.read_text().replace(TOP, f"import os\n\n{TOP}"))
    found = outcomes(path, f"{part}-{check}")
    (outcome,) = found.values()
    assert outcome.status == "failed"
    assert "\n" not in outcome.message.strip() or check in ("runs_on_meta", "order_does_not_matter")
    assert "Traceback" not in outcome.message


@pytest.mark.sweep
@pytest.mark.parametrize("source", [SITES], ids=["sites"])
def test_what_is_sound_passes_though_it_is_unusual(source: Path, folder: Path) -> None:
    """Gradients that cancel, pegs by choice, parts that need their own partner, weights that metrics heed."""
    path = folder / "sites.py"
    path.write_text(source.read_text())
    (folder / "README.md").unlink()
    found = outcomes(path)
    assert not {i: o.message for i, o in found.items() if o.status == "failed"}
    # Beside each other, not beside partners.
    for part in ("model-site_pair", "objective-site_both", "regularizer-site_agree"):
        assert found[f"{part}-exact_resume"].status == "passed"


@pytest.mark.sweep
def test_sound_parts_of_odd_form_pass(folder: Path) -> None:
    """Channels last, weights used twice, parametrizations, samples that come again, data without a val."""
    path = folder / "odd.py"
    path.write_text(ODD.read_text())
    (folder / "README.md").unlink()
    found = outcomes(path)
    assert len({i.partition("-")[2].partition("-")[0] for i in found if i.startswith(("model", "reg"))}) == 6
    assert not {i: o.message for i, o in found.items() if o.stops}
    advised = {i for i, o in found.items() if o.status == "failed"}
    assert advised == {"model-odd_spectral-compiles_whole", "optimizer-odd_sign-compiles_whole"}


@pytest.mark.sweep
@pytest.mark.parametrize(("check", "part", "old", "new"), AUTHORS)
def test_a_defect_that_authors_make_is_caught(
    check: str, part: str, old: str, new: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.testing.checks.running.PATIENCE", 0.5)
    text = (SITES if "site_" in part else SOUND).read_text()
    assert text.count(old)
    path = folder / "defect.py"
    path.write_text(text.replace(old, new))
    (outcome,) = outcomes(path, f"{part}-{check}").values()
    assert outcome.status == "failed"
    assert part.partition("-")[2] in outcome.message  # the part is named
    assert not re.match(r"\w*(Error|Exception)\b", outcome.message)


# part and check, what is replaced by what, and how the message goes on after the part.
WORDS: list[tuple[str, str, str, str]] = [
    (
        "optimizer-sound_descent-heeds_every_group",
        'group["lr"] * state',
        '(config.lr if any(group is g for g in self.param_groups[1:-1]) else group["lr"]) * state',
        r"does not heed group\['lr'\] of group 1; read the rate of each group",
    ),
    (
        "model-sound_net-builds_the_same_twice",
        "torch.zeros(features))",
        "torch.zeros(features) + id(object()) % 1009 + __import__('time').monotonic())",
        "builds something else the second time, with the same config and seed: mean; draw",
    ),
    (
        "regularizer-site_drop-hangs_on_any_peg",
        "self.seen.add_(1)",
        "x = x + self.seen",
        r"on a peg 'NCL' of 5 features its module cannot read a tensor \(4, 5, 3\) \(RuntimeError: The size",
    ),
    (
        "regularizer-site_mix-keeps_what_it_is_given",
        "return batch.replace(inputs=tuple(x.lerp(x.roll(1, 0), config.share) for x in batch.inputs))",
        "return batch.inputs, batch.target",
        r"edit_batch gives a tuple, expected a Batch: batch.replace\(inputs=...\)",
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "words"), WORDS)
def test_a_message_names_what_is_wrong(name: str, old: str, new: str, words: str, folder: Path) -> None:
    text = (SITES if "site_" in name else SOUND).read_text()
    assert text.count(old) == 1
    (folder / "defect.py").write_text(text.replace(old, new))
    assert re.search(rf"'\w+' of \S+defect.py:? {words}", outcomes(folder / "defect.py", name)[name].message)


def test_what_the_planner_refuses_is_tried_and_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "role.py").write_text(
        SOUND.read_text().replace('"edit_grads": "noise"', '"edit_grads": "niose"')
    )
    monkeypatch.setattr("pegboard.testing.subjects.Subject._others", lambda *more: ())  # partners are enough
    part = "regularizer-sound_noise"
    checks = [f"{part}-{name}" for name in ("builds_the_same_twice", "leaves_batches_alone", "record")]
    first, second, record = outcomes(folder / "role.py", *checks).values()
    assert "unknown role 'niose' in edit_grads" in first.message
    assert second.message.endswith("accepts no config with it, as its first check that failed tells")
    assert "there is no role 'niose' in edit_grads" in record.message


def test_plugins_are_looked_for_once_for_all_checks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pegboard.registry.discovery import Registry

    asked: list[object] = []
    discover = Registry.discover
    monkeypatch.setattr(
        Registry, "discover", lambda *more, **names: asked.append(more) or discover(*more, **names)
    )
    (folder / "mine.py").write_text(SOUND.read_text())
    names = ("schema", "builds_the_same_twice", "heeds_every_group", "saves_and_loads")
    found = outcomes(folder / "mine.py", *(f"optimizer-sound_descent-{name}" for name in names))
    assert {o.status for o in found.values()} == {"passed"}
    assert len(asked) <= 3


def test_data_is_read_without_progress_bars(folder: Path) -> None:
    quiet = "    assert context.quiet, 'a bar would be shown'\n    third = "
    (folder / "data.py").write_text(SOUND.read_text().replace("    third = ", quiet))
    names = ("builds_the_same_twice", "leaves_its_config_alone", "splits_are_sound", "exact_resume")
    found = outcomes(folder / "data.py", *(f"dataset-sound_data-{name}" for name in names))
    assert not [o.message for o in found.values() if o.status != "passed"]


def test_pictures_of_another_size_are_no_squares() -> None:
    from pegboard import Classes, DataSpec, Image
    from pegboard.testing.checks.shapes import others

    larger = next(others(DataSpec((Image(1, 8, 8),), Classes(3)))).inputs[0]
    assert isinstance(larger, Image) and larger.height != larger.width


RAISES = {
    "in the forward pass": (
        "hidden = self.first(",
        "[][3]",
        "model-sound_net",
        "IndexError: list index out of range",
    ),
    "while its loss was computed": ("each = functional", "{}['x']", "objective-sound_loss", "KeyError: 'x'"),
    "while samples were read": (
        "return Batch((self.x",
        "None.x",
        "dataset-sound_data",
        "AttributeError: 'NoneType'",
    ),
    "in edit_grads": (
        "self.step += 1",
        "1 / 0",
        "regularizer-sound_noise",
        "ZeroDivisionError: division by zero",
    ),
    "while it measured": ('return {"length"', "[][3]", "probe-sound_probe", "IndexError"),
    "in a step of the optimizer": ("for group in self", "[][3]", "optimizer-sound_descent", "IndexError"),
    "in build_loss": ("from torch.nn import functional", "[][3]", "objective-sound_loss", "IndexError"),
    "in build_data": ("third = config", "__import__('sys').exit(3)", "dataset-sound_data", "SystemExit: 3"),
}


@pytest.mark.parametrize("phase", RAISES)
def test_an_exception_of_a_part_is_told_with_part_phase_and_line(phase: str, folder: Path) -> None:
    at, raising, part, cause = RAISES[phase]
    text = SOUND.read_text()
    line = next(row for row in text.splitlines() if at in row)
    indent = line[: len(line) - len(line.lstrip())]
    path = folder / "raises.py"
    path.write_text(text.replace(line, f"{indent}{raising}\n{line}", 1))
    number = 1 + path.read_text().splitlines().index(f"{indent}{raising}")
    of_part = [
        case.run()
        for case in Kit(str(path)).cases()
        if (
            case.id.startswith(f"{part}-")
            and case.check.name
            in ("saves_and_loads", "weighs_samples", "splits_are_sound", "leaves_batches_alone")
        )
        or case.id.startswith("probe-sound_probe-m")
    ]
    failed = [o.message for o in of_part if o.status == "failed"]
    assert failed
    kind, _, name = part.partition("-")
    for message in failed:
        assert message.startswith(f"{kind} {name!r} of ")
        assert f": {phase}, {cause}" in message
        assert f"{path}:{number}, in the line `{raising}`" in message


@pytest.mark.parametrize("given", ["mine.py", "./mine.py", "below/../mine.py"])
def test_a_file_is_named_by_a_relative_path_from_any_folder(
    given: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pegboard.cli import main

    (folder / "below").mkdir()
    (folder / "mine.py").write_text(SOUND.read_text())
    monkeypatch.chdir(folder)
    assert main(["plugins", "test", given, "-k", "sound_rate"]) == 0
    monkeypatch.chdir(folder / "below")
    assert main(["plugins", "test", f"../{given}", "-k", "sound_rate-exact"]) == 0
    assert "0 of 1 checks failed" in capsys.readouterr().out


def test_conformance_finds_a_file_beside_the_test_from_any_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text(SOUND.read_text())
    lines = ["from pegboard.testing import conformance", "", 'test_part = conformance("mine.py")']
    (folder / "test_beside.py").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(folder.parent)
    options = ["-p", "pegboard.testing", "-p", "no:xdist", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    code = pytest.main([*options, "-q", "-k", "rate-exact", str(folder)])
    assert "1 passed" in capsys.readouterr().out
    assert code == 0


def test_a_file_that_is_not_there_is_told_with_the_places(folder: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"no file 'not_there.py': looked in .*testing"):
        conformance("not_there.py")


def test_a_gradient_that_cancels_is_told_from_one_that_never_comes(folder: Path) -> None:
    check = "model-site_net-every_parameter_gets_a_gradient"
    path = folder / "net.py"
    text = SITES.read_text()
    path.write_text(text)
    assert outcomes(path, check)[check].status == "passed"  # a bias before a normalisation, a common shift
    path.write_text(text.replace("+ self.shift\n", "+ 0.0\n"))
    assert "shift got no gradient in four steps; it is not used" in outcomes(path, check)[check].message
    path.write_text(text.replace("self.conv(self.input(x).mT)", "0 * self.conv(self.input(x).mT)"))
    assert "conv.bias, conv.weight" in outcomes(path, check)[check].message
    assert "it is used, but nothing that is computed with it changes" in outcomes(path, check)[check].message


def test_an_author_s_test_is_three_lines(folder: Path) -> None:
    (folder / "mine.py").write_text(SOUND.read_text().replace("  # how fast", ""))
    lines = ["from pegboard.testing import conformance", "", 'test_part = conformance("mine.py")']
    (folder / "test_mine.py").write_text("\n".join(lines) + "\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "pegboard.testing",
        "-q",
        "-k",
        "rate and (documented or record)",
    ]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert told.returncode == 1
    assert "1 failed, 1 passed" in told.stdout
    assert "SoundRate of schedule 'sound_rate' of mine.py says nothing of power" in told.stdout
    assert "Traceback" not in told.stdout


def test_a_declared_failure_is_strict(folder: Path) -> None:
    path = folder / "mine.py"
    path.write_text(SOUND.read_text().replace("  # how fast", ""))
    cases = Kit(
        str(path),
        {"schedule-sound_rate-fields_are_documented": "later", "schedule-sound_rate-record": "never"},
    ).cases()
    found = {
        case.id: case.run() for case in cases if case.id.startswith("schedule-sound_rate-f") or case.declared
    }
    assert found["schedule-sound_rate-fields_are_documented"].status == "declared"
    passes = found["schedule-sound_rate-record"]
    assert (passes.status, passes.stops) == ("failed", True)
    assert passes.message == "declared to fail (never), but passes"


def test_a_declared_failure_of_no_check_is_an_error(folder: Path) -> None:
    with pytest.raises(PegboardError, match="did you mean 'schedule-sound_rate-record'"):
        Kit(str(SOUND), {"schedule-sound_rate-recrod": "why"}).cases()


def test_a_check_of_this_release_only_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    check = CHECKS["record"]
    assert check.level == "required"
    monkeypatch.setattr("pegboard.testing.kit.__version__", "0.7.3")
    assert replace(check, since="0.7.0").level == "new"
    assert replace(check, since="0.6.0").level == "required"


def test_without_a_compiler_it_is_said_what_to_install() -> None:
    kit = Kit(str(SOUND))
    (subject,) = (s for s in kit.subjects() if s.entry is not None and s.part.name == "sound_net")
    subject.registry = Registry([p for p in subject.registry.plugins if p.dist != "pegboard-compile"])
    said = "nothing compiles here: stepper 'compiled' is part of pegboard-compile, which is not installed; "
    with pytest.raises(Skipped, match=re.escape(said + "pip install pegboard-compile")):
        CHECKS["compiles_whole"].run(subject)


@pytest.mark.sweep
def test_what_is_advised_warns_unless_strict(folder: Path) -> None:
    _, old, new = DEFECTS["compiles_whole"]
    (folder / "mine.py").write_text(SOUND.read_text().replace(old, new))
    (folder / "test_mine.py").write_text(
        'from pegboard.testing import conformance\n\ntest_part = conformance("mine.py")\n'
    )
    command = [sys.executable, "-m", "pytest", "-p", "pegboard.testing", "-q", "-k", "net and compiles"]
    soft = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert soft.returncode == 0
    assert "advised, and new checks that will be required" in soft.stdout
    assert "model-sound_net-compiles_whole" in soft.stdout
    hard = subprocess.run([*command, "--pegboard-strict"], cwd=folder, capture_output=True, text=True)
    assert hard.returncode == 1


def test_a_plugin_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(
        pytest.fail.Exception,
        match="no plugin 'pegboard-dropuot' is installed; did you mean 'pegboard-dropout'",
    ):
        conformance("pegboard-dropuot")


def test_every_check_says_what_it_is_for() -> None:
    assert all(re.match(r"[A-Z].*[.:]$|[A-Z].*\.$", check.about) for check in CHECKS.values())
