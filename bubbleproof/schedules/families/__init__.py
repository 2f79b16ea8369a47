"""Published schedule families: each a pure function from an instance to a schedule."""
