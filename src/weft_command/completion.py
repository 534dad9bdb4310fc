"""``weft completion``: what a shell needs to complete the command's words."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from weft_command import exits

EXAMPLES = """\
examples, by shell:
  bash    eval "$(weft completion bash)"          in ~/.bashrc
  zsh     eval "$(weft completion zsh)"           in ~/.zshrc, after compinit
  fish    weft completion fish > ~/.config/fish/completions/weft.fish
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = "Print completions of commands and options for a shell."
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from weft_command import tree

    found = _points("", tree.parser(every=True))
    print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](found))
    return exits.DONE


class Word(NamedTuple):
    """A word that can stand at a point, and what it is for."""

    word: str
    about: str


class Point(NamedTuple):
    """A command, or a command of a command, and the words that can follow it."""

    path: str
    words: list[Word]


def _points(path: str, parser: argparse.ArgumentParser) -> list[Point]:
    words, below = [], []
    for action in parser._actions:
        about = action.help if action.help and action.help != argparse.SUPPRESS else ""
        words += [Word(option, about) for option in action.option_strings]
        if isinstance(action, argparse._SubParsersAction):
            helps = {a.dest: a.help or "" for a in action._choices_actions}
            for name, sub in action.choices.items():
                words.append(Word(name, helps.get(name, "")))
                below += _points(f"{path} {name}".strip(), sub)
        elif action.choices and not action.option_strings:
            words += [Word(str(choice), "") for choice in action.choices]
    return [Point(path, words), *below]


def bash(points: list[Point]) -> str:
    """For bash; files are completed where no word fits."""
    paths = " ".join(f"'{p.path}'" for p in points if p.path)
    cases = "\n".join(
        f"    '{p.path}') words='{' '.join(w.word for w in p.words)}' ;;" for p in points
    )
    return f"""\
_weft() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" path='' words='' word known i
  for (( i = 1; i < COMP_CWORD; i++ )); do
    word="${{COMP_WORDS[i]}}"
    for known in {paths}; do
      if [[ "$known" == "${{path:+$path }}$word" ]]; then path="$known"; break; fi
    done
  done
  case "$path" in
{cases}
  esac
  COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o default -o bashdefault -F _weft weft"""


def zsh(points: list[Point]) -> str:
    """For zsh, which can use bash's."""
    return f"""\
#compdef weft
autoload -U +X bashcompinit && bashcompinit
{bash(points)}"""


def fish(points: list[Point]) -> str:
    """For fish, with what each word is for."""
    lines = ["complete -c weft -e", "complete -c weft -n __fish_use_subcommand -f"]
    for point in points:
        parts = point.path.split()
        if not parts:
            when = "__fish_use_subcommand"
        else:
            when = "; and ".join(f"__fish_seen_subcommand_from {part}" for part in parts)
        for word, about in point.words:
            shown = about.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%")
            if word.startswith("--"):
                what = f"-l {word[2:]}"
            elif word.startswith("-"):
                what = f"-s {word[1:]}"
            else:
                what = f"-a {word}"
            lines.append(f"complete -c weft -n '{when}' {what} -d '{shown}'")
    return "\n".join(lines)
