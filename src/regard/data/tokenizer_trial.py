"""Try a tokenizer.json in a separate program with limits, so that a crash ends only that program.

It reads {"tokenizer": …, "texts": […]} from standard input. If the tokenizer loads and handles every text, the program
exits silently with status 0; otherwise it writes the reason as the last line of standard error. A tokenizer may also
panic, abort or hit a limit, and end the process that way.
"""

import json
import sys
import time

MEMORY = 3 * 2**30  # maximum bytes of address space, including Python's own
SECONDS = 20  # maximum processor time in total
SLOW = 2.0  # maximum seconds for a text of a few hundred characters


def main() -> None:
    """Load the tokenizer; encode and decode some texts."""
    if sys.platform != "win32":  # Windows has no such limits; the caller's time-out ends the process
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
