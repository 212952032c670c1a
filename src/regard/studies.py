"""The old name of `regard_studies`: forwards the names that older plugins import from here, or from its `page`."""

import sys
from types import ModuleType

from regard.door import forward

__getattr__ = forward(__name__, "regard_studies")
page = sys.modules[f"{__name__}.page"] = ModuleType(f"{__name__}.page", "Pages of studies, of `regard_studies.page`.")
vars(page)["__getattr__"] = forward(page.__name__, "regard_studies.page")
