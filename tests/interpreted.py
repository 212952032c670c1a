"""Triton's interpreter, made to do what a GPU does, and to run beside a new NumPy.

- It cuts float32 off where a GPU rounds it to bfloat16: it rounds here.
- It takes an array of one number for a number, as NumPy 2.4 no longer does.
"""

import importlib.util
import os

if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton"):
    import numpy as np
    import torch
    from triton import language
    from triton.runtime import interpreter

    if not hasattr(interpreter, "patched_for_tests"):
        patch_tensor, convert = interpreter._patch_lang_tensor, interpreter._convert_float

        def patch(tensor, scope):
            patch_tensor(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

        def rounded(numbers, before, after, mode):
            if (before, after) != (language.float32, language.bfloat16):
                return convert(numbers, before, after, mode)
            numbers = torch.from_numpy(np.array(numbers, dtype=np.float32))
            return numbers.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)

        interpreter._patch_lang_tensor, interpreter._convert_float = patch, rounded
        interpreter.patched_for_tests = True
