"""Pictures of timelines: for the terminal, and as SVG."""
