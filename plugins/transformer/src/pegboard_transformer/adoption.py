"""Names of other implementations' weights to those of the models here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Rules = Sequence[tuple[str, str]]  # a pattern for a whole name, and the name with what it caught

_PAIR = r"(weight|bias)"


def rename(state: Mapping[str, Tensor], rules: Rules) -> dict[str, Tensor]:
    """The state with each name as the first rule that matches it whole gives it; others stay."""

    def named(name: str) -> str:
        for pattern, new in rules:
            if found := re.fullmatch(pattern, name):
                return found.expand(new)
        return name

    return {named(name): tensor for name, tensor in state.items()}


def join(state: Mapping[str, Tensor], pattern: str, parts: Sequence[str], new: str) -> dict[str, Tensor]:
    """The state in which tensors that differ in what the group `part` catches are one, in the given order."""
    groups: dict[str, dict[str, str]] = {}
    for name in state:
        if found := re.fullmatch(pattern, name):
            groups.setdefault(found.expand(new), {})[found["part"]] = name
    whole = {new: names for new, names in groups.items() if set(names) == set(parts)}
    taken = {name for names in whole.values() for name in names.values()}
    rest = {name: tensor for name, tensor in state.items() if name not in taken}
    return rest | {new: torch.cat([state[names[p]] for p in parts]) for new, names in whole.items()}


def fused(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with one map to queries, keys and values in place of three that stand side by side."""
    pattern = r"(?P<path>(?:.+\.)?)(?P<part>query|key|value)\.(?P<end>weight|bias)"
    return join(state, pattern, ("query", "key", "value"), r"\g<path>qkv.\g<end>")


