class EngineDeadError(Exception):
    pass
