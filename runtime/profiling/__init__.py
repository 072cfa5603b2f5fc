"""What a session's cores did, kernel by kernel: recorded, added up, and shown as a table, a trace or a page."""
