"""Models in and out: runs made from other toolkits' folders, folders for other toolkits, and a run in one file.

`import_model`, `export_model`, `verify_export` and `pack`; the table of formats; exported folders, and engines on them.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.interop.ctranslate2 import convert, library
    from regard.interop.export import export_model, verify_export
    from regard.interop.exported import open_engine
    from regard.interop.formats import (
        Format,
        check_model_folder,
        check_new,
        find_format,
        is_export,
        read_manifest,
        recognise,
    )
    from regard.interop.importing import import_model
    from regard.interop.marian import marian_tensors
    from regard.interop.run_pack import pack

__all__ = [
    "Format",
    "check_model_folder",
    "check_new",
    "convert",
    "export_model",
    "find_format",
    "import_model",
    "is_export",
    "library",
    "marian_tensors",
    "open_engine",
    "pack",
    "read_manifest",
    "recognise",
    "verify_export",
]

__getattr__, __dir__ = door(__name__)
