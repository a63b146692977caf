"""Who may do what: shared access policies, the tokens that are signed with their keys, and what a token grants.

Pure: the time is handed in, and nothing here knows a socket, a file or a log.
"""
