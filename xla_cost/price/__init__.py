"""Program x Machine x Policy -> Timeline -> Estimate."""
