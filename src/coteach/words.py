"""Words for error messages."""


def in_a_line(error: Exception) -> str:
    """What an exception says, in printable characters and one line."""
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return "".join(c if c.isprintable() else "?" for c in words)
