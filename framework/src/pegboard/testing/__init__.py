"""The conformance kit: `pytest -p pegboard.testing` runs a plugin's parts through every check there is.

    from pegboard.testing import conformance

    test_part = conformance("acme-max-norm")

Opt-in: pytest loads it only where it is asked to. Nothing here needs pytest but the function above.
"""

from __future__ import annotations

from . import checks  # noqa: F401  registers them
from .kit import CHECKS, Case, Check, Failed, Kit, Outcome, Skipped, check
from .pytest_plugin import conformance, pytest_addoption, pytest_configure, pytest_terminal_summary
from .subjects import PARTNER, PARTNERS, Subject, partner_config, partner_data, partner_run

__all__ = [
    "CHECKS",
    "PARTNER",
    "PARTNERS",
    "Case",
    "Check",
    "Failed",
    "Kit",
    "Outcome",
    "Skipped",
    "Subject",
    "check",
    "conformance",
    "partner_config",
    "partner_data",
    "partner_run",
    "pytest_addoption",
    "pytest_configure",
    "pytest_terminal_summary",
]
