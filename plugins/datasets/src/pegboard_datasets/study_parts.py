"""Records of the data sets that stand for a point. No torch at import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pegboard import Context, Dataset, DataSpec, Probe, ProbePart, Splits

from . import study_options as options
from .deferred import build_of
from .options import MadeClasses, check_classes, check_cut

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _part(
    name: str, config: type[Any], spec: DataSpec | Callable[[Any], DataSpec], **more: Any
) -> Dataset[Any]:
    stated = spec if callable(spec) else lambda config: spec
    check = check_classes if issubclass(config, MadeClasses) else check_cut
    trial = {} if config is options.Quartet else {"samples": 60}  # few suffice to try it
    build = build_of("studies", name)
    return Dataset(name, config, build, spec=stated, trial=lambda folder: trial, **{"check": check, **more})


def _plot(name: str) -> Callable[[Splits, Figure], None]:
    """A drawing function, imported when it is called."""

    def plot(splits: Splits, figure: Figure) -> None:
        from . import plots

        getattr(plots, name)(splits, figure)

    return plot


def study_probes() -> list[ProbePart[Any]]:
    """What is measured of models that were trained on them."""

    def build(config: options.GroupDisparity, context: Context) -> Probe:
        from .disparity import GroupDisparityProbe

        return GroupDisparityProbe(config, context)

    return [
        ProbePart("group_disparity", options.GroupDisparity, build, check=options.check_disparity),
    ]


def study_parts() -> list[Dataset[Any]]:
    """The records, with a picture of their own where the one by the spec does not show the point."""
    o = options
    return [
        _part("students", o.Students, o.STUDENTS),
        _part("plants", o.Plants, o.PLANTS),
        _part("admissions", o.Admissions, o.ADMISSIONS),
        _part("overlap", o.Overlap, o.OVERLAP),
        _part("fraud", o.Fraud, o.FRAUD, plot=_plot("fraud")),
        _part("biased", o.Biased, o.BIASED, plot=_plot("biased")),
        _part("objects", o.Objects, o.objects_spec, plot=_plot("objects")),
        _part("cosine", o.Cosine, o.COSINE, plot=_plot("cosine")),
        _part("quartet", o.Quartet, o.QUARTET, check=o.check_quartet, plot=_plot("quartet")),
        _part("point_shapes", o.PointShapes, o.point_shapes_spec, plot=_plot("point_shapes")),
        _part("hyperplanes", o.Hyperplanes, o.hyperplanes_spec, check=o.check_hyperplanes),
        _part("swiss_roll", o.SwissRoll, o.SWISS_ROLL, plot=_plot("swiss_roll")),
        _part(
            "sparse_fourier",
            o.SparseFourier,
            o.sparse_fourier_spec,
            check=o.check_sparse_fourier,
            plot=_plot("sparse_fourier"),
        ),
        _part("squares_and_line", o.SquaresAndLine, o.squares_and_line_spec, plot=_plot("squares_and_line")),
        _part("texture", o.Texture, o.texture_spec, check=o.check_texture, plot=_plot("texture")),
        _part("relighting", o.Relighting, o.relighting_spec),
        _part("solids", o.Solids, o.solids_spec, plot=_plot("solids")),
    ]
