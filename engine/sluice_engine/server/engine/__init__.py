"""The connection of the HTTP process to its engine process."""
