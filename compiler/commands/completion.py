"""`parax completion bash|zsh|fish`: a script that completes verbs, options and their choices, made from the parser."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from .console import Console
from .parser import Parser

NAME = "completion"
HELP = "print a shell's script that completes verbs, options and their choices"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="|".join(SCRIPTS),
                        help='to try it: eval "$(parax completion bash)"; to keep it: write it where the shell looks '
                             "for completions")  # fmt: skip


def execute(args: argparse.Namespace, console: Console) -> int:
    """Print it; the exit code."""
    script = SCRIPTS[args.shell](args.root)
    console.result({"shell": args.shell, "script": script}) if console.form == "json" else print(script, end="")
    return 0


def bash(root: Parser) -> str:
    """For bash 4 and later. What no case knows is left to bash, which completes files."""
    cases = []
    for name, verb in root.verbs().items():
        free = []
        for action in _options(verb):
            patterns = "|".join(f'"{name} {flag}"' for flag in action.option_strings)
            if action.choices is not None:
                cases.append(f'        {patterns}) words="{_choices(action)}" ;;')
            elif action.nargs != 0:
                free.append(patterns)
        if free:
            cases.append(f"        {'|'.join(free)}) return 0 ;;")
        flags = " ".join(flag for action in _options(verb) for flag in action.option_strings)
        places = " ".join(_choices(action) for action in verb.places())
        cases.append(f'        "{name} "*) words="{places}"; [[ $word == -* ]] && words="{flags}" ;;')
    return _BASH.format(verbs=" ".join(root.verbs()), root=_flags(root), cases="\n".join(cases))


_BASH = """# bash completion of parax and paraxc, made by `parax completion bash`
_parax() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" verb="${{COMP_WORDS[1]}}" words=""
    [[ "${{COMP_WORDS[0]##*/}}" == paraxc ]] && verb=compile
    # bash takes --option=value for three words
    [[ $previous == "=" ]] && previous="${{COMP_WORDS[COMP_CWORD-2]}}"
    [[ $word == "=" ]] && word=""
    COMPREPLY=()
    if (( COMP_CWORD == 1 )) && [[ "${{COMP_WORDS[0]##*/}}" != paraxc ]]; then
        words="{verbs} {root}"
    else
        case "$verb $previous" in
{cases}
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}}
complete -o default -F _parax parax paraxc
"""


def zsh(root: Parser) -> str:
    """For zsh, in `fpath` under the name _parax, or by eval."""
    verbs = [f"    {_quoted(name + ':' + _colons(root.summary(name)))}" for name in root.verbs()]
    functions = []
    for name, verb in root.verbs().items():
        lines = [
            _quoted(_zsh_flag(flag, action, verb.told(action))) for action in _options(verb)
            for flag in action.option_strings
        ]  # fmt: skip
        for place in verb.places():
            what = f"({_choices(place)})" if place.choices is not None else "_files"
            lines.append(_quoted(f"*:{_colons(str(place.metavar))}:{what}"))
        body = " \\\n    ".join(["_arguments", *lines])
        functions.append(f"_parax_{name}() {{\n  {body}\n}}\n")
    return _ZSH.format(verbs="\n".join(verbs), functions="\n".join(functions), root=_flags(root))


_ZSH = """#compdef parax paraxc
# zsh completion of parax and paraxc, made by `parax completion zsh`
{functions}
_parax() {{
  local -a verbs=(
{verbs}
  )
  if [[ $service == paraxc ]]; then
    _parax_compile
  elif (( CURRENT == 2 )); then
    _describe verb verbs
    compadd -- {root}
  else
    local verb=$words[2]
    shift words
    (( CURRENT-- ))
    (( $+functions[_parax_$verb] )) && _parax_$verb
  fi
}}
if [[ $funcstack[1] == _parax ]]; then _parax "$@"; else compdef _parax parax paraxc; fi
"""


def _zsh_flag(flag: str, action: argparse.Action, text: str) -> str:
    many = "*" if isinstance(action, argparse._AppendAction) else ""
    about = "[" + re.sub(r"([\[\]\\])", r"\\\1", text) + "]"
    if action.nargs == 0:
        return f"{many}{flag}{about}"
    what = f"({_choices(action)})" if action.choices is not None else "_files"
    joined = "=" if flag.startswith("--") else "+"
    return f"{many}{flag}{joined}{about}:{_colons(str(action.metavar or action.dest))}:{what}"


def fish(root: Parser) -> str:
    """For fish, as parax.fish in its folder of completions."""
    lines = ["# fish completion of parax and paraxc, made by `parax completion fish`"]
    lines += [f"complete -c parax -n __fish_use_subcommand {_fish_flag(flag)}" for flag in _flags(root).split()]
    for name, verb in root.verbs().items():
        about = _fish_quoted(root.summary(name))
        lines.append(f"complete -c parax -n __fish_use_subcommand -f -a {name} -d {about}")
        places = [f"-f -a {_fish_quoted(_choices(place))}" for place in verb.places() if place.choices is not None]
        described = [*(_fish_option(action, verb.told(action)) for action in _options(verb)), *places]
        seen = _fish_quoted(f"__fish_seen_subcommand_from {name}")
        lines += [f"complete -c parax -n {seen} {option}" for option in described]
        if name == "compile":
            lines += [f"complete -c paraxc {option}" for option in described]
    return "\n".join(lines) + "\n"


def _fish_option(action: argparse.Action, text: str) -> str:
    words = [_fish_flag(flag) for flag in action.option_strings]
    if action.choices is not None:
        words.append(f"-x -a {_fish_quoted(_choices(action))}")
    elif action.nargs != 0:
        words.append("-r")
    return " ".join([*words, f"-d {_fish_quoted(text)}"])


def _fish_flag(flag: str) -> str:
    return f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"


def _options(parser: Parser) -> list[argparse.Action]:
    return [action for _, actions in parser.groups() for action in actions]


def _flags(parser: Parser) -> str:
    return " ".join(flag for action in _options(parser) for flag in action.option_strings)


def _choices(action: argparse.Action) -> str:
    return " ".join(map(str, action.choices or ()))


def _colons(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: dict[str, Callable[[Parser], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
