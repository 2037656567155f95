"""The program that every node runs: members, runs, data sets, health. It needs only the system's own Python."""
