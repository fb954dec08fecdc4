"""Nothing in a training step waits for the device; what does is found and named.

That this holds for every part is a check of the kit, `runs_on_meta`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pegboard
import pytest
import yaml
from pegboard.registry.discovery import Entry
from pegboard.store.zoo import recipes
from pegboard.testing.runs import plugins_once
from proofs import Config, entries, name_of, plain, tried
from sandbox import ROOT
from sweeps import first_of_each
from waiting_parts import FINE, STAGES, WAITING

HERE = ROOT / "tests" / "support" / "parts"
KINDS = ("model", "regularizer", "optimizer", "schedule", "objective")
PARTS = [entry for kind in KINDS for entry in entries(kind)]
DECLARED = [entry for entry in PARTS if entry.part.synchronizes]  # type: ignore[attr-defined]
# A step with all that the core can do in it.
TRAINER = {"steps": 4, "accumulate": 2, "device": "cpu"}
FILES = [path for path in sorted((ROOT / "configs").glob("*.yaml")) if path.stem != "base"]
PLACES = [*STAGES, "model", "objective", "optimizer", "schedule"]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shelf").resolve()


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without what is the same every time, and without pictures."""
    monkeypatch.setattr("pegboard.run.finish.draw_curves", lambda rows, path, *_: path)
    with plugins_once():
        yield


def tried_whole(entry: Entry, shelf: Path) -> Config:
    given = tried(entry, shelf)
    average = {} if "eval_weights" in getattr(entry.part, "stages", ()) else {"ema": {"decay": 0.9}}
    tricks = {"clip": {"bound": 1.0}} | average | given.get("regularizers", {})
    return given | {"regularizers": tricks, "trainer": TRAINER}


