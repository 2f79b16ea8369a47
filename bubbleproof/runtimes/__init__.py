"""Objects of live runtimes, built from schedules and read back; each module imports its runtime when it is called."""
