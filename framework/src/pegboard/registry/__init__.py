"""Plugins: find, load, check, adapt, switch off, and remember what they offer."""
