from enum import Enum
from types import SimpleNamespace


class RequestOutputKind(Enum):
    DELTA = 1


class SamplingParams(SimpleNamespace):
    pass


class StructuredOutputsParams(SimpleNamespace):
    pass
