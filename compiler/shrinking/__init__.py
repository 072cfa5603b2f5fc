"""A model made as small as it goes while it still shows a mistake: proposals, the search, trials in child processes."""
