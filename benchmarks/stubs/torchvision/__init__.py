"""Stands in for torchvision, so that Composer can be imported where torchvision has no build.

Whatever is imported from it is a class that does nothing: training a model that uses none of it never
makes one.
"""

from ._empty import __getattr__ as __getattr__

__version__ = "0.0.0"
