"""Every error that Regard raises on purpose. Catch `RegardError` to catch them all.

RegardError
├── ArgumentError (also a ValueError)   an invalid argument; names it, the given value, and the expected one
│   ├── ShapeError                      a width, a length or a number of dimensions
│   ├── DtypeError                      a dtype, or two that do not match
│   └── DeviceError                     tensors on different devices
├── BackendError                        a forced backend does not support the call
├── WatchError                          `watch` cannot return a correct answer
├── ConfigError                         a key of a configuration: unknown, of a wrong type, impossible; names its path
├── DataError                           a corpus that cannot be read; names the file, the line and the counts
├── CheckpointError                     a checkpoint or a run folder that is damaged, or does not fit; names the file
├── NotFiniteError                      a model whose scores are NaN or infinite; names its run
├── TrainingError                       a training run that cannot continue; says why, and which checkpoint is safe
├── VerificationError                   an export whose outputs differ from its run's; names the first difference
├── MissingExtraError                   an optional dependency is not installed; names the extra
└── CommandError                        a mistake on the command line; exit status 2
    └── StoppedError                    a signal stopped the command, which has saved its work; exit status 128 + signal
"""


class RegardError(Exception):
    """The base class of all errors that Regard raises on purpose."""


class ArgumentError(RegardError, ValueError):
    """An argument has an invalid value."""


class ShapeError(ArgumentError):
    """A width, a length or a number of dimensions does not fit."""


class DtypeError(ArgumentError):
    """A dtype is not supported, or two do not match."""


class DeviceError(ArgumentError):
    """Tensors are on different devices."""


class BackendError(RegardError):
    """A forced backend does not support the call."""


class WatchError(RegardError):
    """`watch` cannot return a correct answer."""


class ConfigError(RegardError):
    """A key of a configuration is invalid: `key` is its path, `problem` describes the error."""

    def __init__(self, key: str, problem: str):
        super().__init__(f"{key}: {problem}")
        self.key, self.problem = key, problem

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.key, self.problem)


class DataError(RegardError):
    """A corpus or a file cannot be read."""


class CheckpointError(RegardError):
    """A checkpoint or a run folder is damaged, or does not fit."""


class NotFiniteError(RegardError):
    """A model's scores are NaN or infinite, so that a search finds no output."""


class TrainingError(RegardError):
    """A training run cannot continue."""


class VerificationError(RegardError):
    """An export's outputs or scores differ from those of its run."""


class MissingExtraError(RegardError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str):
        super().__init__(f"{package} is not installed; install it with: pip install 'regard[{extra}]'")
        self.package, self.extra = package, extra

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.package, self.extra)


class CommandError(RegardError):
    """A mistake on the command line."""

    status = 2  # the command's exit status


class StoppedError(CommandError):
    """A signal stopped a command that has saved its work; `status` is the command's exit status."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (str(self), self.status)


__all__ = sorted(name for name, value in vars().items() if isinstance(value, type))
