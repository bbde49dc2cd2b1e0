-- Where a process serves, for other programs of its machine; NULL for a command.
ALTER TABLE instance ADD COLUMN url TEXT;
