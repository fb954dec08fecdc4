"""The version of the core, and the number of the API that plugins see."""

__version__ = "0.3.0"
API = 3
