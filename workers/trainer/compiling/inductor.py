"""How a model is handed to torch.compile: what it may use, and what keeps its results the eager ones."""

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from workers.trainer.compiling.compilers import cpp_compiler
from workers.trainer.compiling.remembered import kernels_folder


def compiled_model(model: nn.Module) -> Callable[..., Any]:
    """Return the model's forward, to be compiled with its backward when it is first called.

    It shares the model's parameters and buffers. Compilation stays in this process and on its thread: a
    device has one core here, and a pool of compiler processes would outlive the run.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kernels_folder()))
    from torch._dynamo.utils import counters

    # a finished run's graphs; its kernels stay in the folder
    torch.compiler.reset()
    counters.clear()
    options: dict[str, Any] = {
        "compile_threads": 1,
        "fx_graph_cache": True,
        # dropout draws what it draws eagerly
        "fallback_random": True,
    }
    if path := cpp_compiler():
        options["cpp.cxx"] = (path,)
    forward: Callable[..., Any] = torch.compile(model, dynamic=False, options=options)
    return forward


def found_kernels() -> bool:
    """Return whether the last compilation found kernels of an earlier one."""
    from torch._dynamo.utils import counters

    hits = (("inductor", "fxgraph_cache_hit"), ("aot_autograd", "autograd_cache_hit"))
    return any(counters[kind][name] > 0 for kind, name in hits)


def is_compiled(model: nn.Module) -> bool:
    """Return whether a workload compiled its model, or a part of it, by itself."""
    if "torch._dynamo.eval_frame" not in sys.modules:
        return False
    return any(type(module).__name__ == "OptimizedModule" for module in model.modules())
