"""Long messages of jax and XLA, cut to the one sentence a user gets."""

from __future__ import annotations

import re

_LIMIT = 400


def one_sentence(error: BaseException) -> str:
    """Return the kind and the first paragraph of an exception's message, on one line."""
    paragraphs = [part for part in re.split(r"\n\s*\n", str(error).strip()) if part.strip()]
    text = " ".join((paragraphs[0] if paragraphs else "").split()).rstrip(".:")
    if len(text) > _LIMIT:
        text = text[:_LIMIT].rsplit(" ", 1)[0] + " .."
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind
