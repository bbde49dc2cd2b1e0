-- Where a process serves, for commands over the same SQLite database; NULL for a command, and on PostgreSQL.
ALTER TABLE instance ADD COLUMN url TEXT COLLATE "C";
