"""What `kvledger doctor` looks at: the installation, the home, and what surrounds them. Nothing is changed."""
