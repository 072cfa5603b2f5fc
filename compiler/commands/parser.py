"""The argument parser of every command: one message for what it does not understand, with what may have been meant.

Owns how the command line refuses; knows no verb and no option by name.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ...errors import UsageError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError instead of printing its usage and leaving."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **kwargs}
        super().__init__(*args, **given)
        self._given: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, but what is not known is an error of the parser that met it: it knows what may be meant.

        Raises:
            UsageError: an option or argument that the command does not have, or one that is wrong.
        """
        self._given = list(args or ())
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse_options(unknown)
            raise UsageError("too many arguments", where=self.prog, found=" ".join(unknown), hint=self._see_help())
        return found, unknown

    def _refuse_options(self, words: Sequence[str]) -> None:
        """Refuse the first of the words that is an option and none of this command's; return where there is none."""
        known = self._option_string_actions
        for word in words:
            option = word.partition("=")[0]
            if option.startswith("-") and option.strip("-") and not (option in known or option[:2] in known):
                hint = did_you_mean(option, known) or self._see_help()
                raise UsageError(f"no such option: {option}", where=self.prog, hint=hint)

    def error(self, message: str) -> NoReturn:
        """What argparse found wrong, as the one message: `--modle m.onnx` lacks a model because of its spelling."""
        self._refuse_options([word for word in self._given if word.startswith("--")])
        raise UsageError(message, where=self.prog, hint=self._see_help())

    def _see_help(self) -> str:
        return f"`{self.prog} --help` lists what there is"


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean --dim?` where something known is like the word, else None. Dashes in front do not count."""
    by_letters = {text.lstrip("-"): text for text in sorted(known, key=len)}
    close = difflib.get_close_matches(word.lstrip("-").lower(), by_letters, n=1)
    return f"did you mean {by_letters[close[0]]}?" if close else None
