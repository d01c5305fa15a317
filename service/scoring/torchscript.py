"""TorchScript, the one engine so far: every call of `torch.jit` that serving makes stands here.

TorchScript is deprecated in torch; its warnings are silenced here, by name, and the manifest names the engine.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from service.scoring.files import ArtifactError

Module = torch.jit.ScriptModule

# What a module may export beside `forward`; see training/halves.py. Freezing keeps them only when they are named.
# `join` is how modules of earlier releases say `rank`: the same of rows that were gathered before.
EXPORTED = ("user", "items", "rank", "join", "explain")

_FILTERS = threading.Lock()

_LINEAR_RELU = """
graph(%x, %w, %b):
  %h = aten::linear(%x, %w, %b)
  %r = aten::{relu}(%h)
  return (%r)"""
_ONE_CALL = """
graph(%x, %w, %b):
  %after : str = prim::Constant[value="relu"]()
  %scalars : Scalar?[] = prim::ListConstruct()
  %algorithm : str = prim::Constant[value=""]()
  %r = mkldnn::_linear_pointwise(%x, %w, %b, %after, %scalars, %algorithm)
  return (%r)"""


def read_module(path: Path, device: str) -> Module:
    """Load and inspect the module at `path`, not frozen; raises ArtifactError naming the file."""
    if not path.is_file():
        raise ArtifactError(f"{path.name}: the file is missing")
    try:
        module = load_module(path, device)
    except Exception as error:  # noqa: BLE001  # damaged archives raise whatever the reader met
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ArtifactError(f"{path.name}: no TorchScript module ({reason})") from None
    _inspect(module, path.name)
    return module


def load_module(path: Path, device: str) -> Module:
    """The module at `path` as it is."""
    with _no_deprecation("load"):
        return torch.jit.load(path, map_location=device)  # type: ignore[no-any-return,no-untyped-call]  # untyped there


def write_module(module: Module, path: Path) -> None:
    module.save(str(path))


def freeze(module: Module) -> Module:
    """The module with its parameters as constants, which share the parameters' memory."""
    # No shape-bound compilation: it pays nothing here, and its turns would come in the middle of serving.
    with _no_deprecation("set_fusion_strategy"):
        torch.jit.set_fusion_strategy([])
    exported = [name for name in EXPORTED if hasattr(module, name)]
    with _no_deprecation("freeze"):
        return torch.jit.freeze(module.eval(), preserved_attrs=exported)  # type: ignore[no-any-return]  # untyped there


def tensors(module: Module) -> list[torch.Tensor]:
    """Parameters and buffers of a module that is not frozen."""
    return [*module.parameters(), *module.buffers()]


def constants(frozen: Module) -> Iterator[torch.Tensor]:
    """The tensors that a frozen module computes with, some of them more than once."""

    def of(block: Any) -> Iterator[torch.Tensor]:  # graphs are untyped in torch
        for node in block.nodes():
            if node.kind() == "prim::Constant" and node.hasAttribute("value") and node.kindOf("value") == "t":
                yield node.t("value")
            for inner in node.blocks():
                yield from of(inner)

    for name in ("forward", *EXPORTED):
        if hasattr(frozen, name):
            yield from of(getattr(frozen, name).graph)


def fuse(frozen: Module) -> Module | None:
    """Let oneDNN run each linear layer of the module with the ReLU behind it; None where torch has no such call.

    The kernels that torch calls for a bare linear layer use half of the vector width on some processors (MKL on AMD).
    """
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # untyped in torch
    if not available or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return None
    rewrite: Callable[[str, str, Any], None] | None
    rewrite = getattr(torch._C, "_jit_pass_custom_pattern_based_rewrite_graph", None)
    if rewrite is None:
        return None
    for name in ("forward", "rank"):
        if hasattr(frozen, name):
            for relu in ("relu", "relu_"):
                rewrite(_LINEAR_RELU.format(relu=relu), _ONE_CALL, getattr(frozen, name).graph)
    return frozen


def _inspect(module: Module, name: str) -> None:
    if any(part.training for part in module.modules()):
        raise ArtifactError(f"{name}: the module is in training mode; export it after eval()")
    for key, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ArtifactError(f"{name}: parameter '{key}' is not finite")


@contextmanager
def _no_deprecation(function: str) -> Iterator[None]:
    """Silences torch's own notice that this function of torch.jit is deprecated."""
    # What warnings are shown is the process's own: two threads at once would put back each other's filters.
    with _FILTERS, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f".*torch.jit.{function}.*", category=DeprecationWarning)
        yield
