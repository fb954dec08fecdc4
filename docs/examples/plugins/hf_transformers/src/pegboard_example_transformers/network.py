"""Networks of transformers as ordinary modules: symbols in, logits out."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pegboard import Peg, PegboardError, Site, Tokens
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
from transformers.utils import logging

from . import Transformers

# Few of its functions say their types.
auto_model: Any = AutoModelForSequenceClassification
attentions: Any = AttentionInterface
masks: Any = AttentionMaskInterface
reports: Any = logging

ATTENTION = "pegboard"  # what our way to attend is called in transformers
ESSENTIAL = ("vocab_size", "hidden_size", "num_hidden_layers")
INSIDE = ("intermediate_size", "hidden_dim", "n_inner", "ffn_dim", "d_inner", "d_ff", "ffn_hidden_size")


class Through:
    """A forward hook that sends what a module gives through a peg. A class, so that copies have their own."""

    def __init__(self, peg: Peg) -> None:
        self.peg = peg

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (self.peg(output[0]), *output[1:])
        return self.peg(output)


class Classifier(nn.Module):
    """A network of transformers with pegs: symbols (batch, length) -> logits (batch, outputs)."""

    def __init__(self, network: PreTrainedModel, padding: int, outputs: int) -> None:
        super().__init__()
        self.network, self.padding = network, padding
        self._hang(network.get_input_embeddings(), "embedding")
        for block in blocks(network):
            self._hang(block, "hidden")
        self.logits = Peg("logits", outputs)

    def _hang(self, module: nn.Module, site: Site) -> None:
        width = getattr(module, "embedding_dim", None) or self.network.config.hidden_size
        peg = Peg(site, width, "NLC")
        module.add_module("peg", peg)
        module.register_forward_hook(Through(peg))

    def forward(self, tokens: Tensor) -> Tensor:
        seen = (tokens != self.padding).long()
        return self.logits(self.network(input_ids=tokens, attention_mask=seen).logits)


def blocks(network: PreTrainedModel) -> list[nn.Module]:
    """The blocks of a network: its first list of modules that has as many as the config says."""
    depth = network.config.num_hidden_layers
    lists = (m for m in network.modules() if isinstance(m, nn.ModuleList) and len(m) == depth)
    return list(next(lists, ()))


def make_network(config: Transformers, symbols: Tokens, outputs: int) -> tuple[PreTrainedModel, int]:
    """A network with fresh weights, and the symbol that pads."""
    assert symbols.vocab is not None
    assert symbols.length is not None
    known = list(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES)
    if config.architecture not in known:
        raise _unknown("architecture", config.architecture, known)
    # Where nothing is padded the architectures still want a symbol for it: one more, which never comes.
    padding = symbols.padding if symbols.padding >= 0 else symbols.vocab
    inside = config.feedforward or 4 * config.width
    sizes = {
        "vocab_size": max(symbols.vocab, padding + 1),
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.heads,
        "head_dim": config.width // config.heads,
        **dict.fromkeys(INSIDE, inside),
        "max_position_embeddings": symbols.length + padding + 1,  # roberta counts from behind the padding
        "pad_token_id": padding,
        "use_cache": False,
    }
    with _quiet():
        made = make_config(config, sizes, outputs)
        try:
            return _adapted(auto_model.from_config(made)), padding
        except Exception as error:  # every architecture raises what it likes
            raise _refused(config, error) from error


def make_config(config: Transformers, sizes: dict[str, Any], outputs: int) -> PreTrainedConfig:
    """The config of an architecture. Names differ between them: each has a map from the common ones."""
    plain = AutoConfig.for_model(config.architecture)
    known = plain.to_dict()
    named = {plain.attribute_map.get(name, name): value for name, value in sizes.items()}
    if plain.is_encoder_decoder or any(plain.attribute_map.get(n, n) not in known for n in ESSENTIAL):
        raise PegboardError(
            f"{config.architecture} is more than a stack of blocks that reads symbols\n"
            "  expected: an encoder or a decoder alone, as bert, roberta, gpt2 or llama"
        )
    if wrong := [name for name in config.options if name not in known]:
        raise _unknown(f"option of {config.architecture}", wrong[0], list(known))
    given = {name: value for name, value in named.items() if name in known}
    given |= {n: config.dropout for n, v in known.items() if "drop" in n and isinstance(v, float)}
    try:
        return AutoConfig.for_model(config.architecture, num_labels=outputs, **given | config.options)
    except Exception as error:  # every architecture raises what it likes
        raise _refused(config, error) from error


def load_network(name: str, symbols: Tokens, outputs: int, *, meta: bool) -> tuple[PreTrainedModel, int]:
    """A network with saved weights and a head for so many classes, and the symbol that pads."""
    try:
        with _quiet():
            config = AutoConfig.from_pretrained(name, num_labels=outputs, trust_remote_code=False)
            _check_fit(name, config, symbols)
            if meta:  # where there are no numbers, none are loaded
                network = auto_model.from_config(config)
            else:
                network = auto_model.from_pretrained(
                    name,
                    config=config,
                    trust_remote_code=False,
                    dtype=torch.float32,
                    use_safetensors=True,
                    ignore_mismatched_sizes=True,
                )
    except (OSError, ValueError) as error:
        raise PegboardError(
            f"model.pretrained: cannot load {name!r}: {str(error).strip().splitlines()[0]}\n"
            "  expected: a folder that save_pretrained wrote, or a name of the hub and a network to reach it\n"
            "  without one, HF_HUB_OFFLINE=1 looks at once among the files that were fetched before"
        ) from error
    if network.config.pad_token_id is None:
        network.config.pad_token_id = symbols.padding
    return _adapted(network), symbols.padding


def _check_fit(name: str, config: PreTrainedConfig, symbols: Tokens) -> None:
    """Saved weights know so many symbols and places, and one symbol that pads."""
    assert symbols.vocab is not None
    assert symbols.length is not None
    wrong = []
    if symbols.vocab > config.vocab_size:
        wrong.append(f"the data has {symbols.vocab} symbols, and it knows {config.vocab_size}")
    if symbols.length > (places := getattr(config, "max_position_embeddings", symbols.length)):
        wrong.append(f"samples are up to {symbols.length} long, and it reads {places}")
    if symbols.padding >= 0 and config.pad_token_id not in (None, symbols.padding):
        wrong.append(f"the data pads with symbol {symbols.padding}, and it with {config.pad_token_id}")
    if wrong:
        raise PegboardError(
            f"model.pretrained: {name!r} does not fit the data: {'; '.join(wrong)}\n"
            "  expected: data whose symbols are numbered as those it was trained on"
        )


def _adapted(network: PreTrainedModel) -> PreTrainedModel:
    """The network with an attention that never stops to look at its mask."""
    if network.config._attn_implementation == "sdpa":
        attentions.register(ATTENTION, attentions()["sdpa"])
        masks.register(ATTENTION, _whole_mask)
        network.set_attn_implementation(ATTENTION)
    return network


def _whole_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """The mask of `sdpa`, which is left out there where it hides nothing: to know that, a device must wait."""
    never = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask: Tensor | None = masks()["sdpa"](*args, **{**kwargs, **never})
    return mask


@contextmanager
def _quiet() -> Iterator[None]:
    """What transformers would report is meant here: symbols that never come, a body without its head."""
    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity_error()
    reports.disable_progress_bar()
    try:
        yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()


def _unknown(what: str, name: str, known: list[str]) -> PegboardError:
    near = difflib.get_close_matches(name, known, 3, 0.5)
    said = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return PegboardError(f"there is no {what} {name!r}{said}\n  expected: one of {', '.join(sorted(known))}")


def _refused(config: Transformers, error: Exception) -> PegboardError:
    said = " ".join(str(error).split()) or "no reason is given"
    return PegboardError(
        f"transformers makes no {config.architecture} of this: {type(error).__name__}: {said}\n"
        "  fix: other sizes, or what the architecture needs besides them as model.options"
    )
