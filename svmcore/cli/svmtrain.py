"""The command line of LIBSVM's svm-train, in the words of ``svmcore train``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from svmcore._errors import InputError

KERNELS = ("linear", "poly", "rbf", "sigmoid", "precomputed")
_LETTER = re.compile(r"-([stcepnmbvwh])(.*)\Z", re.DOTALL)
_NAMES = {"c": "-C", "e": "--tol", "m": "--cache-mb", "v": "--folds"}


def translated(argv: Sequence[str]) -> list[str]:
    """The arguments of ``train`` with LIBSVM's letters put in our words; as they are where there are none.

    With a letter of LIBSVM its rules hold: gamma is 1 / features by default, and the model is LIBSVM's text.
    """
    if any(word == "-h" and after not in ("0", "1") for word, after in zip_longest(argv, argv[1:])):
        return list(argv)  # help
    given: dict[str, str] = {}
    weights: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        found = _LETTER.match(word)
        if found is None:
            rest.append(word)
            continue
        letter, attached = found[1], found[2]
        if letter == "w":
            weights.append(f"{attached}={_value(words, word, '')}")
        else:
            given[letter] = _value(words, word, attached)
    if not given and not weights:
        return list(argv)
    if given.get("s", "0") != "0":
        weights = []  # they belong to C-SVC
    chances = ["--probability"] if _asks_for_probabilities(given.get("b", "0")) else []
    weighted = [f"--class-weight={','.join(weights)}"] if weights else []
    return [*_words(given), *chances, *weighted, "--as-svm-train", *rest]


def prediction(argv: Sequence[str]) -> list[str]:
    """The arguments of ``predict``, where svm-predict's ``-b 1`` may be among them."""
    words, out = iter(argv), []
    for word in words:
        if re.match(r"-b[01]?\Z", word) is None:
            out.append(word)
        elif _asks_for_probabilities(_value(words, "-b", word[2:])):
            out.append("--probability")
    return out


def _asks_for_probabilities(text: str) -> bool:
    if text not in ("0", "1"):
        raise InputError(f"-b {text}: 1 asks for probabilities, 0 does not")
    return text == "1"


def _value(words: object, word: str, attached: str) -> str:
    value = attached or next(words, None)  # type: ignore[call-overload]
    if value is None:
        raise InputError(f"{word} needs a value, as in svm-train")
    return str(value)


def _words(given: dict[str, str]) -> list[str]:
    """The letters in our words; a letter that the type of machine has no use for is left out, as svm-train does."""
    kind = given.get("s", "0")
    if kind not in ("0", "1", "2", "3", "4"):
        raise InputError(f"-s {kind}: there is no such type; 0 C-SVC, 1 nu-SVC, 2 one-class, 3 epsilon-SVR, 4 nu-SVR")
    at = given.get("t", "2")
    if at not in ("0", "1", "2", "3", "4"):
        raise InputError(f"-t {at}: there is no such kernel; 0 linear, 1 polynomial, 2 rbf, 3 sigmoid, 4 precomputed")
    out = [f"--kernel={KERNELS[int(at)]}"] if "t" in given else []
    out += {"2": ["--one-class"], "3": ["--svr"], "4": ["--svr"]}.get(kind, [])
    if kind in ("1", "2", "4") or ("s" not in given and "n" in given):
        out.append(f"--nu={given.get('n', '0.5')}")
    if "p" in given and (kind == "3" or "s" not in given):
        out.append(f"--epsilon={given['p']}")
    for letter, name in _NAMES.items():
        if letter in given and not (letter == "c" and kind in ("1", "2")):
            out += [name, given[letter]]
    return out
