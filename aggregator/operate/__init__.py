"""What people who run a mesh do with it from a command line, without the state of a running process."""
