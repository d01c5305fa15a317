"""The failures of training that a user can mend; each is one plain sentence. `__main__` maps them to exit codes.

TrainingError
├── DataFault     the data cannot be trained on: file, row or line, column, reason
├── LeakFault     the data tells the model what it must not know, and --strict was asked for
├── FitError      training went wrong: a loss that is not finite
├── PushFault     metrics that no gateway took; the version is published
└── FetchError    a data set could not be had
ConfigError (config.py) and ArtifactError, DeviceError (service/scoring) stand beside them.
"""


class TrainingError(Exception):
    """Something a user can mend."""


class DataFault(TrainingError):
    """Data that cannot be trained on."""


class LeakFault(TrainingError):
    """Data that leaks, under --strict."""


class FitError(TrainingError):
    """Training that cannot go on."""


class PushFault(TrainingError):
    """Metrics that could not be pushed; the version they are of is published."""


class FetchError(TrainingError):
    """A data set that could not be had."""
