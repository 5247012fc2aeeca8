"""Whose files to believe: owners and modes of folders, and what is the user's alone to say."""
