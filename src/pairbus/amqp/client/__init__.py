"""What only a client needs of AMQP, pure: requests and their answers, settlements that are answered, signatures."""
