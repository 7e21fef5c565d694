"""`python -m slipway`, for an environment whose scripts are not on PATH."""

from . import main

main()
