"""The argument parser of every command: one message for what it does not understand, with what may have been meant;
help that begins with a verb's own options; and what it takes, for completion and the manual page.

Owns how the command line refuses and how it is described; knows no verb and no option by name.
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
        self._aside: dict[argparse.Action, str | None] = {}  # left out of --help → its help

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

    def complete(self, aside: Sequence[str] = ()) -> None:
        """Once all options are there: a short usage, and --help-all for the groups of the titles in `aside`."""
        places = (action.metavar if action.nargs is None else f"[{action.metavar}]" for action in self.places())
        self.usage = " ".join((f"{self.prog} [options]", *map(str, places)))
        for title, actions in self.groups():
            if title in aside:
                self._aside |= {action: action.help for action in actions}
        for action in self._aside:
            action.help = argparse.SUPPRESS
        text = f"show all options: also those for {', '.join(aside)}" if self._aside else argparse.SUPPRESS
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help=text)

    def print_everything(self) -> None:
        """Help with the groups that --help leaves out."""
        for action, text in self._aside.items():
            action.help = text
        self.print_help()

    def groups(self) -> list[tuple[str, list[argparse.Action]]]:
        """Every group of options that is not empty, with its title."""
        filled = [(group.title or "", list(group._group_actions)) for group in self._action_groups]
        return [(title, found) for title, actions in filled if (found := [a for a in actions if a.option_strings])]

    def places(self) -> list[argparse.Action]:
        """The arguments that are no options, in order; not the verbs."""
        verbs = argparse._SubParsersAction
        return [a for a in self._actions if not a.option_strings and not isinstance(a, verbs)]

    def verbs(self) -> dict[str, Parser]:
        """Name → parser of every verb, in order."""
        found = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return {name: verb for action in found for name, verb in action.choices.items()}

    def summary(self, verb: str) -> str:
        """What a verb does, in the words of the list of verbs."""
        found = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        texts = {choice.dest: choice.help for action in found for choice in action._choices_actions}
        return texts[verb] or ""

    def told(self, action: argparse.Action) -> str:
        """The help of an action, also where --help leaves it out."""
        text = self._aside.get(action, action.help)
        return "" if text in (None, argparse.SUPPRESS) else str(text) % {**vars(action), "prog": self.prog}


class _HelpAll(argparse.Action):
    """--help-all."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        parser.print_everything()
        parser.exit()


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean --dim?` where something known is like the word, else None. Dashes and case do not count."""
    ordered = sorted(known, key=lambda text: (len(text), text.islower()))  # the last one of its letters counts
    by_letters = {text.lstrip("-").lower(): text for text in ordered}
    close = difflib.get_close_matches(word.lstrip("-").lower(), by_letters, n=1)
    return f"did you mean {by_letters[close[0]]}?" if close else None
