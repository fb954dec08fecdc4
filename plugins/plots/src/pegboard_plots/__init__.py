"""Pictures of samples and of runs. What draws imports torch and matplotlib when it is called."""

from __future__ import annotations

from pegboard import Problem, hookimpl

from .figures import draw_curves as draw_curves
from .figures import draw_figure as draw_figure
from .figures import save_pixels as save_pixels
from .figures import show_pixels as show_pixels
from .specs import draw_images as draw_images
from .specs import draw_series as draw_series
from .specs import draw_solids as draw_solids
from .specs import draw_symbols as draw_symbols
from .specs import draw_vectors as draw_vectors
from .specs import draw_views as draw_views
from .specs import points_of as points_of
from .specs import raster as raster
from .specs import remark as remark


@hookimpl
def pegboard_health() -> list[Problem]:
    try:
        import matplotlib.backends.backend_agg  # noqa: F401
    except ImportError as error:
        hint = "pip install --force-reinstall matplotlib"
        return [Problem(f"matplotlib cannot be imported: {error}", hint=hint)]
    return []
