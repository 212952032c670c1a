"""Every error that Regard raises on purpose. Catch `RegardError` to catch them all.

RegardError
├── ArgumentError (also a ValueError)   an argument that cannot be served; names it, what came, what was expected
│   ├── ShapeError                      a width, a length or a number of dimensions
│   ├── DtypeError                      a dtype, or two that do not go together
│   └── DeviceError                     tensors on different devices
├── BackendError                        a backend was forced that cannot serve the call
├── WatchError                          something was asked of `watch` that it cannot answer truthfully
├── ConfigError                         a key of a configuration: unknown, of a wrong type, impossible; names its path
├── DataError                           a corpus that cannot be read; names the file, the line and the counts
├── CheckpointError                     a checkpoint or a run folder that is damaged, or does not fit; names the file
├── NotFiniteError                      a model whose scores are NaN or infinite; names its run
├── TrainingError                       a training run that cannot continue; says why, and what is safe
├── VerificationError                   an export that does not do what its run does; names the first difference
├── MissingExtraError                   an optional dependency is not installed; names the extra
└── CommandError                        a person's mistake on the command line; exit status 2
    └── StoppedError                    a signal stopped the command, which has saved its work; exit status 128 + signal
"""


class RegardError(Exception):
    """The root of the tree."""


class ArgumentError(RegardError, ValueError):
    """An argument has a value that cannot be used."""


class ShapeError(ArgumentError):
    """A width, a length or a number of dimensions does not fit."""


class DtypeError(ArgumentError):
    """A dtype cannot be used, or two do not go together."""


class DeviceError(ArgumentError):
    """Tensors are on different devices."""


class BackendError(RegardError):
    """A backend was forced that cannot serve the call."""


class WatchError(RegardError):
    """`watch` cannot answer a question correctly."""


class ConfigError(RegardError):
    """A key of a configuration cannot be used: `key` is its path, `problem` what is wrong with it."""

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
    """A model's scores are NaN or infinite, so that it has no output."""


class TrainingError(RegardError):
    """A training run cannot continue."""


class VerificationError(RegardError):
    """An export decodes or scores otherwise than the run that it was made from."""


class MissingExtraError(RegardError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str):
        super().__init__(f"{package} is not installed; install it with: pip install 'regard[{extra}]'")
        self.package, self.extra = package, extra

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.package, self.extra)


class CommandError(RegardError):
    """A person's mistake on the command line."""

    status = 2  # of the command's exit


class StoppedError(CommandError):
    """A signal stopped a command that has saved its work: `status` is what the command ends with."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (str(self), self.status)


__all__ = sorted(name for name, value in vars().items() if isinstance(value, type))
