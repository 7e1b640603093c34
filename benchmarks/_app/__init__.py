"""The application benchmark: the programs that are measured, and the servers they use."""
