-- Counts one pool.
-- Keys and args: as the prelude. Reply: total, available, held, waiting.
-- Invariant: all counts belong to the same instant; a foreign value in place of the total is an
--   error.
local total = load_created_items()
if not total or total < 0 then return not_a_number(ARGV[2] .. ' of resources') end
return {total, redis.call('SCARD', KEYS[2]), redis.call('HLEN', KEYS[3]), redis.call('ZCARD', KEYS[5])}
