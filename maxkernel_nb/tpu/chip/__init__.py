"""Measuring on a chip: who owns it, what runs on it, how its time is read, and when it keeps still."""
