-- Gives back what is held by those who are no members, or for runs that are over.
-- Keys and args: as the prelude. Answer: how many things came back.
-- Invariant: idempotent; anybody may run it at any time.
front(redis.call('ZCARD', KEYS[5]))
local count = reap()
call_next()
return count
