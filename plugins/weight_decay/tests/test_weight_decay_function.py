"""The functions against their definitions, and which parameters decay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from pegboard_weight_decay.functional import decay_, decayed, kinds, l2_term, split_groups
from torch import Tensor, nn


@pytest.mark.catalogue("S4-145")
@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1, dtype=torch.float64)])
def test_decay_multiplies_by_one_minus_rate_times_strength(lr: float | Tensor) -> None:
    params = [torch.randn(3, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)]
    expected = [(1 - 0.1 * 0.5) * p for p in params]
    decay_(params, lr, 0.5)
    assert all(torch.equal(p, e) for p, e in zip(params, expected, strict=True))


@pytest.mark.catalogue("S3-037", "S4-146")
def test_the_gradient_of_the_term_is_the_strength_times_the_weights_exactly() -> None:
    params = [torch.randn(3, 4).requires_grad_(), torch.randn(2, 2, 2).requires_grad_()]
    term = l2_term(params, 0.3)
    assert term.item() == pytest.approx(0.15 * sum(p.square().sum().item() for p in params), rel=1e-6)
    term.backward()
    assert all(torch.equal(p.grad, 0.3 * p) for p in params)  # type: ignore[arg-type]


def test_the_term_is_differentiable_at_zero_and_on_the_meta_device() -> None:
    params = [torch.zeros(3, 4, requires_grad=True)]
    l2_term(params, 0.3).backward()
    assert torch.equal(params[0].grad, torch.zeros(3, 4))  # type: ignore[arg-type]
    l2_term([torch.zeros(3, 4, device="meta", requires_grad=True)], 0.3).backward()


class Zoo(nn.Module):
    """One of each layer whose parameters have a kind of their own, under names that say little."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.PReLU(4), nn.Conv2d(4, 4, 1, bias=False)
        )
        self.b = nn.ModuleList([nn.GroupNorm(2, 4), nn.LayerNorm([3, 5]), nn.RMSNorm(6)])
        self.recurrent = nn.LSTM(3, 4)
        self.block = nn.TransformerEncoderLayer(8, 2, 16)
        self.embedding = nn.Embedding(7, 8)
        self.position_embed = nn.Parameter(torch.zeros(1, 5, 8))
        self.emb = nn.Embedding(7, 8)
        self.wte = nn.EmbeddingBag(7, 8)
        self.words, self.segments = nn.Embedding(7, 8), nn.Embedding(2, 8)
        self.positions = nn.Embedding(5, 8)
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(1, 8, 4)})
        self.member = nn.Linear(4, 4)  # "emb" inside a word is none
        self.scale = nn.Parameter(torch.ones(()))
        self.gain = nn.Parameter(torch.ones(8))


NORMS = (nn.BatchNorm2d, nn.PReLU, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def kinds_by_module(model: nn.Module) -> Iterator[tuple[str, str]]:
    """The same answer from the types of the modules, which the function does not see."""
    for prefix, module in model.named_modules():
        for name, _ in module.named_parameters(prefix, recurse=False):
            last = name.rpartition(".")[2]
            if isinstance(module, NORMS) or last in ("scale", "gain"):
                yield name, "norm"
            elif isinstance(module, (nn.Embedding, nn.EmbeddingBag)) or last == "position_embed":
                yield name, "embedding"
            else:
                yield name, "bias" if "bias" in last else "weight"


def test_kinds_agree_with_the_types_of_the_modules() -> None:
    model = Zoo()
    found = kinds(model.named_parameters())
    assert found == dict(kinds_by_module(model))
    assert found["block.self_attn.in_proj_bias"] == found["recurrent.bias_ih_l0"] == "bias"


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Linear(3, 2), ["weight", "bias"]),
        (nn.BatchNorm1d(3), ["norm", "norm"]),
        (nn.LayerNorm(3), ["norm"] * 2),
    ],
)
def test_kinds_of_a_module_that_is_the_whole_model(module: nn.Module, expected: list[str]) -> None:
    assert list(kinds(module.named_parameters()).values()) == expected


@pytest.mark.catalogue("T054", "S4-146")
def test_biases_and_normalisation_decay_only_when_asked() -> None:
    model = Zoo()
    everything = {name for name, _ in model.named_parameters()}
    named = kinds(model.named_parameters())
    of = {
        kind: {n for n, k in named.items() if k == kind} for kind in ("weight", "bias", "norm", "embedding")
    }
    assert decayed(model.named_parameters()) == of["weight"] | of["embedding"]
    assert decayed(model.named_parameters(), embeddings=False) == of["weight"]
    assert decayed(model.named_parameters(), bias=True) == everything - of["norm"]
    assert decayed(model.named_parameters(), norm=True) == everything - of["bias"]
    assert decayed(model.named_parameters(), bias=True, norm=True) == everything


def test_groups_are_split_in_two_and_keep_what_else_they_say() -> None:
    a, b, c, d = (torch.zeros(1) for _ in range(4))
    groups = [
        {"params": [a, b], "names": ["a", "b"], "lr": 0.5},
        {"params": [c], "names": ["c"]},
        {"params": [d], "names": ["d"], "decoupled_decay": 0.25},
    ]
    before = [dict(g) for g in groups]
    found = split_groups(groups, {"b", "c", "d"}, 0.5)
    assert [(g["names"], g.get("lr"), g.get("decoupled_decay")) for g in found] == [
        (["b"], 0.5, 0.5),
        (["a"], 0.5, None),
        (["c"], None, 0.5),
        (["d"], None, 0.75),
    ]
    assert [p for g in found for p in g["params"]] == [b, a, c, d]
    assert groups == before  # untouched
