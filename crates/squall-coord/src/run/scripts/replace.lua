-- Replaces state and order, and raises the epoch for a new run.
-- Keys: 1 state, 2 epoch, 3 revision, 4 order. Args: 1 epoch seen, 2 revision seen, 3 state, 4 order, 5 1 to raise the epoch.
-- Answer: as record.lua, or nothing if somebody was faster.
-- Invariant: a decision made on an old record changes nothing; epoch and state change together.
local epoch = tonumber(redis.call('GET', KEYS[2]) or '0')
local revision = tonumber(redis.call('GET', KEYS[3]) or '0')
if epoch ~= tonumber(ARGV[1]) or revision ~= tonumber(ARGV[2]) then return false end
if ARGV[5] == '1' then epoch = redis.call('INCR', KEYS[2]) end
revision = redis.call('INCR', KEYS[3])
redis.call('SET', KEYS[1], ARGV[3])
redis.call('SET', KEYS[4], ARGV[4])
local time = redis.call('TIME')
return {ARGV[3], epoch, revision, ARGV[4], tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)}
