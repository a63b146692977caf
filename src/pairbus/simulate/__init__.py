"""A whole world of clients, brokers, faults and time, from one seed, in one process."""
