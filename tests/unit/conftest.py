"""What holds for every unit test."""

from hypothesis import settings

from tests.support.rendered_once import templates_rendered_once

__all__ = ["templates_rendered_once"]

# a machine that is busy elsewhere makes an example slow, not wrong
settings.register_profile("slipway", deadline=None)
settings.load_profile("slipway")
