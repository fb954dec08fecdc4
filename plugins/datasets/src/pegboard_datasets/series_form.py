"""Tables whose rows are steps, as rows of series: each key is a sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from .columns import ColumnForm
from .reading import Columns
from .saved import Find, Form, Keep
from .series_options import Series, keys_of
from .series_steps import written_samples


class KeyedForm(Form):
    """Another form behind a table of steps."""

    name = "keyed"
    tables = True

    def __init__(self, inner: Form, series: Series, steps: Sequence[str], others: Sequence[str]) -> None:
        self.inner, self.series, self.steps, self.others = inner, series, tuple(steps), tuple(others)
        names = [*keys_of(series), *([series.time] if series.time else []), *steps, *others]
        self.columns, self.texts = tuple(dict.fromkeys(names)), inner.texts

    def encode(self, table: Columns) -> tuple[Tensor, ...]:
        return self.inner.encode(written_samples(table, self.series, self.steps, self.others))

    def table(self, asked: str | Columns, answers: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        """Answers beside the keys of their series; those to a split stand in the order of its samples."""
        if isinstance(asked, str):
            return answers
        keys = written_samples(asked, self.series, (), ())
        return {**keys, **answers}

    @property
    def invert(self) -> Callable[[Tensor], Tensor] | None:
        return self.inner.invert

    def state(self, keep: Keep) -> dict[str, Any]:
        series = {"key": list(keys_of(self.series)), "time": self.series.time, "missing": self.series.missing,
                  "irregular": self.series.irregular}  # fmt: skip
        own = {"steps": list(self.steps), "others": list(self.others), "series": series}
        return {**own, "inner": self.inner.state(keep)}

    @classmethod
    def load(cls, state: Mapping[str, Any], find: Find) -> KeyedForm:
        """One that `state` described."""
        series = Series(**state["series"] | {"key": tuple(state["series"]["key"])})
        return cls(ColumnForm.load(state["inner"], find), series, state["steps"], state["others"])
