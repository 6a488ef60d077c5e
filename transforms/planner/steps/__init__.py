"""How long one engine iteration takes, and how that is fitted to measured runs."""
