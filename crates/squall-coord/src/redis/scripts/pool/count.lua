-- Counts one pool.
-- Keys and args: as the prelude. Answer: total, available, held, waiting.
-- Invariant: the four belong to the same instant; a count that somebody else wrote is refused.
local total = tonumber(redis.call('HGET', KEYS[1], ARGV[2]) or '0')
if not total or total < 0 then return foreign(ARGV[2] .. ' of resources') end
return {total, redis.call('SCARD', KEYS[2]), redis.call('HLEN', KEYS[3]), redis.call('ZCARD', KEYS[5])}
