-- Appends a delta.
-- Keys: 1 epoch, 2 shipped (hash), 3 deltas (stream). Args: 1 epoch, 2 source, 3 number, 4 delta, 5 ttl in ms.
-- Answer: taken, known, gap (with the number expected) or stale.
-- Invariants: a source's deltas are in the stream once each, in order, and only those of the run that is on; where nobody can say
-- which run that is, nothing is given up.
local epoch = tonumber(redis.call('GET', KEYS[1]) or '0')
if not epoch then return redis.error_reply('WRONGTYPE test:epoch is no whole number') end
if epoch ~= tonumber(ARGV[1]) then return {'stale', 0} end
local last = redis.call('HGET', KEYS[2], ARGV[2])
local expected = last and tonumber(last) + 1 or 0
local number = tonumber(ARGV[3])
if number < expected then return {'known', expected} end
if number > expected then return {'gap', expected} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('XADD', KEYS[3], '*', 'd', ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return {'taken', expected + 1}
