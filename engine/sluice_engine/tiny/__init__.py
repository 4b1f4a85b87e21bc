"""A small trained model for demos, tests and e2e: trained once, cached, loadable by plain transformers.

Importing this package loads no torch; only training does.
"""

from sluice_engine.tiny.cache import NotLearned, ensure
from sluice_engine.tiny.recipe import Recipe

__all__ = ["NotLearned", "Recipe", "ensure"]
