-- Reads events of a partition for its owner: pending ones from an id on, or new ones ('>'). Only on clusters, whose client may repeat a
-- command by itself; elsewhere a plain XREADGROUP that names the gate does the same for half the server's time.
-- Keys: 1 events, 2 lock. Args: 1 epoch, 2 group, 3 count, 4 from, 5 number of this read under this lease.
-- Answer: nil when refused; else the id to watch from ('' when there may be more) and then id, body in turn. A body is the
-- value of `data` where that is the only field, else the list of fields, else false for an entry that was deleted.
-- Invariant: whoever is not the owner takes nothing out of the stream, and neither does a read that its sender has given up on and
-- repeated; so no event is stranded where nobody processes it.
local lock = redis.call('HMGET', KEYS[2], 'epoch', 'until', 'reads')
local time = redis.call('TIME')
if lock[1] ~= ARGV[1] or tonumber(lock[2]) <= time[1] * 1000 + time[2] / 1000 then return false end
if tonumber(ARGV[5]) <= tonumber(lock[3] or '0') then return false end
redis.call('HSET', KEYS[2], 'reads', ARGV[5])
local read = redis.call('XREADGROUP', 'GROUP', ARGV[2], '1', 'COUNT', ARGV[3], 'STREAMS', KEYS[1], ARGV[4])
local answer, n = {''}, 1
local last
if read then
  for _, entry in ipairs(read[1][2]) do
    last = entry[1]
    local fields = entry[2]
    answer[n + 1] = last
    answer[n + 2] = fields and ((#fields == 2 and fields[1] == 'data') and fields[2] or fields)
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
  answer[1] = last
end
return answer
