-- Replaces state and order, and raises the epoch for a new run.
-- Keys: 1 state, 2 epoch, 3 revision, 4 order; to raise the epoch also what is kept of the run after the one seen: 5 deltas, 6 shipped,
-- 7 saved, 8 notes, 9 counters. Args: 1 epoch seen, 2 revision seen, 3 state, 4 order.
-- Answer: as record.lua, or nothing if somebody was faster.
-- Invariants: a decision made on an old record changes nothing; epoch and state change together; a run finds nothing of an earlier one
-- that had its number before the epoch was lost.
local epoch = tonumber(redis.call('GET', KEYS[2]) or '0')
local revision = tonumber(redis.call('GET', KEYS[3]) or '0')
if epoch ~= tonumber(ARGV[1]) or revision ~= tonumber(ARGV[2]) then return false end
if #KEYS > 4 then
  epoch = redis.call('INCR', KEYS[2])
  redis.call('DEL', unpack(KEYS, 5))
end
revision = redis.call('INCR', KEYS[3])
redis.call('SET', KEYS[1], ARGV[3])
redis.call('SET', KEYS[4], ARGV[4])
local time = redis.call('TIME')
return {ARGV[3], epoch, revision, ARGV[4], tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)}
