"""What a changed setting does to the same traffic: scenarios, what they refuse and cut, and what comes out."""
