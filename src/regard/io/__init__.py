"""Files and streams: read lines, write results, and write files atomically.

`text_lines` reads lines from files, pipes and typed texts, in any encoding, and rows from CSV files. `formats` opens
outputs and formats their lines, alignments in Pharaoh format and progress bars. `disk` writes files atomically and
holds locks, `reading` reads small files within limits, and `packs` reads runs that are stored in one file.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.io import disk, packs, reading
    from regard.io import lines as text_lines
    from regard.io import results as formats
    from regard.io.encodings import EncodedFile, check_encoding, encoding_of
    from regard.io.inputs import (
        Block,
        DocumentLines,
        LinePairs,
        SourceLines,
        announce_keyboard,
        check_lengths,
        encode_input,
        encode_inputs,
        is_keyboard,
        one_input,
        text_or_file,
        texts_or_files,
    )
    from regard.io.lines import (
        CHUNK,
        CHUNK_CUDA,
        MAX_LINE_CHARACTERS,
        GivenText,
        Say,
        check_file,
        display_name,
        ignore,
        open_file,
        read_chunks,
        read_lines,
        read_whole,
        unequal_lines,
    )
    from regard.io.results import (
        Link,
        Slips,
        UntranslatedReport,
        check_link,
        check_output,
        format_pharaoh,
        open_destination,
        open_output,
        parse_marked_links,
        parse_pharaoh,
        progress_bar,
    )

__all__ = [
    "Block",
    "CHUNK",
    "CHUNK_CUDA",
    "DocumentLines",
    "EncodedFile",
    "GivenText",
    "LinePairs",
    "Link",
    "MAX_LINE_CHARACTERS",
    "Say",
    "Slips",
    "SourceLines",
    "UntranslatedReport",
    "announce_keyboard",
    "check_encoding",
    "check_file",
    "check_lengths",
    "check_link",
    "check_output",
    "disk",
    "display_name",
    "encode_input",
    "encode_inputs",
    "encoding_of",
    "format_pharaoh",
    "formats",
    "ignore",
    "is_keyboard",
    "one_input",
    "open_destination",
    "open_file",
    "open_output",
    "packs",
    "parse_marked_links",
    "parse_pharaoh",
    "progress_bar",
    "read_chunks",
    "read_lines",
    "read_whole",
    "reading",
    "text_lines",
    "text_or_file",
    "texts_or_files",
    "unequal_lines",
]

__getattr__, __dir__ = door(__name__)
