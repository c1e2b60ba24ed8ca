-- Removes expired members; the prelude has done it.
-- Keys and args: as the prelude. Answer: the names of those removed.
-- Invariant: idempotent; anybody may run it at any time.
return dead
