"""The features of an attention call, by name: a call in plain data, for the table of backends.

Every field of `Call` and of `SpanLimits` that changes what is computed is a feature or a size here, and a backend that
does not list a feature refuses it. Nothing here knows the classes of `regard.attention`.
"""

BILINEAR, ADDITIVE, OTHER_SCORES = "bilinear scores", "additive scores", "scores of another form"
SCORES = {"bilinear": BILINEAR, "additive": ADDITIVE}
SOFTMAX, OTHER_WEIGHTS = "softmax", "weights of another kind"
WEIGHTS = {
    "softmax": SOFTMAX,
    "hard": "hard weights",
    "gumbel": "gumbel weights",
    "sparsemax": "sparsemax",
    "plain": "plain weights",
}
TEMPERATURE, DROPOUT, GRADIENT = "a temperature", "dropout on the weights", "a backward pass"
LENGTHS = "lengths"
CAUSAL, CAUSAL_FROM, CAUSAL_ROWS = "causality", "causality from a number", "causality from one start a row"
WINDOW, WINDOW_FROM, WINDOW_ROWS = "a window", "a window from a number", "a window from one start a row"
CENTRES, WINDOWS, GAUSSIAN = "predicted centres", "several windows", "a Gaussian around a window's centre"
ALIBI, ALIBI_FROM, ALIBI_ROWS = "ALiBi", "ALiBi from a number", "ALiBi from one start a row"
ALIBIS = "several ALiBis"
MASK, BIAS, BIAS_GRADIENT, GATE = "a mask", "a bias", "the gradient of a bias", "a gate behind the weights"
PACKED, PACKED_KEYS = "packed sequences", "packed keys of other lengths than the queries"
BESIDE_PACKED = "a span beside Packed that is not Causal()"

CAUSALITY = frozenset({CAUSAL, CAUSAL_FROM, CAUSAL_ROWS})
ONE_WINDOW = frozenset({WINDOW, WINDOW_FROM, WINDOW_ROWS, CENTRES})
MASKED = frozenset({LENGTHS, MASK, WINDOWS}) | CAUSALITY | ONE_WINDOW  # what `SpanLimits.mask` says of a span
BIASED = frozenset({BIAS, ALIBI, ALIBI_FROM, ALIBI_ROWS, ALIBIS})  # what `SpanLimits.bias` says
