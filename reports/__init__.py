"""Tables in, charts and pages out; no IO."""
