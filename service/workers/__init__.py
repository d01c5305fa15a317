"""Worker processes: the supervisor that starts and replaces them, and what one of them runs."""
