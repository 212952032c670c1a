"""Triton's interpreter beside a NumPy that no longer takes an array of one number for a number (2.4)."""

import importlib.util
import os

if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton"):
    from triton.runtime import interpreter

    if not hasattr(interpreter, "patched_for_numpy"):
        original = interpreter._patch_lang_tensor

        def patch(tensor, scope):
            original(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

        interpreter._patch_lang_tensor = patch
        interpreter.patched_for_numpy = True
