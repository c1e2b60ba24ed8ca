-- Becomes or stays the leader of an app.
-- Keys: 1 leader (string, worker id, expires). Args: 1 worker, 2 ttl in ms. Answer: 2 just become, 1 still, 0 somebody else is.
-- Invariant: one leader at a time; a leader that let its time run out is told that it starts anew.
local leader = redis.call('GET', KEYS[1])
if leader and leader ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return leader and 1 or 2
