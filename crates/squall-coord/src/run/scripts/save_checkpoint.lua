-- Keeps what was made of the deltas up to a place.
-- Keys: 1 saved (hash), 2 deltas (stream). Args: 1 the place before, 2 the place now, 3 what was made, 4 ttl in ms, 5 the beginning.
-- Answer: 1 kept, 0 somebody was faster.
-- Invariant: deltas are dropped only when two savings cover them, so that a reader just behind is not cut off.
local before = redis.call('HGET', KEYS[1], 'place') or ARGV[5]
if before ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'place', ARGV[2], 'made', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if before ~= ARGV[5] then redis.call('XTRIM', KEYS[2], 'MINID', before) end
return 1
