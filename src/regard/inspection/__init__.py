"""What a model looked at, for people: pictures now, pages later."""

from regard.inspection.picture import bars, heatmap, save, svg

__all__ = ["bars", "heatmap", "save", "svg"]
