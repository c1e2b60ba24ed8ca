-- Replaces state and order (the run's spec), and raises the epoch for a new run.
-- Keys: 1 state, 2 epoch, 3 revision, 4 order; to raise the epoch also the keys of the next run: 5
--   deltas, 6 shipped, 7 saved, 8 notes, 9 counters. Args: 1 seen epoch, 2 seen revision, 3 state,
--   4 order.
-- Reply: as read_record.lua, or nil if another client changed the record first.
-- Invariant: a decision made on an old record changes nothing; epoch and state change together; a
--   new run finds no data of an earlier run with the same number, which exists if the epoch was
--   lost.
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
