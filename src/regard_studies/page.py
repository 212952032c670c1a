"""A study's page: the claim, the measurements, and whether they agree.

A `Page` is plain data. `write` saves it in a folder as one self-contained HTML file, as Markdown with separate
pictures, and as JSON with every number. `write_index` lists all pages of a folder in one table.
"""

import dataclasses
import json
import math
import platform
import time
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from regard.errors import DataError
from regard.inspection import Cell, Table, document, figure_element, show, table_element
from regard.io import disk
from regard_studies import STUDIES, Setting

if typing.TYPE_CHECKING:
    import torch

__all__ = [
    "Page",
    "Part",
    "Plot",
    "Signature",
    "Table",
    "Verdict",
    "markdown_table",
    "precision",
    "show",
    "signed",
    "signed_training",
    "write_index",
]


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure with its file name, a caption, and a description for people who cannot see it."""

    name: str
    figure: Figure
    caption: str
    alt: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim, whether the numbers agree with it, and the numbers."""

    claim: str
    agrees: bool
    evidence: str

    @property
    def word(self) -> str:
        """Return "agrees" or "does not agree"."""
        return "agrees" if self.agrees else "does not agree"


@dataclasses.dataclass(frozen=True)
class Signature:
    """The signature of a page: everything that is needed to reproduce its numbers."""

    regard: str
    torch: str
    python: str
    device: str
    dtype: str
    seed: int
    quick: bool
    threads: int
    seconds: float
    seeds: tuple[int, ...] = ()  # seeds of trained systems
    corpus: str = ""  # name of the real corpus of trained systems

    def command(self, name: str) -> str:
        """Return the command that repeats the study."""
        seeds = f"--seeds {','.join(map(str, self.seeds))}" if self.seeds else f"--seed {self.seed}"
        return f"regard study {name} {seeds}{' --quick' * self.quick}{' --data FOLDER' * bool(self.corpus)}"

    def __str__(self) -> str:
        parts = [f"regard {self.regard}", f"torch {self.torch}", f"Python {self.python}", self.device, self.dtype]
        several = len(self.seeds) > 1
        parts.append(f"seeds {', '.join(map(str, self.seeds))}" if several else f"seed {self.seed}")
        parts += [self.corpus] * bool(self.corpus)
        if self.quick:
            parts.append("quick")
        threads = "thread" if self.threads == 1 else "threads"
        return " · ".join([*parts, f"{self.threads} {threads}", f"{self.seconds:.1f} s"])


@dataclasses.dataclass(kw_only=True)
class Part:
    """A part of a page: descriptions, tables, plots, verdicts and caveats; also the trained part of a study."""

    measured: Sequence[str]
    tables: Sequence[Table]
    plots: Sequence[Plot]
    verdicts: Sequence[Verdict]
    caveats: Sequence[str]
    signature: Signature


