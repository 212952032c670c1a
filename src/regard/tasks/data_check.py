"""What is wrong with the data of a run, before its first step: what cannot teach is refused, the rest is reported.

The files of training and validation are checked by `regard.data.check`; what a built-in corpus generates is not. With
`anyway`, what would be refused is reported, too.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from regard.data import CorpusSettings, DataSettings, caption_files, data_report, pairs
from regard.errors import DataError
from regard.tasks.settings import Settings

FEW = {"pairs": 3_000, "names": 500, "documents": 200}  # examples from which hardly anything is learned
WORDS = 4  # of a target, from which pairs are sentences, and no names
INSIST = "--anyway trains all the same"


def check_data(settings: Settings, *, based: bool = False, anyway: bool = False) -> list[str]:
    """Check the files of a run; return a line for each thing that is wrong, or raise a DataError for what cannot teach.

    `based` says that training starts from another run, which makes few examples enough; with `anyway` nothing is
    refused.
    """
    lines = list[str]()
    for number, (files, report) in enumerate(report_data(settings)):
        fatal = report.fatal
        if fatal is not None and not anyway:
            raise DataError(f"{files}: {fatal.text}; {INSIST}")
        lines += [f"{files}: {finding.text}" for finding in report.findings]
        if number == 0 and not based and not settings.data.builtin:  # the first that is trained on
            lines += describe_few(settings, files, report)
    return lines


def missing_files(data: DataSettings) -> list[str]:
    """Return the files of the data that are not there."""
    files = [path for corpus in (*data.training, *data.validation) for path in corpus.files]
    files += filter(None, (data.documents, data.valid_documents, data.labels, data.captions, data.valid_captions))
    return [path for path in files if not Path(path).exists()]


def report_data(settings: Settings) -> Iterator[tuple[str, data_report.DataReport]]:
    """Yield the files of each corpus that is trained on or validated on, with the report on it."""
    data = settings.data
    if data.reads == "documents":
        paths = [] if data.builtin else [data.documents, data.valid_documents]
        for path in filter(None, paths):
            corpus = data.labelled(path)
            text, label = corpus.target_column, corpus.source_column
            swap = f"--set data.label_column={label} --set data.text_column={text}"
            yield path, data_report.check_documents(pairs(corpus, labelled=True), swap)
    elif data.reads == "pictures":
        if data.labels:
            labels = caption_files.read_labels(data.encoded(data.labels))
            rows = ((picture.strip(), label.strip()) for picture, label in labels.items())
            yield data.labels, data_report.check_documents(rows, "put the picture first and its label behind it")
        for path in filter(None, (data.captions, data.valid_captions)):
            captions = itertools.chain.from_iterable(caption_files.read_captions(data.encoded(path)).captions.values())
            yield path, data_report.check_texts(captions, "caption", "captions")
    else:
        for corpus in (*data.training, *data.validation):
            files = " and ".join(dict.fromkeys(corpus.files))
            if settings.row.alone:
                yield files, data_report.check_texts(target for _, target in pairs(corpus))
            else:
                yield files, data_report.check_pairs(pairs(corpus), *side_names(corpus))


def side_names(corpus: CorpusSettings) -> list[tuple[str, str]]:
    """Return the names of the files of the two sides, as short as they can be told apart; none where there is one."""
    if corpus.source is None or corpus.target is None or corpus.source == corpus.target:
        return []
    short = Path(corpus.source).name, Path(corpus.target).name
    return [short if short[0] != short[1] else (corpus.source, corpus.target)]


def describe_few(settings: Settings, files: str, report: data_report.DataReport) -> list[str]:
    """Describe what can be expected of few examples, and what to do instead."""
    if settings.data.reads == "documents":
        if report.rows >= FEW["documents"]:
            return []
        return [
            f"{files}: {report.rows:,} documents are few; compare the score with the baselines at the end of training, "
            "and label more if it is no better"
        ]
    if settings.data.reads == "pictures" or settings.row.alone:
        return []
    kind = "pairs" if report.words >= WORDS else "names"
    if report.rows >= FEW[kind]:
        return []
    what = "most new sentences come out wrong" if kind == "pairs" else "many new ones come out wrong"
    return [
        f"{files}: {report.rows:,} pairs are few to learn from alone, and {what}; start from a trained model (regard "
        "import FOLDER --out RUN, then add --from RUN), or give more pairs"
    ]
