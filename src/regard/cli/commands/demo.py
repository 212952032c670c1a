"""`regard demo`: a small model trained, used and shown."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

from regard import plugins
from regard.cli.options import SEED, flag_option, number_option, out_option

EXAMPLES = ("regard demo", "regard demo --lineage")


def demo(
    lineage: Annotated[bool, flag_option("--lineage", "Train three models, to show what attention is for.")] = False,
    out: Annotated[
        Path | None, out_option("Run folder to write; default: runs/demo, with --lineage runs/lineage.", "RUN")
    ] = None,
    seed: Annotated[
        int, number_option("Random seed for weights, dropout and the order of batches.", least=0, most=SEED)
    ] = 0,
    steps: Annotated[
        int | None, number_option("Number of training steps.", least=1, most=1_000_000_000, show_default=False)
    ] = None,
) -> None:
    """Train a small model in two minutes and show what it looks at.

    The model is a Transformer, trained from scratch on a built-in corpus; --lineage compares three models.
    """
    from regard.io import check_link

    corpora = plugins.home("corpus")
    if out is not None:
        check_link(out, "--out")
    if lineage:
        folder = out or Path("runs/lineage")
        for kind in corpora.MODELS:
            corpora.remove_earlier(folder / kind)
        comparison = corpora.compare(folder, seed=seed, steps=steps)
        print(comparison.table())
        print(f"\nplot: {comparison.picture}", file=sys.stderr)
        return

    from regard.inspection import bars

    folder = out or Path("runs/demo")
    corpora.remove_earlier(folder)
    print("training a Transformer from scratch, English to German (about two minutes)", file=sys.stderr)
    result = corpora.demonstrate(folder, steps=steps or corpora.STEPS, seed=seed)
    for example, output, aligned in result.alignments:
        right = "right" if output == example.target else f"expected: {example.target}"
        print(f"\n{example.source}\n{output}   ({right})\n")
        print(bars(aligned.weights, aligned.source, aligned.target))
    print(f"\nIt translates {result.exact:.1%} of {result.tests:,} held-out sentences exactly.")
    run = shlex.quote(str(folder))
    following = {
        str(result.report): "see how the training went",
        str(result.picture): "see one alignment as a picture",
        f'regard translate {run} "I ate pizza yesterday"': "translate a sentence of yours",
        f'regard look {run} "I ate pizza yesterday"': "see everything it attended to",
        "regard demo --lineage": "compare it with models that came before it",
        "regard train --source A --target B --out RUN": "train on two text files of your own",
        f"regard serve {run} --open": "translate in your browser, as you type",
    }
    print("\nWhat next:")
    for command, why in following.items():
        print(f"  {command}\n      {why}")
