"""One module per group of commands: options in, one stage function called, one result printed."""
