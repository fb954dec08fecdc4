"""The vision transformer beside those of others."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pegboard
import pytest
import torch
from pegboard import Classes, Context, DataSpec, Image
from pegboard.config.errors import ConfigError
from pegboard_transformer import Vit as Config
from pegboard_transformer import build_vit
from pegboard_transformer.encoder import Vit
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("lean")

SMALL = {"patch": 4, "layers": 2, "width": 24, "heads": 3, "feed": 40}


def built(size: tuple[int, int] = (8, 12), classes: int = 5, **fields: object) -> Vit:
    spec = DataSpec((Image(3, *size),), Classes(classes))
    model = build_vit(Config(**{**SMALL, **fields}), Context(spec=spec, outputs=classes))  # type: ignore[arg-type]
    assert isinstance(model, Vit)
    return model.eval()


class TimmBlock(nn.Module):
    def __init__(self, width: int, heads: int, feed: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, feed), "fc2": nn.Linear(feed, width)})

    def forward(self, x: Tensor) -> Tensor:
        rows, places, width = x.shape
        q, k, v = (
            self.attn["qkv"](self.norm1(x)).reshape(rows, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        weights = (q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)).softmax(-1)
        x = x + self.attn["proj"]((weights @ v).transpose(1, 2).reshape(rows, places, width))
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))


class TimmVit(nn.Module):
    """The published architecture, with the names of timm's `VisionTransformer`."""

    def __init__(
        self, side: tuple[int, int], patch: int, layers: int, width: int, heads: int, feed: int
    ) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        count = side[0] // patch * (side[1] // patch)
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + count, width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, patch)})
        self.blocks = nn.Sequential(*(TimmBlock(width, heads, feed) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, 5)
        for p in self.parameters():
            p.data += 0.1 * torch.randn_like(p)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed["proj"](x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), 1) + self.pos_embed
        answer: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return answer


TORCHVISION = {
    r"cls_token": "class_token",
    r"pos_embed": "encoder.pos_embedding",
    r"patch_embed\.proj\.(.*)": r"conv_proj.\1",
    r"blocks\.(\d)\.norm(\d)\.(.*)": r"encoder.layers.encoder_layer_\1.ln_\2.\3",
    r"blocks\.(\d)\.attn\.qkv\.(.*)": r"encoder.layers.encoder_layer_\1.self_attention.in_proj_\2",
    r"blocks\.(\d)\.attn\.proj\.(.*)": r"encoder.layers.encoder_layer_\1.self_attention.out_proj.\2",
    r"blocks\.(\d)\.mlp\.fc1\.(.*)": r"encoder.layers.encoder_layer_\1.mlp.0.\2",
    r"blocks\.(\d)\.mlp\.fc2\.(.*)": r"encoder.layers.encoder_layer_\1.mlp.3.\2",
    r"norm\.(.*)": r"encoder.ln.\1",
    r"head\.(.*)": r"heads.head.\1",
}
HUGGING_FACE = {
    r"cls_token": "vit.embeddings.cls_token",
    r"pos_embed": "vit.embeddings.position_embeddings",
    r"patch_embed\.proj\.(.*)": r"vit.embeddings.patch_embeddings.projection.\1",
    r"blocks\.(\d)\.norm1\.(.*)": r"vit.encoder.layer.\1.layernorm_before.\2",
    r"blocks\.(\d)\.norm2\.(.*)": r"vit.encoder.layer.\1.layernorm_after.\2",
    r"blocks\.(\d)\.attn\.qkv\.(.*)": r"vit.encoder.layer.\1.attention.attention.PART.\2",
    r"blocks\.(\d)\.attn\.proj\.(.*)": r"vit.encoder.layer.\1.attention.output.dense.\2",
    r"blocks\.(\d)\.mlp\.fc1\.(.*)": r"vit.encoder.layer.\1.intermediate.dense.\2",
    r"blocks\.(\d)\.mlp\.fc2\.(.*)": r"vit.encoder.layer.\1.output.dense.\2",
    r"norm\.(.*)": r"vit.layernorm.\1",
    r"head\.(.*)": r"classifier.\1",
}


