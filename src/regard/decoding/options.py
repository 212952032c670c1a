"""Options of search, shared by all models and commands, and the results of a search."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from regard.config import option
from regard.errors import ConfigError, NotFiniteError


@dataclass(frozen=True)
class Options:
    """Options of greedy search, beam search and sampling, and limits on the output."""

    beam: int = option(5, "number of hypotheses (beam size); 1 is greedy search", least=1, most=10_000)
    nbest: int = option(
        1, "number of outputs for each input, at most the beam; with sampling, any number", least=1, most=10_000
    )
    length_penalty: float = option(
        0.6, "length penalty, GNMT's α: log P is divided by ((5 + length) / 6)^α", least=0, most=10
    )
    coverage_penalty: float = option(
        0.0,
        "coverage penalty, GNMT's β: what an output loses for source words that it did not attend to",
        least=0,
        most=1000,
    )
    shortest: int = option(0, "minimum number of tokens in an output", least=0, most=1_048_576)
    longest: int | None = option(
        None,
        "maximum number of tokens in an output; default: twice as many as its source has, plus 20",
        least=0,
        most=1_048_576,
    )
    no_repeat: int = option(0, "size of n-grams that an output may not repeat; 0: none", least=0, most=1000)
    groups: int = option(1, "number of groups of a diverse beam search", least=1, most=10_000)
    diversity: float = option(
        0.5, "penalty for a token that an earlier group has chosen at the same step", least=0, most=1_000_000
    )
    sample: bool = option(False, "sample each token at random instead of searching")
    temperature: float = option(
        1.0, "temperature of sampling; below 1, likely tokens are sampled more often", above=0, most=1_000_000
    )
    top_k: int = option(0, "number of most likely tokens to sample from; 0: all", least=0, most=1_048_576)
    top_p: float = option(
        1.0,
        "nucleus to sample from: the most likely tokens whose probabilities add up to this; 1: all",
        above=0,
        most=1,
    )
    seed: int = option(0, "seed of sampling", least=0, most=2**63 - 1)
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto", "number format for many sentences: bf16 or fp32; auto is bf16 on a GPU and fp32 elsewhere"
    )

    def __post_init__(self) -> None:
        """Raise an error for options that contradict each other."""
        if not self.sample and self.nbest > self.beam:
            raise ConfigError("nbest", f"{self.nbest} given, expected at most the beam, {self.beam}")
        if self.beam % self.groups:
            raise ConfigError("groups", f"a beam of {self.beam} is not divisible by {self.groups}")
        if self.sample and self.groups > 1:
            raise ConfigError("groups", f"{self.groups} given with sampling, which has no beam to divide")
        if self.longest is not None and self.longest < self.shortest:
            raise ConfigError("longest", f"{self.longest} given, less than shortest, {self.shortest}")


GREEDY = Options(beam=1)


# ---- results of a search


class Output(NamedTuple):
    """One output, with its tokens without END."""

    tokens: list[int]
    log_prob: float  # of the tokens and END, as `score` computes it for the pair
    score: float  # the log-probability with the penalties, by which outputs are sorted
    finished: bool  # the model chose END; False: the output reached its limit


class Candidate(NamedTuple):
    """A candidate of one step: a hypothesis of the step before, continued by a token."""

    parent: int  # the row of the hypothesis in the step before
    token: int
    log_prob: float  # of all tokens so far
    fate: Literal["kept", "finished", "dropped"]
    row: int | None  # if kept, its row, which is the `parent` of the next step's candidates


@dataclass
class SearchResult:
    """The outputs for one sentence, best first (samples in the order of their rows), and its steps if traced."""

    outputs: list[Output] = field(default_factory=list)
    steps: list[list[Candidate]] | None = None


def check_outputs(outputs: list[Output]) -> None:
    """Raise an error if a search found no output because every possible output has probability zero."""
    if not outputs:
        raise NotFiniteError(
            "the search found no output with a probability above zero: the model cannot produce the given prefix, "
            "or its scores are not finite (NaN or infinity)"
        )
