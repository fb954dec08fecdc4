"""How rows are read and answers written, from the files of a run and without its data."""

from __future__ import annotations

from pathlib import Path

from pegboard import Codec

from .columns import ColumnForm
from .forecasting import ForecastForm
from .given import opened
from .hub_options import Hub
from .language import LanguageForm
from .marked import MarkedForm
from .saved import Form, Saved
from .series_form import KeyedForm
from .translation import TranslationForm

FORMS = {
    form.name: form
    for form in (ColumnForm, ForecastForm, KeyedForm, LanguageForm, MarkedForm, TranslationForm)
}


def restore(config: Hub, folder: Path) -> Codec:
    """What the splits of this config encoded and decoded with; the files say all of it."""
    saved = Saved(folder)
    form: Form = saved.read(lambda: FORMS[saved.content["form"]].load(saved.content, saved.vocabulary))
    return opened(form.codec, config)
