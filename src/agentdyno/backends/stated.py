"""What a user states of a server of theirs: the settings that nobody can see from outside, kept as they were said."""

from __future__ import annotations

_LONGEST = 1000
_SECRETS = ("api-key", "token", "password", "secret")


def read_stated(text: str) -> str:
    """The words with one blank between them. Raises ValueError with a sentence for what cannot be kept."""
    words = text.split()
    if not words:
        raise ValueError("it is empty. Give it as the server's own words, such as --tool-call-parser hermes.")
    stated = " ".join(words)
    if len(stated) > _LONGEST or not stated.isprintable():
        raise ValueError(f"it is one line of text, of {_LONGEST} characters at most.")
    if any(_names_a_secret(word) for word in words):
        raise ValueError("it is kept in the manifest and in reports as it is; leave what names a key or a token out.")
    return stated


def _names_a_secret(word: str) -> bool:
    return word.partition("=")[0].lower().replace("_", "-").endswith(_SECRETS)
