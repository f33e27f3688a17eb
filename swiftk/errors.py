"""The exceptions that swiftk raises. The native library's status codes map to them one to one (csrc/error.h)."""


class SwiftkError(Exception):
    """Base of all of them."""


class InvalidArgument(SwiftkError, ValueError):
    """An option, token id or length out of range."""


class CheckpointError(SwiftkError, ValueError):
    """A model file is missing, truncated, or does not fit the config."""


class UnsupportedModel(SwiftkError, ValueError):
    """A field of the config that this engine does not implement."""


class NumericalError(SwiftkError, ArithmeticError):
    """NaN or infinite logits."""


class Cancelled(SwiftkError):
    """A phase was cancelled from another thread."""


class OutOfMemory(SwiftkError, MemoryError):
    """A buffer could not be allocated."""


class DeviceError(SwiftkError, RuntimeError):
    """The accelerator or its driver is absent, or reports an error."""


class InternalError(SwiftkError, RuntimeError):
    """A broken invariant of the engine: please report it."""
