"""One module a family of charts: mart rows in, `Chart` out (None where there is nothing to draw)."""
