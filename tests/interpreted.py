"""Triton's interpreter, made to do what a GPU does, and to run beside a new NumPy.

- It cuts float32 off where a GPU rounds it to bfloat16: it rounds here.
- It takes an array of one number for a number, as NumPy 2.4 no longer does.
- It looks through the whole language for what to replace whenever a kernel calls a function, a quarter of its time:
  here once a kernel.
"""

import functools
import importlib.util
import os
import sys

if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton"):
    import numpy as np
    import torch
    from triton import language
    from triton.runtime import interpreter

    if not hasattr(interpreter, "patched_for_tests"):
        patch_tensor, convert = interpreter._patch_lang_tensor, interpreter._convert_float
        patch_language, run_grid = interpreter._patch_lang, interpreter.GridExecutor.__call__
        replaced: set[str] = set()  # in the kernel that runs

        def patch(tensor, scope):
            patch_tensor(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

        def rounded(numbers, before, after, mode):
            if (before, after) != (language.float32, language.bfloat16):
                return convert(numbers, before, after, mode)
            numbers = torch.from_numpy(np.array(numbers, dtype=np.float32))
            return numbers.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)

        def patch_once(function):
            names = {name for name in ("triton.language", "triton.language.core") if reads(function, name)}
            if replaced and names <= replaced:
                return interpreter._LangPatchScope()
            replaced.update(names)
            return patch_language(function)

        @functools.cache
        def reads(function, name):
            return any(value is sys.modules[name] for value in function.__globals__.values())

        @functools.wraps(run_grid)
        def run(self, *arguments, **options):
            replaced.clear()
            try:
                return run_grid(self, *arguments, **options)
            finally:
                replaced.clear()

        interpreter._patch_lang_tensor, interpreter._convert_float = patch, rounded
        interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_once, run
        interpreter.patched_for_tests = True
