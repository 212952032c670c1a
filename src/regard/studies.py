"""Studies stand in `regard_studies`: what older plugins import from here, or from `page` in it, is forwarded."""

import sys
from types import ModuleType

from regard.door import forward

__getattr__ = forward(__name__, "regard_studies")
page = sys.modules[f"{__name__}.page"] = ModuleType(f"{__name__}.page", "Pages of studies, of `regard_studies.page`.")
vars(page)["__getattr__"] = forward(page.__name__, "regard_studies.page")
