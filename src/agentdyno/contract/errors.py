"""The one kind of error whose text is meant for the user as it is."""


class UserError(Exception):
    """Something the user can mend. Its text is a whole sentence: what happened, where, and what to do."""