def separate(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with three maps in place of each one of `fused`."""
    result: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if found := re.fullmatch(rf"((?:.+\.)?)qkv\.{_PAIR}", name):
            for part, rows in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                result[f"{found[1]}{part}.{found[2]}"] = rows
        else:
            result[name] = tensor
    return result


def torch_names(state: Mapping[str, Tensor], stack: str, source: str = "") -> dict[str, Tensor]:
    """Names of `nn.TransformerEncoder` and `nn.TransformerDecoder` (their own, or after `source`)."""
    at, to = rf"{source}layers\.(\d+)\.", rf"{stack}blocks.\1."
    split = dict(state)
    for name, tensor in state.items():
        if found := re.fullmatch(rf"{at}multihead_attn\.in_proj_{_PAIR}", name):
            width = len(tensor) // 3
            del split[name]
            cross = found.expand(rf"{to}cross.")
            split |= {f"{cross}query.{found[2]}": tensor[:width], f"{cross}kv.{found[2]}": tensor[width:]}
    third = any(re.match(rf"{at}norm3", name) for name in state)  # a decoder's, whose second is another
    return rename(
        split,
        [
            (rf"{at}self_attn\.in_proj_{_PAIR}", rf"{to}attention.qkv.\2"),
            (rf"{at}self_attn\.out_proj\.{_PAIR}", rf"{to}attention.out.\2"),
            (rf"{at}multihead_attn\.out_proj\.{_PAIR}", rf"{to}cross.out.\2"),
            (rf"{at}linear1\.{_PAIR}", rf"{to}feed.up.\2"),
            (rf"{at}linear2\.{_PAIR}", rf"{to}feed.down.\2"),
            (rf"{at}norm1\.{_PAIR}", rf"{to}attention_norm.\2"),
            (rf"{at}norm2\.{_PAIR}", rf"{to}{'cross' if third else 'feed'}_norm.\2"),
            (rf"{at}norm3\.{_PAIR}", rf"{to}feed_norm.\2"),
            (rf"{source}norm\.{_PAIR}", rf"{stack}norm.\1"),
        ],
    )


# Of timm, torchvision and Hugging Face, in this order; the number of a block is \1, weight or bias \2.
_VIT_BLOCKS = (
    (r"blocks\.(\d+)\.", {
        "norm1": "attention_norm", r"attn\.qkv": "attention.qkv", r"attn\.proj": "attention.out",
        "norm2": "feed_norm", r"mlp\.fc1": "feed.up", r"mlp\.fc2": "feed.down",
    }),
    (r"encoder\.layers\.encoder_layer_(\d+)\.", {
        "ln_1": "attention_norm", r"self_attention\.out_proj": "attention.out", "ln_2": "feed_norm",
        r"mlp\.(?:0|linear_1)": "feed.up", r"mlp\.(?:3|linear_2)": "feed.down",
    }),
    (r"(?:vit\.)?(?:encoder\.layer|layers)\.(\d+)\.", {  # its names until version 5, and since
        r"attention\.(?:attention\.query|q_proj)": "attention.query",
        r"attention\.(?:attention\.key|k_proj)": "attention.key",
        r"attention\.(?:attention\.value|v_proj)": "attention.value",
        r"attention\.(?:output\.dense|o_proj)": "attention.out",
        "layernorm_before": "attention_norm", "layernorm_after": "feed_norm",
        r"intermediate\.dense|mlp\.fc1": "feed.up", r"output\.dense|mlp\.fc2": "feed.down",
    }),
)  # fmt: skip
_VIT_ENDS: Rules = (
    (r"cls_token|class_token|(?:vit\.)?embeddings\.cls_token", "embed.token"),
    (r"pos_embed|encoder\.pos_embedding|(?:vit\.)?embeddings\.position_embeddings", "embed.positions.weight"),
    (
        rf"(?:patch_embed\.proj|conv_proj|(?:vit\.)?embeddings\.patch_embeddings\.projection)\.{_PAIR}",
        r"embed.read.project.\1",
    ),
    (rf"(?:norm|encoder\.ln|(?:vit\.)?layernorm)\.{_PAIR}", r"stack.norm.\1"),
    (rf"(?:heads\.head|classifier)\.{_PAIR}", r"head.\1"),
)


def vit_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names of a vision transformer of timm, torchvision or Hugging Face."""
    rules = [
        (rf"{start}(?:{name})\.{_PAIR}", rf"stack.blocks.\1.{new}.\2")
        for start, names in _VIT_BLOCKS
        for name, new in names.items()
    ]
    torchvision = rf"{_VIT_BLOCKS[1][0]}self_attention\.in_proj_{_PAIR}"
    rules.append((torchvision, r"stack.blocks.\1.attention.qkv.\2"))
    named = fused(rename(state, [*rules, *_VIT_ENDS]))
    for name, axes in (("embed.token", 1), ("embed.positions.weight", 2)):
        if name in named:  # the others keep axes of size one before
            named[name] = named[name].reshape(named[name].shape[-axes:])
    return named


def gpt2_names(state: Mapping[str, Tensor], *, tied: bool) -> dict[str, Tensor]:
    """Names of GPT-2 by Hugging Face, whose weights are transposed, or by others who keep its names."""
    at, to = r"(?:transformer\.)?h\.(\d+)\.", r"stack.blocks.\1."
    named = rename(
        state,
        [
            (r"(?:transformer\.)?wte\.weight", "embed.read.weight"),
            (r"(?:transformer\.)?wpe\.weight", "embed.positions.weight"),
            (rf"{at}ln_1\.{_PAIR}", rf"{to}attention_norm.\2"),
            (rf"{at}attn\.c_attn\.{_PAIR}", rf"{to}attention.qkv.\2"),
            (rf"{at}attn\.c_proj\.{_PAIR}", rf"{to}attention.out.\2"),
            (rf"{at}ln_2\.{_PAIR}", rf"{to}feed_norm.\2"),
            (rf"{at}mlp\.c_fc\.{_PAIR}", rf"{to}feed.up.\2"),
            (rf"{at}mlp\.c_proj\.{_PAIR}", rf"{to}feed.down.\2"),
            (rf"(?:transformer\.)?ln_f\.{_PAIR}", r"stack.norm.\1"),
            (r"lm_head\.weight", "head.weight"),
        ],
    )
    if named.keys() == state.keys():
        return named
    masks = re.compile(rf"{at}attn\.(?:bias|masked_bias)")  # buffers of the original
    named = {n: t for n, t in named.items() if not masks.fullmatch(n) and not (tied and n == "head.weight")}
    first = named.get("stack.blocks.0.attention.qkv.weight")
    if first is not None and first.shape[0] * 3 == first.shape[1]:
        turned = re.compile(r"stack\.blocks\.\d+\.(attention\.(qkv|out)|feed\.(up|down))\.weight")
        named = {n: t.t().contiguous() if turned.fullmatch(n) else t for n, t in named.items()}
    return named
