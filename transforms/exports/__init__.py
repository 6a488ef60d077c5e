"""One file per format in which traffic goes out to load generators and simulators: requests in, lines out."""
