-- Appends a point to the user timeline.
-- Keys: 1 epoch, 2 users:timeline (stream). Args: 1 epoch, 2 users, 3 source, 4 most points, 5 ttl
--   in ms.
-- Reply: 1, or 0 if another run has begun.
-- Invariant: only the current run appends; the length of the stream is limited.
if tonumber(redis.call('GET', KEYS[1]) or '0') ~= tonumber(ARGV[1]) then return 0 end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', 'epoch', ARGV[1], 'users_count', ARGV[2], 'source', ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return 1
