"""`regard classify`: labels of documents or pictures."""

from typing import Annotated

import typer

from regard.cli import options
from regard.cli.messages import print_message
from regard.cli.options import flag_option
from regard.cli.runs import open_run, print_unknown_words
from regard.errors import CommandError

EXAMPLES = (
    'regard classify runs/reviews "The soup was cold and the waiter rude."',
    "regard classify runs/reviews reviews.txt --scores -o labels.tsv",
)


def classify(
    run: options.RunArgument,
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT or FILE",
            help="Document, or a text file with one per line; default: standard input. For a run that reads pictures: "
            "picture files, or folders of them.",
        ),
    ] = None,
    as_text: options.TextOption = False,
    encoding: options.EncodingOption = None,
    scores: Annotated[bool, flag_option("--scores", "Also write the label's probability, after a tab.")] = False,
    as_json: Annotated[bool, flag_option("--json", "Write one JSON object per line, with all probabilities.")] = False,
    out: options.OutOption = None,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
) -> None:
    """Write the label of each document or picture, with a trained run.

    It writes one label per line; with several pictures, each label follows the path and a tab. Without a text or a
    file, it reads standard input as it comes. In a table (.tsv, .csv, .jsonl, .json), it reads the texts and ignores
    labels.
    """
    from regard.data import TableTexts, caption_files
    from regard.io import (
        DocumentLines,
        check_output,
        encode_input,
        formats,
        one_input,
        open_output,
        progress_bar,
        text_or_file,
    )

    inputs = items or []
    check_output(out)
    opened = open_run(run, checkpoint=checkpoint, device=device)
    opened.require("classify")
    if opened.settings.data.reads == "pictures":
        check_output(out, *inputs)
        with open_output(out) as write:
            if not inputs:
                raise CommandError(f"which pictures? {opened.folder} reads pictures; give files, or folders of them")
            files = caption_files.PictureFiles(inputs, print_message)
            for path, pixels in files.read(opened.settings.data):
                place, label = "" if files.single else path, opened.classify([pixels])[0]
                write(formats.label_line({"picture": path}, label, scores, as_json, place))
            files.end()
        return
    documents = encode_input(one_input([text_or_file(each, as_text) for each in inputs]), encoding)
    check_output(out, documents)
    lines = DocumentLines(documents, print_message, TableTexts.of(documents, opened.settings.data, print_message))
    with open_output(out) as write, progress_bar(lines.total, out is not None) as advance:
        for count, text in lines.labelled(opened.classify, scores, as_json):
            write(text)
            advance(count)
    print_unknown_words(opened)
