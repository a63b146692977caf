"""What is told to the outside: ledger files, traces, metrics, logs; one module per sink."""
