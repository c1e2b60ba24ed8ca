-- Appends a delta.
-- Keys: 1 epoch, 2 shipped (hash), 3 deltas (stream). Args: 1 epoch, 2 source, 3 number, 4 delta, 5
--   ttl in ms.
-- Reply: appended, duplicate, gap (with the expected number) or run_ended.
-- Invariant: the stream has each delta of a source once, in order, and only deltas of the current
--   run; if the epoch is not a number, the reply is an error and not run_ended, so the worker keeps
--   its deltas.
local epoch = tonumber(redis.call('GET', KEYS[1]) or '0')
if not epoch then return redis.error_reply('WRONGTYPE test:epoch is not a whole number') end
if epoch ~= tonumber(ARGV[1]) then return {'run_ended', 0} end
local last = redis.call('HGET', KEYS[2], ARGV[2])
local expected = last and tonumber(last) + 1 or 0
local number = tonumber(ARGV[3])
if number < expected then return {'duplicate', expected} end
if number > expected then return {'gap', expected} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('XADD', KEYS[3], '*', 'd', ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return {'appended', expected + 1}
