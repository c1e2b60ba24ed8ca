-- Cancels a request: removes it from the queue, or frees its item.
-- Keys: as the prelude. Args: as the prelude, 5 ticket. Reply: 1 if the request existed.
-- Invariant: idempotent; other requests and items stay untouched.
local had = string.match(redis.call('HGET', KEYS[6], 'ticket:' .. ARGV[5]) or '', '^h (.*)$')
if had then return_item(had) end
local queued = remove_from_queue(ARGV[5])
notify_next()
return (had or queued == 1) and 1 or 0
