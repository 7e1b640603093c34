"""Where objects are kept: `objects` is the engine, `disk` and `ram` are the files it may write."""
