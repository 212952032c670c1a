"""Try a tokenizer.json in a separate program with limits, so that a crash ends only that program.

It reads {"tokenizer": …, "texts": […]} from its standard input. It ends with status 0 and without a word where the
tokenizer loads and takes every text, else with the reason as the last line of standard error. A tokenizer may also
panic, abort or run into the limits, and the process ends as it may.
"""

import json
import sys
import time

MEMORY = 3 * 2**30  # bytes of addresses, what Python itself takes among them
SECONDS = 20  # of the processor, for all
SLOW = 2.0  # seconds for one text of a few hundred characters


def main() -> None:
    """Load the tokenizer, and encode and decode some texts."""
    if sys.platform != "win32":  # where only the clock ends it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import tokenizers

    request = json.loads(sys.stdin.buffer.readline())
    tokenizer = tokenizers.Tokenizer.from_str(request["tokenizer"])
    tokenizer.encode_special_tokens = True
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for text in request["texts"]:
        start = time.perf_counter()
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.decode(ids, skip_special_tokens=False)
        if time.perf_counter() - start > SLOW:
            sys.exit(f"it takes {time.perf_counter() - start:.0f} s for a text of {len(text)} characters")


if __name__ == "__main__":
    main()
