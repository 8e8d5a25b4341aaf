"""What people read: a Snapshot, a Told or a replay -> text. Pure: clock, width and names are arguments."""
