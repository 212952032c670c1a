"""Studies stand in `regard_studies`: what older plugins import from here is forwarded, with one warning."""

from regard.door import forward

__getattr__ = forward(__name__, "regard_studies")