@dataclasses.dataclass(kw_only=True)
class Page(Part):
    """The result of a study."""

    name: str
    title: str
    claim: str
    source: str

    def joined(self, part: Part) -> "Page":
        """Return the page with the trained part first, with that part's signature and the time of both."""
        names = ("measured", "tables", "plots", "verdicts", "caveats")
        both: dict[str, typing.Any] = {name: [*getattr(part, name), *getattr(self, name)] for name in names}
        seconds = round(self.signature.seconds + part.signature.seconds, 2)
        return dataclasses.replace(self, **both, signature=dataclasses.replace(part.signature, seconds=seconds))

    def html(self) -> str:
        """Render the page as one HTML file that needs no network."""
        body = [
            f'<p class="eyebrow">Regard · study · {escape(self.name)}</p>',
            f"<h1>{escape(self.title)}</h1>",
            f"<blockquote><p>{escape(self.claim)}</p><cite>{escape(self.source)}</cite></blockquote>",
            "<h2>What agrees and what does not</h2>",
            '<ul class="verdicts">',
            *[_verdict_html(verdict) for verdict in self.verdicts],
            "</ul>",
            "<h2>What was measured</h2>",
            *[f"<p>{escape(paragraph)}</p>" for paragraph in self.measured],
            *[figure_element(plot.figure, i, caption=plot.caption, alt=plot.alt) for i, plot in enumerate(self.plots)],
            *[table_element(table) for table in self.tables],
        ]
        if self.caveats:
            body += [
                "<h2>What this does not show</h2>",
                "<ul>",
                *[f"<li>{escape(each)}</li>" for each in self.caveats],
                "</ul>",
            ]
        again = self.signature.command(self.name)
        body.append(f"<footer><p>{escape(str(self.signature))}</p><p>Again: <code>{escape(again)}</code></p></footer>")
        return document(self.title, body)

    def markdown(self) -> str:
        """Render the page as Markdown that refers to pictures in the same folder."""
        parts = [f"# {self.title}", f"> {self.claim}", f"— {self.source}", "## What agrees and what does not"]
        parts.append("\n".join(f"- **{v.word.capitalize()}**: {v.claim} — {v.evidence}" for v in self.verdicts))
        parts += ["## What was measured", *self.measured]
        for plot in self.plots:
            parts += [f"![{plot.alt}]({plot.name}.png)", f"*{plot.caption}*"]
        for each in self.tables:
            parts += [f"### {each.caption}", markdown_table(each)]
            if each.note:
                parts.append(each.note)
        if self.caveats:
            parts += ["## What this does not show", "\n".join(f"- {caveat}" for caveat in self.caveats)]
        parts += [
            "## Signature",
            str(self.signature),
            f"Again with `{self.signature.command(self.name)}`; every number is in `results.json`.",
        ]
        return "\n\n".join(parts) + "\n"

    def results(self) -> dict[str, object]:
        """Return every number in types of JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "claim": self.claim,
            "source": self.source,
            "tables": [
                {
                    "caption": table.caption,
                    "columns": list(table.columns),
                    "rows": [[_plain(cell) for cell in row] for row in table.rows],
                }
                for table in self.tables
            ],
            "verdicts": [dataclasses.asdict(verdict) for verdict in self.verdicts],
            "signature": dataclasses.asdict(self.signature),
        }

    def write(self, out: str | Path) -> Path:
        """Write index.html, README.md, the pictures and results.json into `out`/`name`; return the HTML file."""
        from regard.inspection import save

        folder = Path(out) / self.name
        folder.mkdir(parents=True, exist_ok=True)
        for plot in self.plots:
            save(plot.figure, folder / f"{plot.name}.png")
        disk.write_whole(folder / "README.md", self.markdown())
        results = json.dumps(self.results(), indent=2, ensure_ascii=False, allow_nan=False)
        disk.write_whole(folder / "results.json", results + "\n")
        return disk.write_whole(folder / "index.html", self.html())


def _verdict_html(verdict: Verdict) -> str:
    kind = "agrees" if verdict.agrees else "differs"
    return (
        f'<li class="{kind}"><p><span class="word">{verdict.word.capitalize()}:</span> {escape(verdict.claim)}</p>'
        f'<p class="evidence">{escape(verdict.evidence)}</p></li>'
    )


def markdown_table(each: Table) -> str:
    """Render a table as Markdown, with right-aligned numbers."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in [list(each.columns), *each.text_rows()]]
    rule = ["---:" if right else ":---" for right in each.numeric()]
    return "\n".join("| " + " | ".join(row) + " |" for row in [escaped[0], rule, *escaped[1:]])


@contextmanager
def signed(
    *, seed: int, quick: bool, dtype: str, setting: Setting | None = None, corpus: str = ""
) -> Iterator["Clock"]:
    """Fix the random seed and the number of threads for a study, and time it; restore both afterwards.

    A study without training uses one thread: its matrices are small, and sums then do not depend on the number of
    cores. With a `setting`, training uses all threads; `corpus` is the name of its real corpus.
    """
    import torch

    import regard

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    if setting is None:
        torch.set_num_threads(1)
    torch.manual_seed(seed)
    seeds, device = ((), "cpu") if setting is None else (setting.seeds, setting.where)
    facts = Signature(
        regard=regard.__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        device=device,
        dtype=dtype,
        seed=seed,
        quick=quick,
        threads=1,
        seconds=0.0,
        seeds=seeds,
        corpus=corpus,
    )
    try:
        yield Clock(facts, time.perf_counter())
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def signed_training(setting: Setting, corpus: str = "") -> typing.ContextManager["Clock"]:
    """Time and sign a study that trains; `corpus` names the real corpus and is ignored if the setting has none."""
    return signed(
        seed=setting.seeds[0],
        quick=setting.quick,
        dtype="float32" if setting.where == "cpu" else "bfloat16 and float32",
        setting=setting,
        corpus=corpus if setting.corpora is not None else "",
    )


