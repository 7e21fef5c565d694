class StatLoggerBase:
    pass
