-- Reads events of a partition for its owner: pending ones after an id, or new ones ('>'). Only
-- clusters need it, because their client may repeat a command. Elsewhere a plain XREADGROUP that
-- names the gate does the same in half the server's time.
-- Keys: 1 events, 2 lock. Args: 1 epoch, 2 group, 3 count, 4 start, 5 number of this read under
--       this lease.
-- Response: nil if rejected; else the id after which to watch ('' if there may be more events),
--       then id and body of each event. A body is the value of `data` if that is the only field,
--       else the list of fields, or false for a deleted entry.
-- Invariant: only the owner takes events out of the stream, and a read that its sender has repeated
-- takes none, so that every event taken reaches a worker.
local lock = redis.call('HMGET', KEYS[2], 'epoch', 'until', 'reads')
local time = redis.call('TIME')
if lock[1] ~= ARGV[1] or tonumber(lock[2]) <= time[1] * 1000 + time[2] / 1000 then return false end
if tonumber(ARGV[5]) <= tonumber(lock[3] or '0') then return false end
redis.call('HSET', KEYS[2], 'reads', ARGV[5])
local read = redis.call('XREADGROUP', 'GROUP', ARGV[2], '1', 'COUNT', ARGV[3], 'STREAMS', KEYS[1], ARGV[4])
local response, n = {''}, 1
local last
if read then
  for _, entry in ipairs(read[1][2]) do
    last = entry[1]
    local fields = entry[2]
    response[n + 1] = last
    response[n + 2] = fields and ((#fields == 2 and fields[1] == 'data') and fields[2] or fields)
    n = n + 2
  end
end
if ARGV[4] == '>' and n < 2 * ARGV[3] then
  if not last then
    local info = redis.call('XINFO', 'STREAM', KEYS[1])
    for at = 1, #info, 2 do
      if info[at] == 'last-generated-id' then last = info[at + 1] end
    end
  end
  response[1] = last
end
return response
