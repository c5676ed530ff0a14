"""The one exception a user can cause, and how it is phrased."""


class XlaCostError(ValueError):
    """Bad input. The message is one sentence: place, value found, value expected.

    The command line prints it on standard error and exits with code 2; a library
    caller catches it. Anything else that escapes is a bug of ours.
    """
