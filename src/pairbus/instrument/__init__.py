"""Every operation is told to an instrument, which hands one frozen record to each sink: one file per sink."""
