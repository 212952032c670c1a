"""Run commands in this process as a user would type them."""

from click.testing import Result
from typer.testing import CliRunner

from regard.cli.program import app


class Command:
    """One command of `regard`."""

    def __init__(self, name: str):
        self.name = name

    def typed(self, *arguments, stdin: str | bytes | None = None) -> Result:
        """Run the command and return its result; raise any exception except SystemExit."""
        shown = CliRunner().invoke(app, [self.name, *map(str, arguments)], input=stdin)
        if shown.exception is not None and not isinstance(shown.exception, SystemExit):
            raise shown.exception
        return shown

    def right(self, *arguments, stdin: str | bytes | None = None) -> Result:
        """Run the command, check that it succeeds and return its result."""
        shown = self.typed(*arguments, stdin=stdin)
        assert shown.exit_code == 0, shown.output
        return shown

    def said(self, *arguments, stdin: str | bytes | None = None, silent: bool = False) -> list[str]:
        """Return the lines on standard output of a successful command; `silent` demands an empty standard error."""
        shown = self.right(*arguments, stdin=stdin)
        assert not (silent and shown.stderr), shown.stderr
        return shown.stdout.splitlines()

    def refused(self, *arguments, stdin: str | bytes | None = None) -> str:
        """Check that the command fails with status 2, and return its one sentence on standard error."""
        shown = self.typed(*arguments, stdin=stdin)
        assert shown.exit_code == 2, shown.output
        assert shown.stdout == ""
        assert shown.stderr.startswith("regard: ")
        assert shown.stderr.count("\n") == 1, shown.stderr
        return shown.stderr.removeprefix("regard: ").strip()
