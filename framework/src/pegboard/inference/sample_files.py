"""What a trained model makes of its codes: samples, reconstructions, ways between two; in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base.errors import PegboardError
from ..contract.drawing import plots
from ..contract.sampling import SampleRequest
from ..engine.evaluate import eval_mode
from ..planning.plan import private_rng
from .sampling import draw_samples, generator_of, some_inputs, write_picture
from .tables import write_table
from .trained import Trained

PICTURES = (".png", ".jpg", ".jpeg", ".svg", ".pdf")
NUMBERS = (".csv", ".json", ".npy")
STEPS = 8  # pictures from one end of a line to the other
REACH = 3.0  # standard deviations that a traversal goes to both sides


def write_samples(trained: Trained, request: SampleRequest) -> Iterator[str]:
    """Samples of a model that generates them, in a file; yields what is there."""
    given = [*(["prompt"] if request.prompts else []), *request.decoding]
    if given:
        raise PegboardError(
            f"--{given[0].replace('_', '-')} is for models of text, and {trained.ref} is none"
        )
    generator, kind = Generator(trained, request.seed), request.kind or "samples"
    path = Path(request.output or f"{kind}.{'png' if generator.spec.draws_samples() else 'npy'}")
    generator.check(path)
    x, columns = generator.make(kind, request.count or 64, request.split)
    generator.write(x, path, columns)
    yield f"{len(x)} samples in {path}" if kind == "samples" else f"{kind}: {len(x)} in {path}"


class Generator:
    """A trained model that generates samples, by a seed; what cannot is refused when it is made."""

    def __init__(self, trained: Trained, seed: int = 0) -> None:
        self.trained, self.seed, self.model = trained, seed, trained.model
        part: Any = trained.plan.settings.model.entry.part
        self.part = part
        if not part.samples:
            raise PegboardError(f"the model {self.part.name!r} of {trained.ref} generates no samples")
        self.spec = trained.plan.spec.inputs[0]

    def make(self, kind: str, count: int, split: str = "test") -> tuple[Tensor, int | None]:
        """Samples of a kind, and how many stand in a line of a grid, where that has a meaning."""
        if kind == "samples":
            with self.trained.rounding():
                return draw_samples(self.model, count, self.seed, self.trained.device), None
        stream = private_rng(self.seed, "sample", device=self.trained.device)
        with self.trained.rounding(), stream, eval_mode(self.model):
            made = {"reconstruct": self._pairs, "interpolate": self._ways, "traverse": self._axes}
            x, columns = made[kind](count, split)
        return x.float().cpu(), columns

    def _need(self, kind: str, *names: str) -> list[Any]:
        found = [getattr(self.model, name, None) for name in names]
        if lacking := [name for name, method in zip(names, found, strict=True) if method is None]:
            raise PegboardError(
                f"--kind {kind} needs a model that has {' and '.join(names)}, and {self.part.name!r} has no "
                f"{' and no '.join(lacking)}\nexpected one that makes codes of samples, "
                "or --kind samples"
            )
        return found

    def _inputs(self, count: int, split: str) -> Tensor:
        return some_inputs(self.trained.source(split), count).to(self.trained.device)

    def _pairs(self, count: int, split: str) -> tuple[Tensor, int]:
        """Samples of the data, each line followed by what the model makes of them."""
        encode, decode = self._need("reconstruct", "encode", "decode")
        x = self._inputs(count, split)
        made, columns = decode(encode(x)), min(len(x), STEPS)
        lines = zip(torch.split(x, columns), torch.split(made, columns), strict=True)
        return torch.cat([part for line in lines for part in line]), columns

    def _codes(self, kind: str, count: int, split: str) -> tuple[Tensor, Any]:
        """Codes of samples of the data, or drawn ones where the model makes none of samples."""
        if hasattr(self.model, "encode"):
            encode, decode = self._need(kind, "encode", "decode")
            return encode(self._inputs(count, split)), decode
        latent, decode = self._need(kind, "latent", "decode")
        return latent(count, generator_of(self.seed, self.trained.device)), decode

    def _ways(self, count: int, split: str) -> tuple[Tensor, int]:
        """A line for every pair of codes: what lies between them, evenly."""
        codes, decode = self._codes("interpolate", 2 * max(count // STEPS, 1), split)
        if len(codes) < 2:
            raise PegboardError(f"--kind interpolate needs two samples, and the {split} split has one")
        one, two = codes[0::2][: len(codes) // 2], codes[1::2]
        share = torch.linspace(0, 1, STEPS, device=codes.device).view(1, -1, *(1,) * (codes.dim() - 1))
        between = one.unsqueeze(1) * (1 - share) + two.unsqueeze(1) * share
        return decode(between.flatten(0, 1)), STEPS

    def _axes(self, count: int, split: str) -> tuple[Tensor, int]:
        """A line for every number of the code of one sample: that number from low to high."""
        codes, decode = self._codes("traverse", 1, split)
        if codes.dim() != 2:
            raise PegboardError(
                f"--kind traverse needs codes that are vectors, and those of {self.part.name!r} "
                f"have the shape {tuple(codes.shape[1:])}"
            )
        places = min(codes.shape[1], max(count // STEPS, 1))
        lines = codes.expand(places, STEPS, -1).clone()
        far = torch.linspace(-REACH, REACH, STEPS, device=codes.device)
        middle, deviation = getattr(self.model, "spread", lambda: codes.new_tensor([[0.0], [1.0]]))()
        ends = (middle + far.unsqueeze(1) * deviation).expand(STEPS, codes.shape[1])
        for place in range(places):
            lines[place, :, place] = ends[:, place]
        return decode(lines.flatten(0, 1)), STEPS

    def check(self, path: Path) -> None:
        """Refuse a file that samples cannot be written to, before any is drawn."""
        suffix = path.suffix.lower()
        if suffix not in PICTURES + NUMBERS:
            known = f"{', '.join(PICTURES)} for a picture, {', '.join(NUMBERS)} for numbers"
            raise PegboardError(f"{path}: found the suffix {suffix!r}, expected {known}")
        if not path.parent.is_dir():
            raise PegboardError(f"{path}: there is no folder {str(path.parent)!r} to write it to")
        if suffix in PICTURES:
            plots()  # told before any is drawn, where nothing makes pictures

    def write(self, x: Tensor, path: Path, columns: int | None = None) -> None:
        """A picture or the numbers, by the suffix; numbers are those of the data before it was scaled."""
        self.check(path)
        codec = self.trained.codec
        invert = self.trained.splits.invert if codec is None else codec.invert
        if path.suffix.lower() in NUMBERS:
            self._numbers(x if invert is None else invert(x), path)
        elif not write_picture(x, self.spec, path, self.trained.plan.settings.name, invert, None, columns):
            raise PegboardError(f"samples that are {self.spec} have no picture: expected .npy or .csv")

    def _numbers(self, x: Tensor, path: Path) -> None:
        if path.suffix.lower() == ".npy":
            import numpy

            numpy.save(path, x.numpy())
            return
        flat = x.flatten(1)
        write_table({f"x{i}": flat[:, i].tolist() for i in range(flat.shape[1])}, path)
