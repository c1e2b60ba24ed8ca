-- Renews a membership.
-- Keys: as the prelude, 5 heartbeat. Args: as the prelude, 3 member, 4 ttl in ms.
-- Reply: the revision, or -1 if the membership has expired, and the revision of the last
--   assignment.
-- Invariant: a heartbeat never revives an expired membership.
-- The usual case needs one ZADD and no ZSCORE, because a thousand members send a thousand
--   heartbeats a second.
if redis.call('ZADD', KEYS[2], 'XX', 'CH', whole(now + tonumber(ARGV[4])), ARGV[3]) == 0
  and not redis.call('ZSCORE', KEYS[2], ARGV[3]) then return {-1, 0} end
redis.call('SET', KEYS[5], 'beat', 'PX', ARGV[4])
local known = redis.call('HMGET', KEYS[3], 'revision', 'assigned')
return {tonumber(known[1] or '0'), tonumber(known[2] or '0')}
