"""`python -m slipway`, for an environment whose scripts are not on PATH."""

from slipway.cli.__main__ import main

main()
