"""Background work: which queue a task goes to, who claims the next job, and whose turn it is."""
