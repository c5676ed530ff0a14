"""The exceptions a user can cause, and how they are phrased."""


class XlaCostError(ValueError):
    """Bad input. The message is one sentence: place, value found, value expected.

    The command line prints it on standard error and exits with code 2; a library
    caller catches it. Anything else that escapes is a bug of ours.
    """


class StorageError(XlaCostError):
    """A place to work in cannot be written; it says nothing about the question asked.

    A search that catches `XlaCostError` to go on with the next candidate lets this one pass.
    """
