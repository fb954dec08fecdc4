from .._empty import __getattr__ as __getattr__
