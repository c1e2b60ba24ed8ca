-- Stays a member.
-- Keys: as the prelude, 5 beat. Args: as the prelude, 3 member, 4 ttl in ms.
-- Answer: the revision, or -1 when gone, and the revision of the last assignment.
-- Invariant: an expired membership is never brought back by its own beat.
-- One command where two would do: a thousand members make a thousand of these a second.
if redis.call('ZADD', KEYS[2], 'XX', 'CH', whole(now + tonumber(ARGV[4])), ARGV[3]) == 0
  and not redis.call('ZSCORE', KEYS[2], ARGV[3]) then return {-1, 0} end
redis.call('SET', KEYS[5], 'beat', 'PX', ARGV[4])
local known = redis.call('HMGET', KEYS[3], 'revision', 'assigned')
return {tonumber(known[1] or '0'), tonumber(known[2] or '0')}
