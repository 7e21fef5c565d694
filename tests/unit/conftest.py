"""What holds for every unit test."""

from hypothesis import settings

# a machine that is busy elsewhere makes an example slow, not wrong
settings.register_profile("slipway", deadline=None)
settings.load_profile("slipway")
