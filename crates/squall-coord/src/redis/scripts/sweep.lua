-- Removes expired members; the prelude has done so already.
-- Keys and args: as the prelude. Reply: the removed members.
-- Invariant: idempotent; any client may run it at any time.
return expired
