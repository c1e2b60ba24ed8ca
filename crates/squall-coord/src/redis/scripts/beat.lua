-- Stays a member.
-- Keys: as the prelude, 5 beat. Args: as the prelude, 3 member, 4 ttl in ms. Answer: the revision, or -1 when gone.
-- Invariant: an expired membership is never brought back by its own beat.
if not redis.call('ZSCORE', KEYS[2], ARGV[3]) then return -1 end
redis.call('ZADD', KEYS[2], whole(now + tonumber(ARGV[4])), ARGV[3])
redis.call('SET', KEYS[5], 'beat', 'PX', ARGV[4])
return revision()