@pytest.mark.parametrize("entry", DECLARED, ids=map(name_of, DECLARED))
def test_what_declares_to_wait_does(entry: Entry, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.preview.explain.stand_ins", lambda assembly: nullcontext())
    with pytest.raises(pegboard.PegboardError, match=rf"optimizer \({entry.part.name} of .* waits for"):
        pegboard.plan(tried_whole(entry, shelf)).trace()


def model_of(path: Path) -> str:
    """The name of the model of a config, or the file that it extends."""
    node = yaml.safe_load(path.read_text("utf-8"))
    model = node.get("model", {})
    return str(model.get("name", node.get("extends", model)))


each_config = pytest.mark.parametrize(
    "path",
    first_of_each([*FILES, *(r.config for r in recipes())], model_of),
    ids=lambda p: f"{p.parent.name}-{p.stem}",
)


@each_config
@pytest.mark.usefixtures("on_small_data")
def test_a_step_of_this_config_waits_for_no_device_or_says_so(path: Path) -> None:
    """And neither it nor an evaluation calls what CUDA has no deterministic kernel for."""
    # Given here, the length makes it a trial, in which the small data may end before a warm-up does.
    plan = pegboard.plan(path, "trainer.device=cuda", "trainer.steps=100000")
    text = plan.explain()
    said = [getattr(entry.part, "synchronizes", "") for _, entry in plan.entries()]
    assert ("waits       for the device" in text) == any(said)


def seeded(place: str, do: str, suffix: str = "") -> Config:
    node = {"name": f"in_{place}{suffix}", "do": do}
    given = plain(plugins={"local": [*plain()["plugins"]["local"], str(HERE / "waiting_parts.py")]})
    given |= {"trainer": TRAINER, "regularizers": {"ema": {"decay": 0.9}}}
    match place:
        case "model" | "objective":
            return given | {place: node}
        case "optimizer":
            return given | {"optimizer": {**node, "lr": 0.01}}
        case "schedule":
            return given | {"optimizer": {"name": "adam", "lr": 0.01, "schedule": node}}
    return given | {"regularizers": {"seed": node, **given["regularizers"]}}


def complaint(given: Config) -> str:
    with pytest.raises(pegboard.PegboardError) as told:
        pegboard.plan(given).explain(strict=True)
    return str(told.value)


@pytest.mark.parametrize("do", ["item", "stray", "mask"])
@pytest.mark.parametrize("place", PLACES)
def test_a_part_that_waits_is_named_with_the_line_and_the_remedy(place: str, do: str) -> None:
    text = complaint(seeded(place, do))
    path = {p: p for p in PLACES[-4:]} | {"schedule": "optimizer.schedule"}
    first, where, remedy, declare = text.splitlines()
    assert first.startswith(f"{path.get(place, 'regularizers.seed')} (in_{place} of ")
    assert WAITING[do][1] in first
    file, line, code = where.strip().split(":", 2)
    assert Path(file).name == "waiting_parts.py"
    assert code.strip() == Path(file).read_text().splitlines()[int(line) - 1].strip()
    assert remedy.startswith("  ") and f'("in_{place}", ..., synchronizes="why")' in declare


def test_what_waits_trains_on_the_cpu_with_one_warning_and_not_if_that_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = seeded("model", "item")
    with pytest.raises(pegboard.PegboardError, match="waits for the device in every step"):
        pegboard.train(given, root=tmp_path, strict=True)
    assert not list(tmp_path.iterdir())
    capsys.readouterr()
    run = pegboard.train(given, root=tmp_path)
    assert run.status == "finished"
    (warning,) = (line for line in capsys.readouterr().err.splitlines() if "waits for the device" in line)
    assert warning.startswith("warning: on a GPU: model (in_model of ")
    plan = (run.folder / "plan.txt").read_text("utf-8")
    assert "not tried: model (in_model of " in plan and "parameters  " in plan


def test_a_model_that_waits_is_named_also_where_pegs_are_found_in_it() -> None:
    """To find them takes a forward pass before there is a step."""
    given = seeded("model", "item") | {"regularizers": {"dropout": {"sites": ["input"]}}}
    assert complaint(given).startswith("model (in_model of ")


@pytest.mark.parametrize("do", WAITING)
def test_every_way_to_wait_is_found(do: str) -> None:
    text = complaint(seeded("edit_loss", do))
    assert text.startswith("regularizers.seed (in_edit_loss of ") and WAITING[do][1] in text.splitlines()[0]


@pytest.mark.parametrize("do", FINE)
def test_what_does_not_wait_is_let_pass(do: str) -> None:
    assert "waits       for" not in pegboard.plan(seeded("edit_loss", do)).explain()


@pytest.mark.parametrize("place", PLACES)
def test_a_part_that_declares_it_is_shown_and_makes_its_step(place: str) -> None:
    plan = pegboard.plan(seeded(place, "item", "_said"))
    text = plan.explain()
    assert f"it must, in {place}" in text.split("waits       for the device in every step: ")[1]
    assert "update" in plan.trace("cpu")


def test_a_part_that_declares_it_trains(tmp_path: Path) -> None:
    said, without = (
        pegboard.train(given, root=tmp_path, quiet=True).history
        for given in (
            seeded("edit_loss", "item", "_said"),
            plain(trainer=TRAINER, regularizers={"ema": {"decay": 0.9}}),
        )
    )
    assert said == without


@pytest.mark.parametrize("place", ["model", "objective"])
def test_a_step_that_cannot_run_on_meta_is_not_measured(place: str) -> None:
    plan = pegboard.plan(seeded(place, "item", "_said"))
    text = plan.explain()
    assert f"not tried: {place} waits for the device: it must, in {place}" in text
    assert "floating point operations" not in text
    assert plan.trace("cpu")[-2:] == ["update", "eval_weights ema"]
    with pytest.raises(pegboard.PegboardError, match="name another device"):
        plan.trace("meta")


def test_a_tensor_that_is_made_once_is_let_pass(tmp_path: Path) -> None:
    file = tmp_path / "once.py"
    file.write_text(ONCE)
    given = plain(regularizers={"once": {}}, plugins={"local": [*plain()["plugins"]["local"], str(file)]})
    assert "waits       for" not in pegboard.plan(given | {"trainer": TRAINER}).explain()


ONCE = '''
from dataclasses import dataclass
from pegboard import Regularizer, Trick, hookimpl

@dataclass(frozen=True)
class Once:
    """Keeps a tensor."""

class OnceTrick(Trick):
    kept = None
    def edit_loss(self, loss, output, batch):
        import torch
        if self.kept is None:
            self.kept = torch.tensor([0.5], device=loss.device).sum()
        return loss * self.kept

@hookimpl
def pegboard_regularizers():
    return [Regularizer("once", Once, lambda c, x: OnceTrick(), stages={"edit_loss": "term"})]
'''


@pytest.mark.parametrize("kept", ["torch.ones(6)", "[torch.ones(6)]", "nn.Parameter(torch.ones(6)).detach()"])
def test_a_tensor_that_is_not_registered_stays_on_the_cpu(kept: str, tmp_path: Path) -> None:
    """In a hung module, which is moved with the model; on a device its first step would fail."""
    file = tmp_path / "held.py"
    file.write_text(HELD.replace("KEPT", kept))
    given = plain(regularizers={"held": {}}, plugins={"local": [*plain()["plugins"]["local"], str(file)]})
    first, where, remedy, _ = complaint(given).splitlines()
    assert first.startswith("regularizers.held (held of ") and "mixes a tensor on the CPU" in first
    assert where.endswith("return x * kept") and "a buffer of a module" in remedy


@pytest.mark.parametrize(
    "kept", ["nn.Parameter(torch.ones(6))", "torch.ones(())", "nn.Buffer(torch.ones(6))"]
)
def test_a_tensor_that_is_moved_with_its_module_is_let_pass(kept: str, tmp_path: Path) -> None:
    file = tmp_path / "held.py"
    file.write_text(HELD.replace("KEPT", kept))
    given = plain(regularizers={"held": {}}, plugins={"local": [*plain()["plugins"]["local"], str(file)]})
    assert "body" in pegboard.plan(given).explain()


HELD = '''
from dataclasses import dataclass
from pegboard import Regularizer, Trick, hookimpl

@dataclass(frozen=True)
class Held:
    """Holds a tensor."""

class HeldTrick(Trick):
    def hang(self, peg):
        import torch
        from torch import nn
        if peg.site != "hidden":
            return None
        class Holding(nn.Module):
            def __init__(self):
                super().__init__()
                self.kept = KEPT
            def forward(self, x):
                kept = self.kept[0] if isinstance(self.kept, list) else self.kept
                return x * kept
        return Holding()

@hookimpl
def pegboard_regularizers():
    return [Regularizer("held", Held, lambda c, x: HeldTrick(), stages={"hang": "drop"})]
'''


def hooked(folder: Path, said: str = "") -> Config:
    file = folder / "hooked.py"
    file.write_text(HOOKED.replace("SAID", repr(said)))
    return plain(regularizers={"hooked": {}}, plugins={"local": [*plain()["plugins"]["local"], str(file)]})


def test_a_trick_that_waits_in_what_it_hooked_into_the_model_is_named(tmp_path: Path) -> None:
    first, where, *_ = complaint(hooked(tmp_path)).splitlines()
    assert first.startswith("regularizers.hooked (hooked of ")
    assert where.endswith("return output * output.mean().item()")


def test_a_trick_that_declares_to_wait_in_the_model_is_shown_and_trains(tmp_path: Path) -> None:
    given = hooked(tmp_path, "it must, in the model")
    assert "not tried: regularizers.hooked waits for the device" in pegboard.plan(given).explain()
    assert pegboard.train(given, root=tmp_path, quiet=True).history


HOOKED = '''
from dataclasses import dataclass
from pegboard import Regularizer, Trick, hookimpl

@dataclass(frozen=True)
class Hooked:
    """Hooks something into a layer."""

def scaled(module, inputs, output):
    return output * output.mean().item()

class HookedTrick(Trick):
    def edit_model(self, model):
        model.head.register_forward_hook(scaled)

@hookimpl
def pegboard_regularizers():
    stages = {"edit_model": "reparametrize"}
    return [Regularizer("hooked", Hooked, lambda c, x: HookedTrick(), stages=stages, synchronizes=SAID)]
'''


def reading(folder: Path, kind: str, read: str) -> Config:
    file = folder / "reading.py"
    file.write_text(BUILT.replace("READ", read if kind == "model" else "0").replace("TOLD", read))
    local = {"local": [*plain()["plugins"]["local"], str(file)]}
    named = {"model": {"name": "reading"}} if kind == "model" else {"regularizers": {"told": {}}}
    return plain(plugins=local, **named)


READ = ["[r.item() for r in RATES]", "RATES.tolist()", "RATES[RATES > 0]"]


@pytest.mark.parametrize("read", READ)
def test_a_model_may_read_numbers_while_it_is_built(read: str, tmp_path: Path) -> None:
    given = reading(tmp_path, "model", read.replace("RATES", "torch.linspace(0, 0.1, 3)"))
    assert "floating point operations" in pegboard.plan(given).explain()


@pytest.mark.parametrize("read", READ)
def test_a_trick_that_reads_numbers_of_the_device_while_it_is_built_is_named(
    read: str, tmp_path: Path
) -> None:
    read = read.replace("RATES", "torch.linspace(0, 0.1, 3, device=context.device)")
    first, where, remedy = complaint(reading(tmp_path, "regularizer", read)).splitlines()
    assert first.startswith("regularizers.told (told of ") and "cannot be built on the meta device" in first
    assert "reading.py:20: rates = " in where and 'device="cpu"' in remedy


BUILT = '''
from dataclasses import dataclass
from pegboard import Model, Regularizer, Trick, hookimpl

@dataclass(frozen=True)
class Reading:
    """Reads numbers."""
def build(config, context):
    import torch
    rates = READ
    size = context.spec.inputs[0].example(1, "meta").flatten(1).shape[1]
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(size, context.outputs))

@hookimpl
def pegboard_models():
    return [Model("reading", Reading, build)]
class Told(Trick):
    def __init__(self, config, context):
        import torch
        rates = TOLD
    def edit_loss(self, loss, output, batch):
        return loss

@hookimpl
def pegboard_regularizers():
    return [Regularizer("told", Reading, Told, stages={"edit_loss": "term"})]
'''


def test_a_mistake_of_another_kind_stays_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="same reduction dim"):
        pegboard.plan(seeded("edit_loss", "wrong shapes")).explain(strict=True)


def test_an_operation_without_a_meta_kernel_is_named() -> None:
    text = complaint(seeded("edit_loss", "no kernel"))
    assert text.startswith("regularizers.seed (in_edit_loss of ") and "cannot run on the meta device" in text
    assert "register_fake" in text


def test_the_plan_of_a_config_declares_what_its_file_uses() -> None:
    """The config that shows an optimizer which waits is among those that are tried."""
    names = {yaml.safe_load(path.read_text()).get("optimizer", {}).get("name") for path in FILES}
    assert names & {entry.part.name for entry in DECLARED}
