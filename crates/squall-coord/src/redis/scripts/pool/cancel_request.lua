-- Gives up a ticket: its place in the queue, or what it was given.
-- Keys: as the prelude. Args: as the prelude, 5 ticket. Answer: 1 if there was anything to give up.
-- Invariant: idempotent; nobody else's place or thing is touched.
local had = string.match(redis.call('HGET', KEYS[6], 'ticket:' .. ARGV[5]) or '', '^h (.*)$')
if had then give_back(had) end
local queued = unqueue(ARGV[5])
call_next()
return (had or queued == 1) and 1 or 0
