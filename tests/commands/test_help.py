"""Help, completion and the manual page: all of them made from the parsers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from parax import env
from parax.compiler import cli
from parax.compiler.commands import completion, man

Capture = pytest.CaptureFixture[str]
VERBS = [verb.NAME for verb in cli.VERBS]
THAT_COMPILE = ("bench", "profile", "compare", "plan", "verify", "reduce")


def shown(capsys: Capture, *words: str, script: str = "main") -> str:
    with pytest.raises(SystemExit) as left:
        getattr(cli, script)(list(words))
    assert left.value.code == 0
    return capsys.readouterr().out


def flags_in(text: str) -> list[str]:
    return re.findall(r"(?m)^  (?:-\w(?: \S+)?, )?(--?[\w-]+)", text)


@pytest.mark.parametrize("verb", VERBS)
def test_help_all_has_every_option_and_help_a_part_in_the_same_order(verb: str, capsys: Capture) -> None:
    part, everything = flags_in(shown(capsys, verb, "--help")), flags_in(shown(capsys, verb, "--help-all"))
    of_parser = cli.parax_parser().verbs()[verb].groups()
    known = {flag for _, actions in of_parser for action in actions for flag in action.option_strings}
    assert set(everything) | {"--help-all"} == {flag for flag in known if flag.startswith("--") or flag == "-O"}
    assert part == [flag for flag in everything if flag in part]
    assert ("--help-all" in part) == (verb in THAT_COMPILE)


@pytest.mark.parametrize("verb", THAT_COMPILE)
def test_a_verbs_own_options_come_first_and_the_compilations_are_set_aside(verb: str, capsys: Capture) -> None:
    part, everything = shown(capsys, verb, "--help"), shown(capsys, verb, "--help-all")
    for flag in ("-O", "--target", "--tune-seconds", "--no-cache", "--hint"):
        assert flag not in flags_in(part) and flag in flags_in(everything)
    assert part.index("--batch") < part.index("\nsizes:") < part.index("--dim")
    assert "--help-all" in part and "show all options: also those for the plan, the code" in " ".join(part.split())
    assert part.startswith(f"usage: parax {verb} [options] ") and part.splitlines()[1] == ""


@pytest.mark.parametrize(("script", "words"), [("paraxc", ()), ("main", ("compile",))])
def test_compile_shows_its_options_in_groups(script: str, words: tuple[str, ...], capsys: Capture) -> None:
    text = shown(capsys, *words, "--help", script=script)
    titles = re.findall(r"(?m)^(\S.*):$", text)
    assert titles[:7] == [
        "positional arguments",
        "options",
        "sizes",
        "the plan",
        "the code",
        "precision",
        "the compilation's own work",
    ]
    assert "--target" in text and "--max-memory" in text and "--help-all" not in text


def test_all_options_work_that_help_leaves_out(capsys: Capture) -> None:
    args = cli.parax_parser().parse_args(["verify", "m.onnx", "-O", "0", "--target", "x86-64-v2", "--no-cache"])
    assert (args.opt_level, args.target, args.no_cache) == (0, ["x86-64-v2"], True)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, in a folder with a file."""
    folder = tmp_path_factory.mktemp("bash")
    with (folder / "parax.bash").open("w") as file:
        file.write(completion.bash(cli.parax_parser()))
    return folder / "parax.bash"


def completed(script: Path, *words: str) -> list[str]:
    """What the function offers for the last of the words, in bash itself."""
    command = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _parax; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-euc", command, "bash", str(script), *words],
        capture_output=True, text=True, check=True, cwd=script.parent,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(("line", "offered"), [
    ("parax comp", ["compile", "compare", "completion"]),
    ("parax --v", ["--version"]),
    ("parax run --ra", ["--random"]),
    ("parax run p.bin --to", ["--top"]),
    ("parax run p.bin --mode ", ["sequential", "layered", "pipelined"]),
    ("parax run p.bin --mode = lay", ["layered"]),
    ("parax run p.bin --mode =", ["sequential", "layered", "pipelined"]),
    ("parax compile m.onnx --emit l", ["llvm-ir"]),
    ("parax compile m.onnx -O ", ["0", "1", "2", "3"]),
    ("parax verify m.onnx --tun", ["--tune-seconds"]),  # set aside in --help, but not here
    ("parax completion ", ["bash", "zsh", "fish"]),
    ("parax help verif", ["verify"]),
    ("paraxc m.onnx --prec", ["--precision"]),
    ("/usr/bin/paraxc --precision f", ["fp32", "fp16"]),
    ("paraxc comp", []),  # not a verb: a file, which is bash's own to complete
    ("parax run p.bin --input ", []),
    ("parax run p", []),
    ("parax nonsense --", []),
])  # fmt: skip
def test_bash_completes(line: str, offered: list[str], script: Path) -> None:
    assert completed(script, *line.split(" ")) == offered


@pytest.mark.parametrize("verb", VERBS)
def test_bash_completes_every_option(verb: str, script: Path) -> None:
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    groups = cli.parax_parser().verbs()[verb].groups()
    assert completed(script, "parax", verb, "-") == [
        f for _, actions in groups for a in actions for f in a.option_strings
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_verb_and_option(shell: str, capsys: Capture) -> None:
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for name, verb in cli.parax_parser().verbs().items():
        assert name in text
        longs = {f for _, actions in verb.groups() for a in actions for f in a.option_strings if f.startswith("--")}
        assert all(f"-l {flag[2:]} " in text if shell == "fish" else flag in text for flag in longs)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_scripts(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    with (tmp_path / "script").open("w") as file:
        file.write(completion.SCRIPTS[shell](cli.parax_parser()))
    done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_manual_page_has_all_and_keeps_to_roffs_rules() -> None:
    parser = cli.parax_parser()
    page = man.page(parser)
    assert page.startswith('.TH PARAX 1 ""')
    for verb in parser.verbs().values():
        for flag in (f for _, actions in verb.groups() for a in actions if verb.told(a) for f in a.option_strings):
            assert rf"\fB{flag.replace('-', chr(92) + '-')}\fR" in page
    assert all(name in page for name in env.VARIABLES)
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".TP", ".B", ".BR", ".br", ".nf", ".fi"}
    assert "%(" not in page and "==SUPPRESS==" not in page


def test_the_manual_page_is_read_without_a_warning(tmp_path: Path) -> None:
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    command = ["groff", "-k", "-ww", "-man", "-Tutf8"]
    done = subprocess.run(command, input=man.page(cli.parax_parser()), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    plain = re.sub(r".\x08|\x1b\[[\d;]*m", "", done.stdout)
    assert "parax run [options] [plan.bin|MODEL.onnx]" in plain
    assert "--mean A,B,C" in plain and "6 resource limit or timeout" in plain