def called(state: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """The state of `TimmVit` in the names of others."""
    result = {}
    for name, tensor in state.items():
        [new] = [re.sub(f"^{old}$", to, name) for old, to in names.items() if re.fullmatch(old, name)] or [
            name
        ]
        if "PART" in new:
            for part, rows in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                result[new.replace("PART", part)] = rows
        else:
            result[new] = tensor
    return result


@pytest.mark.parametrize("names", [{}, TORCHVISION, HUGGING_FACE], ids=["timm", "torchvision", "hf"])
def test_outputs_agree_with_those_of_another_implementation(names: dict[str, str]) -> None:
    reference, model = TimmVit((8, 12), **SMALL), built()
    model.load_state_dict(model.adopt(called(reference.state_dict(), names)))
    x = torch.randn(3, 3, 8, 12)
    torch.testing.assert_close(model(x), reference(x), atol=1e-5, rtol=1e-5)
    assert model.adopt(model.state_dict()).keys() == model.state_dict().keys()


def test_weights_of_hugging_face_are_loaded_from_a_file_and_outputs_agree(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, num_channels=1, hidden_size=24, num_hidden_layers=2, num_labels=10,
        num_attention_heads=3, intermediate_size=40, layer_norm_eps=1e-6,
    )  # fmt: skip
    reference = transformers.ViTForImageClassification(config).eval()
    for p in reference.parameters():
        p.data += 0.1 * torch.randn_like(p)
    save_file(reference.state_dict(), tmp_path / "vit.safetensors")
    run = pegboard.train(
        {
            "data": {"name": "digits", "batch_size": 64},
            "model": {"name": "vit", **SMALL, "weights": str(tmp_path / "vit.safetensors")},
            "optimizer": {"name": "sgd", "lr": 1e-30},
            "trainer": {"steps": 1, "device": "cpu"},
        },
        root=tmp_path,
        quiet=True,
    )
    x = torch.randn(3, 1, 8, 8)
    assert sum(p.numel() for p in run.model.parameters()) == sum(p.numel() for p in reference.parameters())
    torch.testing.assert_close(run.model(x), reference(x).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.catalogue("S4-112")
def test_the_published_size_reads_224_by_224_as_197_places() -> None:
    with torch.device("meta"):
        model = built((224, 224), 1000, patch=16, layers=12, width=768, heads=12, feed=None)
        assert sum(p.numel() for p in model.parameters()) == 86_567_656
        assert model.read(torch.zeros(1, 3, 224, 224)).shape == (1, 197, 768)
    assert built((32, 32), patch=16).read(torch.zeros(1, 3, 32, 32)).shape == (1, 5, 24)


@pytest.mark.catalogue("S4-112")
def test_patches_are_cut_out_and_mapped_row_by_row() -> None:
    patches, x = built().embed.read, torch.randn(2, 3, 8, 12)
    cut = F.unfold(x, 4, stride=4).transpose(1, 2)  # (rows, patches, channels * side * side)
    plain = F.linear(cut, patches.project.weight.flatten(1), patches.project.bias)  # type: ignore[union-attr]
    torch.testing.assert_close(patches(x), plain, atol=1e-5, rtol=0)


@pytest.mark.catalogue("S4-112")
@pytest.mark.parametrize("pool", ["token", "mean"])
def test_patches_may_be_shuffled_with_their_positions(pool: str) -> None:
    model, x = built(pool=pool), torch.randn(2, 3, 8, 12)
    for p in model.parameters():
        p.data += 0.2 * torch.randn_like(p)
    y, order = model(x), torch.randperm(6)
    cut = F.unfold(x, 4, stride=4)
    mixed = F.fold(cut[:, :, order], (8, 12), 4, stride=4)
    assert (model(mixed) - y).abs().max() > 1e-3
    weight, first = model.embed.positions.weight, int(pool == "token")  # type: ignore[union-attr]
    weight.data[first:] = weight.data[first:][order]  # type: ignore[index, operator]
    torch.testing.assert_close(model(mixed), y, atol=1e-5, rtol=0)


@pytest.mark.catalogue("S4-112")
def test_a_picture_that_patches_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="patches of side 5 do not divide a picture of 8 by 12"):
        built(patch=5)
    with pytest.raises(ConfigError, match="(?s)side 3 do not divide a picture of 8 by 8.*one of 1, 2, 4, 8"):
        pegboard.plan({"data": "digits", "model": {"name": "vit", "patch": 3}, "optimizer": "adam"})


def test_it_learns_digits(tmp_path: Path) -> None:
    run = pegboard.train(
        {
            "data": {"name": "digits", "batch_size": 64},
            "model": {"name": "vit", "patch": 4, "layers": 1, "width": 32, "heads": 2},
            "optimizer": {"name": "adamw", "lr": 0.01},
            "trainer": {"epochs": 6},
        },
        root=tmp_path,
        quiet=True,
    )
    assert run.figures["test/accuracy"] > 0.85
