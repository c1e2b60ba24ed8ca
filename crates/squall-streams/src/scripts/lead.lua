-- Acquires or renews the leadership of an app.
-- Keys: 1 leader (string, worker id, expires). Args: 1 worker, 2 ttl in ms.
-- Response: 2 acquired, 1 renewed, 0 another worker is the leader.
-- Invariant: there is one leader at a time, and a leader whose key had expired gets 2, not 1.
local leader = redis.call('GET', KEYS[1])
if leader and leader ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return leader and 1 or 2
