class RequestError(RuntimeError):
    pass
