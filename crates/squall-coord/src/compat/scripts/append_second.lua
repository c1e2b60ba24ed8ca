-- Appends one merged second to the metrics or probes that have data in it.
-- Keys: 1 epoch, 2 metrics or probes (set), 3… metric:<id> or probe:<name> (streams).
-- Args: 1 epoch, 2 end of the second in ms, 3 most seconds per stream, 4 ttl in ms, 5… id and row
--   (JSON) in turn, in the order of the streams.
-- Reply: 1, or 0 if another run has begun.
-- Invariant: each second appears once, also after a change of leader, because its time is the
--   entry's id.
if tonumber(redis.call('GET', KEYS[1]) or '0') ~= tonumber(ARGV[1]) then return 0 end
for n = 3, #KEYS do
  local at = 5 + (n - 3) * 2
  local added = redis.pcall('XADD', KEYS[n], 'MAXLEN', '~', ARGV[3], ARGV[2] .. '-0', 'data', ARGV[at + 1])
  if type(added) == 'table' and added.err then
    if string.find(added.err, 'WRONGTYPE') then error(added.err) end -- any other error: the second exists already
  else
    redis.call('PEXPIRE', KEYS[n], ARGV[4])
  end
  redis.call('SADD', KEYS[2], ARGV[at])
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
