"""The exceptions that swiftk raises. The native library's status codes map to them (csrc/base/error.h)."""


class SwiftkError(Exception):
    """Base of all of them."""


class InvalidArgument(SwiftkError, ValueError):
    """An option, token id or length out of range."""


class InvalidOption(InvalidArgument, TypeError):
    """An option of a name that is not known, or of the wrong type."""


class ContextExceeded(InvalidArgument):
    """A prompt that leaves no room for a text in the model's context."""


class CheckpointError(SwiftkError, ValueError):
    """A model file is missing, truncated, or does not fit the config."""


class UnsupportedModel(SwiftkError, ValueError):
    """A format of files, or a field of the config, that this engine does not implement."""


class NumericalError(SwiftkError, ArithmeticError):
    """NaN or infinite logits."""


class Cancelled(SwiftkError):
    """A phase was cancelled from another thread."""


class OutOfMemory(SwiftkError, MemoryError):
    """A buffer could not be allocated, or a thread not be started."""


class DeviceError(SwiftkError, RuntimeError):
    """The accelerator or its driver is absent, or reports an error."""


class InternalError(SwiftkError, RuntimeError):
    """A broken invariant of the engine: please report it."""
