"""What CUDA has no deterministic kernel for is found on any machine, over the whole registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.preview import determinism
from pegboard.preview.determinism import refuses, scanning
from pegboard.registry.discovery import Entry
from pegboard.testing.checks.devices import refused, variants
from pegboard.testing.runs import plugins_once
from proofs import Config, entries, name_of, partner_data, plain, subject
from torch import Tensor
from torch.nn import functional

PICTURES, SOLIDS = torch.randn(2, 3, 6, 6), torch.randn(2, 3, 6, 6, 6)
ONES, FIRST = torch.ones(3), torch.tensor([0, 0, 1])


def steep(x: Tensor) -> Tensor:
    """A copy that a gradient is taken of."""
    return x.clone().requires_grad_()


def grids(*shape: int) -> Tensor:
    return torch.zeros(2, *shape)


def counted(x: Tensor) -> Tensor:
    return torch.nn.functional.max_pool2d(x, 2, return_indices=True)[1]


def ctc() -> Tensor:
    symbols = torch.randint(1, 14, (3, 30), generator=torch.Generator().manual_seed(0))
    return functional.ctc_loss(steep(torch.zeros(50, 3, 15)), symbols, [50] * 3, [30] * 3)


def bag(mode: str) -> Tensor:
    return functional.embedding_bag(torch.zeros(4, 3).long(), steep(torch.ones(4, 3)), mode=mode)


# What the documentation lists, by the name it has there.
REFUSED: dict[str, Callable[[], Any]] = {
    "torch.nn.AvgPool3d": lambda: functional.avg_pool3d(steep(SOLIDS), 2),
    "torch.nn.AdaptiveAvgPool2d": lambda: functional.adaptive_avg_pool2d(steep(PICTURES), 2),
    "torch.nn.AdaptiveAvgPool2d in 1d": lambda: functional.adaptive_avg_pool1d(steep(PICTURES[0]), 2),
    "torch.nn.AdaptiveAvgPool3d": lambda: functional.adaptive_avg_pool3d(steep(SOLIDS), 2),
    "torch.nn.AdaptiveMaxPool2d": lambda: functional.adaptive_max_pool2d(steep(PICTURES), 2),
    "torch.nn.FractionalMaxPool2d": lambda: functional.fractional_max_pool2d(steep(PICTURES), 2, 3),
    "torch.nn.FractionalMaxPool3d": lambda: functional.fractional_max_pool3d(steep(SOLIDS), 2, 3),
    "torch.nn.MaxUnpool1d": lambda: functional.max_unpool1d(
        torch.ones(1, 1, 3), torch.zeros(1, 1, 3).long(), 2
    ),
    "torch.nn.MaxUnpool2d": lambda: functional.max_unpool2d(PICTURES[..., :3, :3], counted(PICTURES), 2),
    "torch.nn.MaxUnpool3d": lambda: functional.max_unpool3d(
        torch.ones(1, 1, 1, 1, 1), torch.zeros(1, 1, 1, 1, 1).long(), 2
    ),
    "torch.nn.functional.interpolate of mode linear": lambda: functional.interpolate(
        steep(PICTURES[0]), size=9, mode="linear"
    ),
    "torch.nn.functional.interpolate of mode bicubic": lambda: functional.interpolate(
        steep(PICTURES), size=9, mode="bicubic"
    ),
    "torch.nn.functional.interpolate of mode bilinear": lambda: torch._C._nn.upsample_bilinear2d(
        steep(PICTURES), (9, 9), False, None
    ),
    "torch.nn.functional.interpolate of mode trilinear": lambda: torch._C._nn.upsample_trilinear3d(
        steep(SOLIDS), (9, 9, 9), False, None
    ),
    "torch.nn.ReflectionPad1d": lambda: functional.pad(steep(PICTURES[0]), (1, 1), mode="reflect"),
    "torch.nn.ReflectionPad2d": lambda: functional.pad(steep(PICTURES), (1, 1, 1, 1), mode="reflect"),
    "torch.nn.ReflectionPad3d": lambda: functional.pad(steep(SOLIDS), (1,) * 6, mode="reflect"),
    "torch.nn.ReplicationPad2d": lambda: torch._C._nn.replication_pad2d(steep(PICTURES), (1, 1, 1, 1)),
    "torch.nn.NLLLoss": lambda: functional.nll_loss(PICTURES, torch.zeros(2, 6, 6).long()),
    "torch.nn.NLLLoss of texts": lambda: functional.cross_entropy(PICTURES[0], torch.zeros(3, 6).long()),
    "torch.nn.CTCLoss": ctc,
    "torch.nn.EmbeddingBag of mode max": lambda: bag("max"),
    "torch.Tensor.put_": lambda: ONES.clone().put_(FIRST, ONES),
    "torch.Tensor.put_ in a gradient": lambda: steep(ONES).take(FIRST).sum().backward(),
    "torch.histc": lambda: torch.histc(PICTURES, 4, 0, 1),
    "torch.bincount": lambda: torch.bincount(FIRST, ONES),
    "torch.median": lambda: PICTURES.median(0),
    "torch.nanmedian": lambda: PICTURES.nanmedian(0),
    "torch.nn.functional.grid_sample": lambda: functional.grid_sample(
        steep(PICTURES), grids(4, 4, 2), align_corners=False
    ),
    "torch.nn.functional.grid_sample of solids": lambda: functional.grid_sample(
        steep(SOLIDS), grids(4, 4, 4, 3), align_corners=False
    ),
    "torch.cumsum": lambda: ONES.cumsum(0),
    "torch.cumsum in place": lambda: ONES.clone().cumsum_(0),
    "torch.cumsum as floats": lambda: FIRST.cumsum(0, dtype=torch.float64),
    "torch.cumsum in a gradient": lambda: steep(ONES).cumprod(0).sum().backward(),
    "torch.Tensor.scatter_reduce": lambda: ONES.scatter_reduce(0, FIRST, ONES, "prod"),
    "torch.Tensor.resize_": lambda: torch.quantize_per_tensor(ONES, 1.0, 0, torch.quint8).resize_(2),
    "torch.kthvalue": lambda: PICTURES.kthvalue(1),
    "torch.Tensor.index_reduce": lambda: ONES.index_reduce(0, FIRST, ONES, "prod"),
    "torch.nn.AvgPool3d in torch.func": lambda: torch.func.grad(lambda x: functional.avg_pool3d(x, 2).sum())(
        SOLIDS
    ),
}
# Like them, and fine.
FINE: dict[str, Callable[[], Any]] = {
    "a pool that no gradient is taken of": lambda: functional.avg_pool3d(SOLIDS, 2),
    "a pool under no_grad": lambda: torch.no_grad()(functional.avg_pool3d)(steep(SOLIDS), 2),
    "pools of pictures": lambda: functional.avg_pool2d(steep(PICTURES), 2).sum().backward(),
    "the mean of all places": lambda: functional.adaptive_avg_pool2d(steep(PICTURES), 1).sum().backward(),
    "the maximum of solids": lambda: functional.max_pool3d(steep(SOLIDS), 2).sum().backward(),
    "nearest": lambda: functional.interpolate(steep(PICTURES), size=9).sum().backward(),
    "bilinear": lambda: functional.interpolate(steep(PICTURES), size=9, mode="bilinear").sum().backward(),
    "trilinear": lambda: functional.interpolate(steep(SOLIDS), size=9, mode="trilinear").sum().backward(),
    "replicate": lambda: functional.pad(steep(PICTURES), (1, 1, 1, 1), mode="replicate").sum().backward(),
    "cross-entropy": lambda: functional.cross_entropy(steep(torch.ones(3, 2)), FIRST).backward(),
    "losses of places": lambda: functional.nll_loss(PICTURES, torch.zeros(2, 6, 6).long(), reduction="none"),
    "a mean of embeddings": lambda: bag("mean").sum().backward(),
    "counts": lambda: torch.bincount(FIRST),
    "the median itself": lambda: PICTURES.median(),
    "sums of whole numbers": lambda: FIRST.cumsum(0),
    "sums of a mask": lambda: (FIRST > 0).cumsum(0),
    "scattered sums": lambda: ONES.scatter_reduce(0, FIRST, ONES, "sum"),
    "rows added": lambda: ONES.index_add(0, FIRST, ONES),
    "gathered": lambda: steep(ONES).gather(0, FIRST).sum().backward(),
    "sorted": lambda: steep(ONES).sort().values.sum().backward(),
    "on the CPU": lambda: (ONES.cpu() * 2).sigmoid().cumsum(0),
    "moved to the CPU": lambda: ONES.to("cpu", torch.float64).cumsum(0),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # what is in beta, or will be gone
@pytest.mark.parametrize("name", REFUSED)
def test_every_operation_without_a_deterministic_kernel_is_found(name: str) -> None:
    with scanning() as found:
        REFUSED[name]()
    (one,) = found
    said = re.split(" in | as | of texts| of solids", name)[0].replace("Unpool1d", "Unpool2d")
    assert said in one.operation
    assert Path(one.where.split(":")[0]).name == Path(__file__).name


@pytest.mark.parametrize("name", FINE)
def test_what_has_a_deterministic_kernel_is_let_pass(name: str) -> None:
    with scanning() as found:
        FINE[name]()
    assert not list(found)


def test_all_that_torch_documents_is_known() -> None:
    """A line that another torch adds fails here."""
    said = torch.use_deterministic_algorithms.__doc__ or ""
    listed = said.split("`RuntimeError` when ``mode=True``:")[1].split("In addition")[0]
    names = set(re.findall(r"\* :\w+:`([\w.]+)`", listed))
    known = {*determinism.DIFFERENTIATED.values(), *determinism.CALLED.values(), "torch.nn.MaxUnpool1d"}
    assert len(names) > 20 and not names - known


def test_what_was_copied_to_the_host_stays_there() -> None:
    with scanning() as found:
        kept = ONES.cpu()
        ONES.add(0).cumsum(0)  # the original is still on the device
        (kept + 1).cumsum(0)
    assert len(list(found)) == 1


@pytest.mark.parametrize(("device", "matters"), [("cpu", False), ("cuda:1", True), ("mps", False)])
def test_it_matters_where_torch_refuses(device: str, matters: bool) -> None:
    assert refuses(device) == matters


PART = '''
from dataclasses import dataclass
from pegboard import Model, Objective, ObjectivePart, Regularizer, Trick, Values, hookimpl

@dataclass(frozen=True)
class Seeded:
    """Calls what has no deterministic kernel."""

class SeededTrick(Trick):
    def edit_loss(self, loss, output, batch):
        return loss + 0 * output.cumsum(0).sum()

class Spread:
    def to(self, device): return self
    def reset(self): self.seen = []
    def update(self, output, target): self.seen = [output.float().flatten()]
    def compute(self): return self.seen[0].median(0).values

class SeededLoss(Objective):
    def loss(self, output, target, weight=None):
        return output.square().mean()
    def metrics(self):
        return {"spread": Spread()}

@hookimpl
def pegboard_regularizers():
    yield Regularizer("seeded", Seeded, lambda c, x: SeededTrick(), stages={"edit_loss": "term"}SAID)

@hookimpl
def pegboard_objectives():
    yield ObjectivePart("seeded", Seeded, lambda c, x: SeededLoss(), outputs=lambda c, t: 3)
'''


def seeded(folder: Path, said: str = "", device: str = "cuda", **nodes: Any) -> Config:
    file = folder / "seeded_part.py"
    file.write_text(PART.replace("SAID", said))
    local = {"local": [*plain()["plugins"]["local"], str(file)]}
    return plain(plugins=local, trainer={"steps": 2, "device": device}, **nodes)


def complaint(given: Config) -> str:
    with pytest.raises(pegboard.PegboardError) as told:
        pegboard.plan(given).explain()
    return str(told.value)


def test_explain_names_part_operation_and_line_before_a_run_on_cuda(tmp_path: Path) -> None:
    first, part, line, remedy = complaint(seeded(tmp_path, regularizers={"seeded": {}})).splitlines()
    assert first == "trainer.deterministic asks for what cuda has no deterministic kernel for:"
    assert part.startswith("regularizers.seeded (seeded of ") and "torch.cumsum of floating point" in part
    assert re.search(r"seeded_part\.py:11: return loss \+ 0 \* output\.cumsum", line)
    assert "trainer.deterministic=false" in remedy


def test_a_metric_is_tried_too(tmp_path: Path) -> None:
    text = complaint(seeded(tmp_path, objective={"name": "seeded"}))
    assert re.search(r"objective \(seeded of .*\) calls torch.median with indices\n  .*seeded_part.py:", text)


def test_without_determinism_explain_says_that_it_does_not_repeat(tmp_path: Path) -> None:
    given = seeded(tmp_path, regularizers={"seeded": {}})
    given["trainer"]["deterministic"] = False
    text = pegboard.plan(given).explain()
    assert "not the same twice, for cuda has no deterministic kernel\n  regularizers.seeded" in text


def test_the_reason_that_a_record_gives_is_told(tmp_path: Path) -> None:
    given = seeded(tmp_path, ', nondeterministic="it sums as it goes"', regularizers={"seeded": {}})
    assert "calls torch.cumsum of floating point numbers: it sums as it goes\n" in complaint(given)


def test_on_the_cpu_nothing_is_refused(tmp_path: Path) -> None:
    given = seeded(tmp_path, device="cpu", regularizers={"seeded": {}}, objective={"name": "seeded"})
    assert "deterministic kernel" not in pegboard.plan(given).explain()


def test_a_plan_for_another_machine_is_explained_on_this_one() -> None:
    assert not torch.cuda.is_available()
    text = pegboard.plan(plain(trainer={"steps": 2, "device": "cuda:3"})).explain()
    assert "on cuda:3" in text


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shelf").resolve()


def given_data(entry: Entry, shelf: Path) -> Iterator[Config]:
    """The config of a part beside all data that it may meet."""
    own = subject(entry, shelf)
    yield own.config
    if entry.part.kind in ("model", "objective"):
        yield from ({**own.config, "data": node} for node in partner_data())


KINDS = ("model", "regularizer", "objective")


@pytest.mark.sweep
@pytest.mark.parametrize("entry", [e for kind in KINDS for e in entries(kind)], ids=name_of)
def test_no_choice_of_a_part_calls_what_cuda_refuses(entry: Entry, shelf: Path) -> None:
    """On every kind of data, and with every choice that its fields have."""
    own, tried, found = subject(entry, shelf), 0, []
    with plugins_once():
        for beside in given_data(entry, shelf):
            for config in (beside, *variants(own, beside)):
                try:
                    found += refused(own, config)
                except (pegboard.PegboardError, RuntimeError, ValueError, IndexError):  # they do not fit
                    continue
                tried += 1
    assert tried and not found


WAITS = {
    "optimizer.name=radam": "optimizer (radam), whose step is not fused",
    "optimizer.kernels=plain": "optimizer (adam), whose step is not fused",
    "trainer.nonfinite=skip": "trainer.nonfinite=skip",
    "trainer.precision=fp16 regularizers.ema.decay=0.9": "trainer.precision=fp16 with regularizers.ema",
    "trainer.precision=fp16 regularizers.weight_decay.value=0.1": "trainer.precision=fp16 with weight decay",
    "trainer.precision=fp16": "",
    "trainer.compile=step trainer.nonfinite=skip": "",
    "regularizers.ema.decay=0.9 regularizers.weight_decay.value=0.1": "",
    "trainer.device=cpu trainer.nonfinite=skip": "",
}


@pytest.mark.parametrize("given", WAITS)
def test_explain_says_where_the_core_itself_waits_on_cuda(given: str, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(
        "data: {name: iris}\nmodel: {name: linear}\noptimizer: {name: adam}\ntrainer: {device: cuda}\n"
    )
    text = pegboard.plan(file, *given.split()).explain()
    said = text.partition("waits       on cuda in every eager step: ")[2]
    assert said.startswith(WAITS[given]) and bool(said) == bool(WAITS[given])
