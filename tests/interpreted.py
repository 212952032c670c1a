"""Triton's interpreter, made to behave as a GPU and to run with a new NumPy.

- The interpreter truncates float32 to bfloat16 where a GPU rounds: here it rounds.
- It takes an array of one number for a number, as NumPy 2.4 no longer does.
- It searches the whole language for functions to replace whenever a kernel calls a function, a quarter of its time:
  here once per kernel.
- It creates its tensors' types anew at every operation, and computes whether an integer overflows without using the
  result, as it asserts nothing outside of `debug`: most of the rest. Here equal types are one immutable object.
"""

import functools
import importlib.util
import os
import sys

if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton"):
    import numpy as np
    import torch
    from triton import language
    from triton.language import core, semantic
    from triton.runtime import interpreter

    def cache_types() -> None:
        """Create types and compute their attributes once."""
        make_tuple, make_tensor, get_field = core.tuple.__init__, core.tensor.__init__, core.tuple.__getattr__
        make_block, blocks = core.block_type.__init__, {}
        numpy_type, numpy_types = interpreter._get_np_dtype, {}

        def find_block(cls, element, shape):
            sizes = tuple(getattr(size, "value", size) for size in shape)
            key = element.name, getattr(element, "address_space", None), sizes
            if key not in blocks:
                blocks[key] = object.__new__(cls)
            return blocks[key]

        def make_block_once(self, element, shape):
            if "name" not in self.__dict__:  # set at the end
                make_block(self, element, shape)

        def make_tuple_lazily(self, args, type=None):
            if type is None:
                self.values = list(args)  # its type is made on request
            else:
                make_tuple(self, args, type)

        def get(self, name):
            if name == "type":
                self.type = core._type_for_tuple_values(self.values)
                return self.type
            return get_field(self, name)

        def make_tensor_quickly(self, handle, type):
            if "tensor_size" not in type.__dict__:
                make_tensor(self, handle, type)
                type.tensor_size = self.shape, self.numel
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.shape, self.numel = type.tensor_size

        def numpy_type_once(type):
            scalar = type.scalar
            if scalar.name not in numpy_types:
                numpy_types[scalar.name] = numpy_type(scalar)
            return numpy_types[scalar.name]

        core.block_type.__new__, core.block_type.__init__ = find_block, make_block_once
        core.tuple.__init__, core.tuple.__getattr__ = make_tuple_lazily, get
        core.tensor.__init__ = make_tensor_quickly
        interpreter._get_np_dtype = numpy_type_once
        assert not interpreter.InterpreterOptions().debug
        semantic.TritonSemantic.binary_op_sanitize_overflow_impl = lambda *_: None

    if not hasattr(interpreter, "patched_for_tests"):
        patch_tensor, convert = interpreter._patch_lang_tensor, interpreter._convert_float
        patch_language, run_grid = interpreter._patch_lang, interpreter.GridExecutor.__call__
        replaced: set[str] = set()  # in the running kernel

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

        cache_types()
        interpreter._patch_lang_tensor, interpreter._convert_float = patch, rounded
        interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_once, run
        interpreter.patched_for_tests = True
