-- Frees items whose holders are not members or whose runs have ended.
-- Keys and args: as the prelude. Reply: how many items became free.
-- Invariant: idempotent; any client may run it at any time.
first_waiting(redis.call('ZCARD', KEYS[5]))
local count = reclaim_abandoned()
notify_next()
return count
