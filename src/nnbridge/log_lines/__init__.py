"""Lines of logs: the one table of their forms, and the one reader that knows them again."""
