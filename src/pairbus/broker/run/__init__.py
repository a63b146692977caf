"""A broker that runs, and how it is told what to do."""
