"""`regard score`: log-probabilities of given targets."""

import math
import sys
from typing import Annotated

from regard.cli import options
from regard.cli.messages import print_message
from regard.cli.options import flag_option, text_option, with_languages
from regard.cli.runs import open_run, print_unknown_words

SourceOption = Annotated[
    str | None,
    text_option("Source, or a text file of sources, one per line; not for a language model.", metavar="TEXT or FILE"),
]
TargetOption = Annotated[
    str | None, text_option("Text to score: the source's translation, or a text file of them.", metavar="TEXT or FILE")
]
EXAMPLES = (
    'regard score runs/en-de --source "A dog." --target "Ein Hund."',
    "regard score runs/en-de --source test.en --target test.de --normalise",
)


@with_languages
def score(
    runs: options.RunsArgument,
    *,
    source: SourceOption = None,
    target: TargetOption = None,
    as_text: options.TextOption = False,
    encoding: options.EncodingOption = None,
    tokens: Annotated[bool, flag_option("--tokens", "Also write the tokens and the log-probability of each.")] = False,
    normalise: Annotated[
        bool, flag_option("--normalise", "Divide by the number of tokens, including the end of the text.")
    ] = False,
    languages: dict[str, str | None],
    as_json: options.JsonLinesOption = False,
    out: options.OutOption = None,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
) -> None:
    """Write the log-probability of each target given its source.

    It writes one natural logarithm per line; the number of pairs and tokens and the perplexity go to standard error.
    """
    from regard.data import read_tables
    from regard.io import LinePairs, check_lengths, check_output, encode_input, formats, open_output, text_or_file

    source, target = (None if each is None else text_or_file(each, as_text) for each in (source, target))
    source, target = encode_input(source, encoding), encode_input(target, encoding)
    line_pairs = LinePairs(source, target, print_message)
    check_output(out, source, target)

    from regard.io import progress_bar

    run = open_run(*runs, checkpoint=checkpoint, device=device, languages=languages)
    line_pairs.check(str(run.folder), not run.settings.row.has_source, run.settings.row.reads)
    read_tables(line_pairs, run.settings.data, print_message)
    limit, pairs, count, total = run.model.limit, 0, 0, 0.0
    with open_output(out) as write, progress_bar(line_pairs.total, out is not None) as advance:
        for sources, targets in line_pairs.chunks():
            ids = run.tokenizers.target.encode_prefixes(targets)  # with the tokens that begin every target
            check_lengths(target, ids, None if limit is None else limit - 1, pairs)
            if sources is not None:
                check_lengths(source, run.tokenizers.source.encode_batch(sources), limit, pairs)
            lines = []
            for i, scored in enumerate(run.score(targets) if sources is None else run.score(sources, targets)):
                pieces = [*run.tokenizers.target.pieces(ids[i]), "</s>"]
                scored_target = formats.ScoredTarget(
                    sources[i] if sources else None, targets[i], scored.log_prob, pieces, scored.tokens
                )
                lines.append(scored_target.line(tokens=tokens, normalise=normalise, as_json=as_json))
                count, total = count + len(scored.tokens), total + scored.log_prob
            write("".join(lines))
            advance(len(lines))
            pairs += len(lines)
    print_unknown_words(run)
    perplexity = f", perplexity {math.exp(min(-total / count, 700)):.4g}" if count else ""
    things = "pair" if source is not None else "line"
    print(f"{pairs:,} {things}{'s' * (pairs != 1)}, {count:,} tokens{perplexity}", file=sys.stderr)
