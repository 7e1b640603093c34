"""Server and load processes of the mailbox benchmark."""