@contextmanager
def precision(dtype: "torch.dtype") -> Iterator[None]:
    """Create new tensors and modules in `dtype` inside the block."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclasses.dataclass(frozen=True)
class Clock:
    """A clock that starts with a study and completes its signature at the end."""

    facts: Signature  # with PyTorch's name of the device, and without the final threads and time
    began: float

    def signature(self) -> Signature:
        """Return the signature with the time until now."""
        import torch

        device, seconds = self.facts.device, round(time.perf_counter() - self.began, 2)
        own = f"{'Apple GPU' if device == 'mps' else 'CPU'} ({platform.machine()})"
        device = torch.cuda.get_device_name(device) if device.startswith("cuda") else own
        return dataclasses.replace(self.facts, device=device, threads=torch.get_num_threads(), seconds=seconds)


def _plain(cell: Cell) -> Cell:
    """Convert a value to a type of JSON: infinity and NaN become None."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


# ---- all pages of a folder in one table

TITLE = "The papers' claims, and what came out"
ABOUT = (
    "Each line is a study that `regard study NAME` runs: systems side by side on the same data with the same budget. "
    "Its page has the tables and plots, what agrees and what does not, and the command that does it again."
)
DIFFERENCES = "What does not agree"
STYLE = "main { max-width: 76rem; } td { vertical-align: top; min-width: 7rem; } td:nth-child(3) { min-width: 4rem; }\n"
NARROW = """@media (max-width: 40rem) { thead { display: none; } table, tbody, tr, td { display: block; }
  tr { padding: .7rem 0; border-bottom: 1px solid var(--rule); } .wide td { border: 0; padding: .1rem 0;
  max-width: none; position: static; } td:first-child { font-weight: 600; font-size: .95rem; }
  td:not(:first-child)::before { content: attr(data-column) ": "; color: var(--faint); } }
"""
COLUMNS = ["study", "claim", "agrees", "source", "measured on"]


def write_index(out: Path) -> Path:
    """Write index.md and index.html into the folder of the studies; return the path of the Markdown file."""
    pages = read_results(out)
    rows = [[f"[{each['name']}]({each['name']}/README.md)", *cells_of(each)] for each in pages]
    claims_of = {each["name"]: [v["claim"] for v in each["verdicts"] if not v["agrees"]] for each in pages}
    differences = {name: claims for name, claims in claims_of.items() if claims}
    parts = [f"# {TITLE}", ABOUT, markdown_table(Table(TITLE, COLUMNS, rows))]
    if differences:
        lists = [
            f"**{name}**\n\n" + "\n".join(f"- {claim}" for claim in claims) for name, claims in differences.items()
        ]
        parts += [f"## {DIFFERENCES}", *lists]
    markdown = disk.write_whole(out / "index.md", "\n\n".join(parts) + "\n")
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    body = [
        '<p class="eyebrow">Regard · studies</p>',
        f"<h1>{escape(TITLE)}</h1>",
        f"<p>{escape(ABOUT.replace('`', ''))}</p>",
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>',
        *[html_row(each) for each in pages],
        "</tbody></table></div>",
        *([f"<h2>{DIFFERENCES}</h2>"] if differences else []),
    ]
    for name, claims in differences.items():
        items = "".join(f"<li>{escape(claim)}</li>" for claim in claims)
        body.append(f"<h3>{escape(name)}</h3><ul>{items}</ul>")
    disk.write_whole(out / "index.html", document(TITLE, body, STYLE + NARROW))
    return markdown


def read_results(out: Path) -> list[dict[str, typing.Any]]:
    """Read the results of each study in the folder, in the order of `STUDIES`."""
    by_name = {}
    for path in out.glob("*/results.json"):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
            by_name[str(results["name"])] = results
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: not the results of a study; remove it, or run the study again") from None
    order = list(STUDIES)
    return sorted(by_name.values(), key=lambda each: order.index(each["name"]) if each["name"] in order else len(order))


def cells_of(results: Mapping[str, typing.Any]) -> list[str]:
    """Build the cells after a study's name in its row."""
    verdicts, signed = results["verdicts"], results["signature"]
    agreeing = [each for each in verdicts if each["agrees"]]
    trained = bool(signed.get("seeds"))
    seeds = signed["seeds"] if trained else [signed["seed"]]
    where = [signed.get("corpus") or ("what is built in" if trained else "nothing trained"), signed["device"]]
    where.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
    where += ["quick"] * bool(signed["quick"])
    counted = f"{len(agreeing)} of {len(verdicts)}"
    study = STUDIES.get(results["name"])
    claim = results["claim"] if study is None else study.claim
    return [claim, counted, results["source"], ", ".join(where)]


def html_row(results: Mapping[str, typing.Any]) -> str:
    """Render a row of the HTML table."""
    name = escape(results["name"])
    named = zip(COLUMNS[1:], cells_of(results), strict=True)
    cells = "".join(f'<td data-column="{column}">{escape(cell)}</td>' for column, cell in named)
    return f'<tr><td><a href="{name}/index.html">{name}</a></td>{cells}</tr>'
